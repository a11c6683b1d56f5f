// hash: 128 bits, by xxHash (https://xxhash.com), so that keys need no check for collisions.
#include "base/base.h"

#include <inttypes.h>
#include <xxhash.h>

base_hash base_hash_bytes(const void *data, size_t length) {
  const XXH128_hash_t hash = XXH3_128bits(data, length);
  return (base_hash){hash.low64, hash.high64};
}

base_hash base_hash_combine(base_hash a, base_hash b) {
  const uint64_t words[] = {a.low, a.high, b.low, b.high};
  return base_hash_bytes(words, sizeof words);
}

bool base_hash_equal(base_hash a, base_hash b) {
  return a.low == b.low && a.high == b.high;
}

base_str base_hash_hex(base_arena *arena, base_hash hash) {
  return base_str_format(arena, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

uint64_t base_random(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}
