// The container of what was compiled (see bundle.h).
#include "runtime/bundle.h"

#include <string.h>

static const base_loc nowhere;

// A byte that no text has, a line end that some transfers change, and one that ends texts.
static const char magic[8] = {'\x8f', 'F', 'T', 'H', 'M', '\r', '\n', '\x1a'};

enum {
  AT_VERSION = 8,
  AT_ZERO = 12,
  AT_LENGTH = 16,
  AT_DIGEST = 24,
  HEADER = 40,
  SECTION_HEADER = 16,
  PADDING = 8,
};

// ---- numbers ------------------------------------------------------------------------------------

static void put(char *to, uint64_t value, uint32_t width) {
  for (uint32_t i = 0; i < width; i++)
    to[i] = (char)(unsigned char)(value >> 8 * i);
}

static uint64_t get(const char *from, uint32_t width) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < width; i++)
    value |= (uint64_t)(unsigned char)from[i] << 8 * i;
  return value;
}

static uint64_t padded(uint64_t bytes) {
  return (bytes + PADDING - 1) / PADDING * PADDING;
}

// ---- writing ------------------------------------------------------------------------------------

void rt_bundle_begin(base_text *out, const char *made_by) {
  char header[HEADER] = {0};
  memcpy(header, magic, sizeof magic);
  put(header + AT_VERSION, RT_BUNDLE_VERSION, 4);
  base_text_append(out, header, sizeof header);
  rt_bundle_add(out, RT_SECTION_MADE, base_str_from(made_by), BASE_STR(""));
}

void rt_bundle_add(base_text *out, uint32_t kind, base_str name, base_str contents) {
  static const char zeros[PADDING] = {0};
  char header[SECTION_HEADER];
  put(header, kind, 4);
  put(header + 4, name.length, 4);
  put(header + 8, contents.length, 8);
  base_text_append(out, header, sizeof header);
  if (name.length > 0) base_text_append(out, name.data, name.length);
  if (contents.length > 0) base_text_append(out, contents.data, contents.length);
  size_t end = name.length + contents.length;
  base_text_append(out, zeros, (size_t)padded(end) - end);
}

void rt_bundle_end(base_text *out) {
  base_hash digest = base_hash_bytes(out->data + HEADER, out->length - HEADER);
  put(out->data + AT_LENGTH, out->length, 8);
  put(out->data + AT_DIGEST, digest.low, 8);
  put(out->data + AT_DIGEST + 8, digest.high, 8);
}

// ---- reading ------------------------------------------------------------------------------------

static bool damaged(base_diag *diag, const char *how) {
  base_error_status(diag, BASE_INVALID, nowhere, "the bundle is damaged: %s", how);
  base_hint(diag, "copy it again, or compile it again");
  return false;
}

bool rt_bundle_is(base_str bytes) {
  return bytes.length >= sizeof magic && memcmp(bytes.data, magic, sizeof magic) == 0;
}

static bool check_header(base_str bytes, base_diag *diag) {
  if (!rt_bundle_is(bytes)) {
    base_error_status(diag, BASE_INVALID, nowhere, "%s",
                      bytes.length == 0 ? "the bundle is empty" : "this is no bundle of Fathom's");
    base_hint(diag, "a bundle is what fathom compile FILE -o FILE.fathom writes");
    return false;
  }
  if (bytes.length < HEADER) return damaged(diag, "it was cut off");
  uint64_t version = get(bytes.data + AT_VERSION, 4), length = get(bytes.data + AT_LENGTH, 8);
  if (version > RT_BUNDLE_VERSION) {
    base_error_status(diag, BASE_UNSUPPORTED, nowhere,
                      "the bundle has format version %llu, this Fathom reads up to %d",
                      (unsigned long long)version, RT_BUNDLE_VERSION);
    base_hint(diag, "use a newer Fathom, or compile the bundle again with this one");
    return false;
  }
  if (version == 0 || get(bytes.data + AT_ZERO, 4) != 0)
    return damaged(diag, "its first bytes cannot be");
  if (bytes.length < length) {
    base_error_status(diag, BASE_INVALID, nowhere,
                      "the bundle was cut off: it has %zu bytes, expected %llu", bytes.length,
                      (unsigned long long)length);
    base_hint(diag, "copy it again, or compile it again");
    return false;
  }
  if (bytes.length > length) return damaged(diag, "something follows its end");
  base_hash digest = base_hash_bytes(bytes.data + HEADER, bytes.length - HEADER);
  base_hash written = {.low = get(bytes.data + AT_DIGEST, 8),
                       .high = get(bytes.data + AT_DIGEST + 8, 8)};
  return base_hash_equal(digest, written) || damaged(diag, "its contents do not match its digest");
}

// The section that begins at *at; moves on behind it.
static bool read_section(base_str bytes, size_t *at, rt_section *out) {
  size_t left = bytes.length - *at;
  if (left < SECTION_HEADER) return false;
  const char *header = bytes.data + *at;
  uint64_t name = get(header + 4, 4), contents = get(header + 8, 8);
  left -= SECTION_HEADER;
  if (name > left || contents > left - name || padded(name + contents) > left) return false;
  *out = (rt_section){
      .kind = (uint32_t)get(header, 4),
      .name = {header + SECTION_HEADER, (size_t)name},
      .contents = {header + SECTION_HEADER + name, (size_t)contents},
  };
  *at += SECTION_HEADER + (size_t)padded(name + contents);
  return true;
}

bool rt_bundle_open(base_arena *arena, base_str bytes, rt_bundle *out, base_diag *diag) {
  *out = (rt_bundle){0};
  if (!check_header(bytes, diag)) return false;
  BASE_VECTOR(rt_section) sections = {0};
  for (size_t at = HEADER; at < bytes.length;) {
    rt_section section;
    if (!read_section(bytes, &at, &section)) return damaged(diag, "a section goes beyond its end");
    base_push(arena, &sections, section);
  }
  if (sections.count == 0 || sections.data[0].kind != RT_SECTION_MADE)
    return damaged(diag, "it does not say what made it");
  *out = (rt_bundle){.section_count = sections.count, .sections = sections.data};
  return true;
}

base_str rt_bundle_maker(const rt_bundle *bundle) {
  return bundle->sections[0].name;
}

void rt_bundle_refuse(const rt_bundle *bundle, const char *fault, base_diag *diag) {
  enum { SHOWN = 100 };
  base_str maker = rt_bundle_maker(bundle);
  if (maker.length > SHOWN) maker.length = SHOWN;
  base_error_status(diag, BASE_INVALID, nowhere, "the bundle, made by %.*s, is not sound: %s",
                    BASE_FMT(maker), fault);
  base_hint(diag, "compile it again; if that does not help, please report this with the bundle");
}
