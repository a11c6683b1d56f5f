// cubin: a reader of the ELF files that NVIDIA's assembler writes.
//
// A kernel is a symbol of type function that is marked as an entry. What it takes stands in
//
//   .nv.info          for all kernels: (symbol, value) pairs such as the registers
//   .nv.info.NAME     for one kernel: the bounds of its block, barriers
//   .nv.shared.NAME, .nv.constant0.NAME   by their sizes alone
//
// The info sections are sequences of attributes: a byte that tells the format, a byte that tells
// what it is, and two bytes that are the value or, in format 4, the number of bytes that follow.
// NVIDIA does not document them; the numbers are those of cuobjdump -elf. Nothing in the file is
// trusted: every read goes through `slice`.
#include <string.h>

#include "codegen/cuda/cubin.h"

enum {
  ELF_HEADER_SIZE = 64,
  SECTION_SIZE = 64,
  SYMBOL_SIZE = 24,
  MACHINE_CUDA = 190,
  SECTION_SYMBOLS = 2,
  SECTION_NO_BYTES = 8,
  SYMBOL_FUNCTION = 2,
  SYMBOL_ENTRY = 0x10, // in `other`: a kernel
  ABI_WITH_WIDE_FLAGS = 0x41,
  SHARED_RESERVED = 1024, // of the system, counted in from sm_90 on
};

enum { FORMAT_BYTE = 2, FORMAT_HALF = 3, FORMAT_SIZED = 4 };

enum {
  INFO_MAX_THREADS = 0x05,      // x, y, z of __launch_bounds__
  INFO_REQUIRED_THREADS = 0x10, // x, y, z that the kernel insists on
  INFO_FRAME_SIZE = 0x11,       // symbol, bytes of its own frame
  INFO_MIN_STACK_SIZE = 0x12,   // symbol, bytes with the functions it calls
  INFO_REGISTERS = 0x2f,        // symbol, count
  INFO_BARRIERS = 0x4c,
};

typedef struct section {
  base_str name, bytes;
  uint64_t size; // also of sections without bytes
  uint32_t type, link;
} section;

typedef struct elf {
  base_str file;
  section *sections;
  uint32_t count;
} elf;

// ---- bytes --------------------------------------------------------------------------------------

static bool slice(base_str whole, uint64_t offset, uint64_t length, base_str *out) {
  if (offset > whole.length || length > whole.length - offset) return false;
  *out = (base_str){whole.data + offset, (size_t)length};
  return true;
}

// A little-endian number of `size` bytes; 0 beyond the end.
static uint64_t number(base_str bytes, size_t offset, size_t size) {
  base_str at;
  if (!slice(bytes, offset, size, &at)) return 0;
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;)
    value = value << 8 | (unsigned char)at.data[i];
  return value;
}

static uint32_t word(base_str bytes, size_t offset) {
  return (uint32_t)number(bytes, offset, 4);
}

// The terminated text at `offset`; empty when there is none.
static base_str text_at(base_str table, uint64_t offset) {
  base_str rest;
  if (!slice(table, offset, 0, &rest)) return BASE_STR("");
  const size_t room = table.length - (size_t)offset;
  const char *end = memchr(rest.data, 0, room);
  return end ? (base_str){rest.data, (size_t)(end - rest.data)} : BASE_STR("");
}

// ---- sections -----------------------------------------------------------------------------------

static const char *read_sections(base_arena *arena, elf *e) {
  const base_str file = e->file;
  if (file.length < ELF_HEADER_SIZE || memcmp(file.data, "\177ELF\2\1", 6) != 0)
    return "it is no 64-bit ELF file";
  if (number(file, 18, 2) != MACHINE_CUDA) return "it is not for a GPU";
  const uint32_t count = (uint32_t)number(file, 60, 2), names = (uint32_t)number(file, 62, 2);
  base_str table;
  if (!slice(file, number(file, 40, 8), (uint64_t)count * SECTION_SIZE, &table))
    return "its table of sections lies beyond its end";
  if (names >= count) return "it has no names of sections";
  e->sections = base_new_array(arena, section, count);
  e->count = count;
  for (uint32_t i = 0; i < count; i++) {
    section *s = &e->sections[i];
    const size_t at = (size_t)i * SECTION_SIZE;
    s->type = word(table, at + 4);
    s->size = number(table, at + 32, 8);
    s->link = word(table, at + 40);
    if (s->type != SECTION_NO_BYTES && !slice(file, number(table, at + 24, 8), s->size, &s->bytes))
      return "one of its sections lies beyond its end";
  }
  for (uint32_t i = 0; i < count; i++)
    e->sections[i].name = text_at(e->sections[names].bytes, word(table, (size_t)i * SECTION_SIZE));
  return NULL;
}

// The section PREFIX + NAME; NULL when there is none.
static const section *find(const elf *e, const char *prefix, base_str name) {
  const size_t length = strlen(prefix);
  for (uint32_t i = 0; i < e->count; i++) {
    base_str rest = e->sections[i].name;
    if (rest.length < length || memcmp(rest.data, prefix, length) != 0) continue;
    rest = (base_str){rest.data + length, rest.length - length};
    if (base_str_equal(rest, name)) return &e->sections[i];
  }
  return NULL;
}

static size_t size_of(const elf *e, const char *prefix, base_str name) {
  const section *s = find(e, prefix, name);
  return s ? (size_t)s->size : 0;
}

// ---- attributes ---------------------------------------------------------------------------------

typedef struct attribute {
  uint32_t kind, value;
  base_str bytes; // of a sized one
} attribute;

// The attribute at *at, which moves behind it; false at the end.
static bool next_attribute(base_str info, size_t *at, attribute *out) {
  base_str head;
  if (!slice(info, *at, 4, &head)) return false;
  const uint32_t format = (uint32_t)number(head, 0, 1), value = (uint32_t)number(head, 2, 2);
  *out = (attribute){.kind = (uint32_t)number(head, 1, 1),
                     .value = format == FORMAT_BYTE ? value & 0xff : value};
  *at += 4;
  if (format != FORMAT_SIZED) return true;
  if (!slice(info, *at, value, &out->bytes)) return false;
  *at += value;
  return true;
}

static uint32_t volume(base_str bytes) {
  uint64_t threads = 1;
  for (size_t i = 0; i < 3; i++) {
    threads *= word(bytes, 4 * i);
    if (threads > UINT32_MAX) return UINT32_MAX;
  }
  return (uint32_t)threads;
}

static void read_own_info(base_str info, cuda_kernel_resources *k) {
  attribute a;
  for (size_t at = 0; next_attribute(info, &at, &a);) {
    if (a.kind == INFO_MAX_THREADS || a.kind == INFO_REQUIRED_THREADS) {
      k->max_threads = volume(a.bytes);
    } else if (a.kind == INFO_BARRIERS) {
      k->barriers = a.value;
    }
  }
}

static void read_common_info(base_str info, uint32_t symbol, cuda_kernel_resources *k) {
  attribute a;
  for (size_t at = 0; next_attribute(info, &at, &a);) {
    if (a.bytes.length < 8 || word(a.bytes, 0) != symbol) continue;
    const uint32_t value = word(a.bytes, 4);
    if (a.kind == INFO_REGISTERS)
      k->registers = value;
    else if ((a.kind == INFO_FRAME_SIZE || a.kind == INFO_MIN_STACK_SIZE) && value > k->stack_bytes)
      k->stack_bytes = value;
  }
}

// ---- kernels ------------------------------------------------------------------------------------

static cuda_kernel_resources read_kernel(const elf *e, base_str name, uint32_t symbol) {
  cuda_kernel_resources k = {.name = name};
  const section *common = find(e, ".nv.info", BASE_STR(""));
  const section *own = find(e, ".nv.info.", name);
  if (common) read_common_info(common->bytes, symbol, &k);
  if (own) read_own_info(own->bytes, &k);
  k.static_shared_bytes = size_of(e, ".nv.shared.", name);
  if (find(e, ".nv.shared.reserved.", BASE_STR("0")) && k.static_shared_bytes >= SHARED_RESERVED)
    k.static_shared_bytes -= SHARED_RESERVED;
  k.constant_bytes = size_of(e, ".nv.constant0.", name);
  return k;
}

static const char *read_kernels(base_arena *arena, const elf *e, cuda_cubin *out) {
  const section *symbols = NULL;
  for (uint32_t i = 0; i < e->count && symbols == NULL; i++)
    if (e->sections[i].type == SECTION_SYMBOLS) symbols = &e->sections[i];
  if (symbols == NULL || symbols->link >= e->count) return "it has no table of symbols";
  const base_str names = e->sections[symbols->link].bytes, table = symbols->bytes;
  BASE_VECTOR(cuda_kernel_resources) kernels = {0};
  for (size_t at = 0; at + SYMBOL_SIZE <= table.length; at += SYMBOL_SIZE) {
    const uint32_t info = (uint32_t)number(table, at + 4, 1);
    if ((info & 0xf) != SYMBOL_FUNCTION || !(number(table, at + 5, 1) & SYMBOL_ENTRY)) continue;
    const base_str name = text_at(names, word(table, at));
    const cuda_kernel_resources k = read_kernel(e, name, (uint32_t)(at / SYMBOL_SIZE));
    if (name.length == 0 || k.registers == 0) return "it does not say what its kernels take";
    base_push(arena, &kernels, k);
  }
  out->kernels = kernels.data;
  out->kernel_count = kernels.count;
  return NULL;
}

bool cuda_cubin_read(base_arena *arena, base_str file, cuda_cubin *out, base_str *why) {
  elf e = {.file = file};
  *out = (cuda_cubin){0};
  const char *fault = read_sections(arena, &e);
  if (fault == NULL) {
    const uint32_t flags = word(file, 48);
    const bool wide = number(file, 7, 1) == ABI_WITH_WIDE_FLAGS; // CUDA 13
    out->capability = (wide ? flags >> 8 : flags) & 0xff;
    fault = read_kernels(arena, &e, out);
  }
  if (fault) *why = base_str_format(arena, "this is not a sound cubin: %s", fault);
  return fault == NULL;
}
