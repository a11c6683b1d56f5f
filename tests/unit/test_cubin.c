// The reader of cubins against a file built here, byte by byte as the format says, and against that
// file damaged in every place. test_nvrtc reads what NVRTC makes.
#include "codegen/cuda/cubin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- a cubin with two kernels -------------------------------------------------------------------

enum { HEADER = 64, SECTION = 64, SYMBOL = 24 };
enum { SYMTAB = 2, STRTAB = 3, NOBITS = 8, INFO = 0x70000000 };

typedef struct builder {
  base_text bytes, names, table; // of the file, the sections' names, the sections' headers
  uint32_t count;
} builder;

static void put(base_text *text, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; i++) {
    const char byte = i < 8 ? (char)(value >> (8 * i)) : 0;
    base_text_append(text, &byte, 1);
  }
}

static void add_section(builder *b, const char *name, uint32_t type, const base_text *contents,
                        uint64_t size, uint32_t link) {
  put(&b->table, b->names.length, 4);
  put(&b->table, type, 4);
  put(&b->table, 0, 16); // flags, address
  put(&b->table, b->bytes.length, 8);
  put(&b->table, contents ? contents->length : size, 8);
  put(&b->table, link, 4);
  put(&b->table, 0, 20); // info, alignment, entry size
  base_text_append(&b->names, name, strlen(name) + 1);
  if (contents && contents->length) base_text_append(&b->bytes, contents->data, contents->length);
  b->count++;
}

static void add_symbol(base_text *symbols, uint32_t name, uint32_t info, uint32_t other) {
  put(symbols, name, 4);
  put(symbols, info, 1);
  put(symbols, other, 1);
  put(symbols, 0, SYMBOL - 6);
}

static void add_pair(base_text *info, uint32_t kind, uint32_t symbol, uint32_t value) {
  put(info, 4 | kind << 8 | 8u << 16, 4);
  put(info, symbol, 4);
  put(info, value, 4);
}

static void set(base_text *text, size_t at, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; i++)
    text->data[at + i] = (char)(value >> (8 * i));
}

static void add_header(base_arena *arena, builder *b) {
  *b = (builder){.bytes = {.arena = arena}, .names = {.arena = arena}, .table = {.arena = arena}};
  put(&b->bytes, 0x010102464c457f, 7); // ELF, 64 bits, little-endian, version
  put(&b->bytes, 0x41, 1);             // the ABI of CUDA 13
  put(&b->bytes, 0, 10);
  put(&b->bytes, 190, 2); // CUDA
  put(&b->bytes, 0, HEADER - 20);
  set(&b->bytes, 48, 0x06005a04, 4); // flags: sm_90
  add_section(b, "", 0, NULL, 0, 0);
}

static base_str finish(builder *b) {
  const uint32_t names = b->count;
  base_text *text = &b->names;
  add_section(b, ".shstrtab", STRTAB, NULL, 0, 0);
  set(&b->table, (size_t)names * SECTION + 24, b->bytes.length, 8);
  set(&b->table, (size_t)names * SECTION + 32, text->length, 8);
  base_text_append(&b->bytes, text->data, text->length);
  set(&b->bytes, 40, b->bytes.length, 8);
  set(&b->bytes, 60, b->count, 2);
  set(&b->bytes, 62, names, 2);
  base_text_append(&b->bytes, b->table.data, b->table.length);
  return base_text_str(&b->bytes);
}

// @first: 40 registers, a frame of 8 bytes and 24 with what it calls, 100 bytes of shared memory.
// @second: 255 registers, 224 threads, 3 barriers. And a function that is no kernel.
static base_str make_cubin(base_arena *arena, bool reserved) {
  builder b;
  base_text names = {.arena = arena}, symbols = {.arena = arena}, common = {.arena = arena},
            own = {.arena = arena};
  base_text_append(&names, "\0first\0helper\0second", 21);
  add_symbol(&symbols, 0, 0, 0);
  add_symbol(&symbols, 1, 0x12, 0x10);
  add_symbol(&symbols, 7, 0x12, 0);
  add_symbol(&symbols, 14, 0x12, 0x10);
  add_pair(&common, 0x2f, 3, 255);
  add_pair(&common, 0x11, 3, 0);
  add_pair(&common, 0x2f, 1, 40);
  add_pair(&common, 0x12, 1, 24);
  add_pair(&common, 0x11, 1, 8);
  add_pair(&common, 0x11, 2, 16);
  put(&own, 0x000501 | 0u << 16, 4); // an attribute without a value
  put(&own, 0x4c02 | 3u << 16, 4);
  put(&own, 0x0504 | 12u << 16, 4);
  put(&own, 224, 4);
  put(&own, 1, 4);
  put(&own, 1, 4);
  put(&own, 0x5003, 4);

  add_header(arena, &b);
  add_section(&b, ".strtab", STRTAB, &names, 0, 0);
  add_section(&b, ".symtab", SYMTAB, &symbols, 0, 1);
  add_section(&b, ".nv.info", INFO, &common, 0, 0);
  add_section(&b, ".nv.info.second", INFO, &own, 0, 0);
  if (reserved) add_section(&b, ".nv.shared.reserved.0", NOBITS, NULL, 64, 0);
  add_section(&b, ".nv.shared.first", NOBITS, NULL, reserved ? 1124 : 100, 0);
  add_section(&b, ".nv.constant0.second", NOBITS, NULL, 640, 0);
  return finish(&b);
}

// ---- tests --------------------------------------------------------------------------------------

static void check_kernels(const cuda_cubin *cubin) {
  assert_int_equal(cubin->capability, 90);
  assert_int_equal(cubin->kernel_count, 2);
  const cuda_kernel_resources *first = &cubin->kernels[0], *second = &cubin->kernels[1];
  assert_true(base_str_equal(first->name, BASE_STR("first")));
  assert_int_equal(first->registers, 40);
  assert_int_equal(first->stack_bytes, 24);
  assert_int_equal(first->static_shared_bytes, 100);
  assert_int_equal(first->max_threads, 0);
  assert_true(base_str_equal(second->name, BASE_STR("second")));
  assert_int_equal(second->registers, 255);
  assert_int_equal(second->stack_bytes, 0);
  assert_int_equal(second->max_threads, 224);
  assert_int_equal(second->barriers, 3);
  assert_int_equal(second->static_shared_bytes, 0);
  assert_int_equal(second->constant_bytes, 640);
}

static void test_read(void **state) {
  (void)state;
  base_arena arena;
  base_arena_init(&arena, NULL);
  for (int reserved = 0; reserved < 2; reserved++) {
    cuda_cubin cubin;
    base_str why = BASE_STR("");
    if (!cuda_cubin_read(&arena, make_cubin(&arena, reserved), &cubin, &why))
      fail_msg("%s", why.data);
    check_kernels(&cubin);
  }
  base_arena_reset(&arena);
}

static void test_not_a_cubin(void **state) {
  (void)state;
  base_arena arena;
  base_arena_init(&arena, NULL);
  base_str sound = make_cubin(&arena, true), host = base_str_copy(&arena, sound);
  ((char *)host.data)[18] = 62; // x86-64
  const struct {
    base_str file;
    const char *why;
  } cases[] = {
      {BASE_STR(""), "this is not a sound cubin: it is no 64-bit ELF file"},
      {BASE_STR("// .version 9.0\n.target sm_90\n.address_size 64, and so on and on for a while."),
       "this is not a sound cubin: it is no 64-bit ELF file"},
      {host, "this is not a sound cubin: it is not for a GPU"},
      {{sound.data, sound.length - 1},
       "this is not a sound cubin: its table of sections lies beyond its end"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cuda_cubin cubin;
    base_str why;
    assert_false(cuda_cubin_read(&arena, cases[i].file, &cubin, &why));
    assert_string_equal(why.data, cases[i].why);
  }
  base_arena_reset(&arena);
}

// Reads a copy that ends where its memory ends, so that sanitizers see every step beyond.
static void read_exactly(const char *data, size_t length) {
  base_arena arena;
  base_arena_init(&arena, NULL);
  char *copy = malloc(length ? length : 1);
  memcpy(copy, data, length);
  cuda_cubin cubin;
  base_str why;
  if (cuda_cubin_read(&arena, (base_str){copy, length}, &cubin, &why))
    for (uint32_t i = 0; i < cubin.kernel_count; i++) {
      const base_str name = cubin.kernels[i].name;
      assert_true(name.length > 0 && name.data >= copy && name.data + name.length < copy + length);
      assert_true(cubin.kernels[i].registers > 0);
    }
  free(copy);
  base_arena_reset(&arena);
}

static void test_damage(void **state) {
  (void)state;
  base_arena arena;
  base_arena_init(&arena, NULL);
  const base_str sound = make_cubin(&arena, true);
  char *bytes = (char *)base_str_copy(&arena, sound).data;
  for (size_t length = 0; length < sound.length; length++)
    read_exactly(bytes, length);
  static const unsigned char flips[] = {0x01, 0x02, 0x10, 0x40, 0x80, 0xff};
  for (size_t at = 0; at < sound.length; at++)
    for (size_t i = 0; i < sizeof flips; i++) {
      bytes[at] = (char)(bytes[at] ^ flips[i]);
      read_exactly(bytes, sound.length);
      bytes[at] = (char)(bytes[at] ^ flips[i]);
    }
  // Whole fields of ones and zeros: offsets and sizes that overflow when they are added.
  for (size_t at = 0; at + 8 <= sound.length; at++)
    for (int fill = 0; fill <= 0xff; fill += 0xff) {
      char saved[8];
      memcpy(saved, bytes + at, 8);
      memset(bytes + at, fill, 8);
      read_exactly(bytes, sound.length);
      memcpy(bytes + at, saved, 8);
    }
  base_arena_reset(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_read),
      cmocka_unit_test(test_not_a_cubin),
      cmocka_unit_test(test_damage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
