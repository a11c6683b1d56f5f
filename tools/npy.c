// npy: reading and writing .npy files. A file comes from anywhere, so nothing in it is believed:
// each length is checked before it is used, and memory is only asked for once the file is known to
// be able to fill it.
#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "arrays are read and written as they lie");

enum { MAX_HEADER = 65535, MAX_DESCR = 15, PREFIX = 8 };

static const struct {
  const char *descr;
  size_t size;
} types[NPY_TYPE_COUNT] = {
    [NPY_F4] = {"<f4", 4}, [NPY_F2] = {"<f2", 2}, [NPY_U2] = {"<u2", 2},
    [NPY_V2] = {"|V2", 2}, [NPY_U1] = {"|u1", 1},
};

const char *npy_type_descr(npy_type type) {
  return types[type].descr;
}
size_t npy_type_size(npy_type type) {
  return types[type].size;
}

static bool fail(npy_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(npy_error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return false;
}

// ---- the header's dictionary --------------------------------------------------------------------
// A Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order, then
// padding.

typedef struct header {
  char descr[MAX_DESCR + 1];
  bool fortran;
  uint32_t rank;
  int64_t shape[NPY_MAX_RANK];
} header;

// What is left of the dictionary's text, which is 0-terminated.
typedef struct reader {
  const char *at;
  npy_error *error;
} reader;

static void skip_space(reader *in) {
  while (isspace((unsigned char)*in->at))
    in->at++;
}

static bool accept(reader *in, char c) {
  skip_space(in);
  if (*in->at != c) return false;
  in->at++;
  return true;
}

static bool unexpected(reader *in, const char *wanted) {
  if (*in->at == '\0') return fail(in->error, "damaged header: it ends where %s should be", wanted);
  char found = isprint((unsigned char)*in->at) ? *in->at : '?';
  return fail(in->error, "damaged header: expected %s, found '%c'", wanted, found);
}

static bool read_string(reader *in, char *text, size_t capacity, const char *wanted) {
  char quote = accept(in, '\'') ? '\'' : accept(in, '"') ? '"' : 0;
  if (!quote) return unexpected(in, wanted);
  size_t length = strcspn(in->at, quote == '"' ? "\"" : "'");
  if (in->at[length] != quote) return fail(in->error, "damaged header: a quote is not closed");
  if (length >= capacity)
    return fail(in->error, "damaged header: '%.*s...' is too long for %s", (int)capacity, in->at,
                wanted);
  memcpy(text, in->at, length);
  text[length] = '\0';
  in->at += length + 1;
  return true;
}

static bool read_descr(reader *in, header *out) {
  if (accept(in, '['))
    return fail(in->error, "a structured array; save one plain array per file, as dtype '<f4'");
  return read_string(in, out->descr, sizeof out->descr, "a dtype in quotes");
}

static bool read_order(reader *in, header *out) {
  static const struct {
    const char *word;
    bool value;
  } words[] = {{"True", true}, {"False", false}};
  skip_space(in);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i].word);
    if (strncmp(in->at, words[i].word, length) != 0) continue;
    in->at += length;
    out->fortran = words[i].value;
    return true;
  }
  return unexpected(in, "True or False");
}

static bool read_size(reader *in, int64_t *size) {
  if (accept(in, '-')) return fail(in->error, "damaged header: a negative size in the shape");
  if (!isdigit((unsigned char)*in->at)) return unexpected(in, "a size");
  *size = 0;
  for (; isdigit((unsigned char)*in->at); in->at++)
    if (__builtin_mul_overflow(*size, 10, size) ||
        __builtin_add_overflow(*size, *in->at - '0', size))
      return fail(in->error, "a size in the shape is beyond 63 bits");
  if (*in->at == 'L') in->at++; // as Python 2 wrote long integers
  return true;
}

static bool read_shape(reader *in, header *out) {
  if (!accept(in, '(')) return unexpected(in, "a shape in parentheses");
  for (out->rank = 0; !accept(in, ')'); out->rank++) {
    if (out->rank == NPY_MAX_RANK) return fail(in->error, "more than %d axes", NPY_MAX_RANK);
    if (!read_size(in, &out->shape[out->rank])) return false;
    // Only the last comma may be missing, and not behind a lone size: (3) is a number, (3,) a
    // shape.
    if (accept(in, ',')) continue;
    if (out->rank == 0 || !accept(in, ')')) return unexpected(in, "a comma");
    out->rank++;
    return true;
  }
  return true;
}

static const struct {
  const char *key;
  bool (*read)(reader *in, header *out);
} entries[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
enum { ENTRY_COUNT = sizeof entries / sizeof *entries };

static bool read_entry(reader *in, header *out, bool *seen) {
  char key[sizeof "fortran_order"];
  if (!read_string(in, key, sizeof key, "a key in quotes")) return false;
  size_t i = 0;
  while (i < ENTRY_COUNT && strcmp(key, entries[i].key) != 0)
    i++;
  if (i == ENTRY_COUNT) return fail(in->error, "damaged header: unknown key '%s'", key);
  if (seen[i]) return fail(in->error, "damaged header: key '%s' is there twice", key);
  if (!accept(in, ':')) return unexpected(in, "':'");
  seen[i] = true;
  return entries[i].read(in, out);
}

static bool parse_header(const char *text, size_t length, header *out, npy_error *error) {
  if (strlen(text) != length) return fail(error, "damaged header: it holds a zero byte");
  reader in = {text, error};
  bool seen[ENTRY_COUNT] = {false};
  if (!accept(&in, '{')) return unexpected(&in, "'{'");
  while (!accept(&in, '}')) {
    if (!read_entry(&in, out, seen)) return false;
    if (accept(&in, ',')) continue;
    if (!accept(&in, '}')) return unexpected(&in, "',' or '}'");
    break;
  }
  if (!accept(&in, '\0')) return unexpected(&in, "nothing more");
  for (size_t i = 0; i < ENTRY_COUNT; i++)
    if (!seen[i]) return fail(error, "damaged header: no '%s'", entries[i].key);
  return true;
}

// ---- reading ------------------------------------------------------------------------------------

static bool read_bytes(FILE *file, void *data, size_t size, const char *what, npy_error *error) {
  size_t got = fread(data, 1, size, file);
  if (got == size) return true;
  if (ferror(file)) return fail(error, "cannot be read: %s", strerror(errno));
  return fail(error, "truncated: %zu bytes of %s expected, %zu found", size, what, got);
}

static bool read_header(FILE *file, header *out, npy_error *error) {
  unsigned char prefix[PREFIX], size[4] = {0};
  bool magic = fread(prefix, 1, PREFIX, file) == PREFIX && memcmp(prefix, "\x93NUMPY", 6) == 0;
  if (ferror(file)) return fail(error, "cannot be read: %s", strerror(errno));
  if (!magic) return fail(error, "not a .npy file; save it with numpy.save");
  unsigned version = prefix[6];
  if (version < 1 || version > 3)
    return fail(error, "format version %u.%u; 1.0, 2.0 and 3.0 can be read", version, prefix[7]);
  if (!read_bytes(file, size, version == 1 ? 2 : 4, "header", error)) return false;
  size_t length = size[0] | size[1] << 8 | size[2] << 16 | (size_t)size[3] << 24;
  if (length > MAX_HEADER)
    return fail(error, "a header of %zu bytes; at most %d can be read", length, MAX_HEADER);
  char *text = malloc(length + 1);
  if (!text) return fail(error, "no memory for a header of %zu bytes", length);
  text[length] = '\0';
  bool good =
      read_bytes(file, text, length, "header", error) && parse_header(text, length, out, error);
  free(text);
  return good;
}

static bool find_type(const char *descr, npy_type *type, npy_error *error) {
  for (*type = 0; *type < NPY_TYPE_COUNT; ++*type)
    if (strcmp(descr, types[*type].descr) == 0) return true;
  if (descr[0] == '>')
    return fail(error, "big-endian dtype '%s'; convert it with array.astype('<f4')", descr);
  if (strcmp(descr, "<f8") == 0)
    return fail(error, "dtype '<f8' (double); convert it with array.astype('<f4')");
  return fail(
      error,
      "dtype '%s'; expected '<f4', '<f2', '<u2', '|V2' or '|u1': convert it with array.astype",
      descr);
}

// Strides, and the size of the data. Empty axes count as one here, so that no stride overflows
// either.
static bool measure(const header *head, npy_array *array, size_t *bytes, npy_error *error) {
  int64_t extent = 1, total;
  bool empty = false;
  for (uint32_t i = 0; i < head->rank; i++) {
    uint32_t axis = head->fortran ? i : head->rank - 1 - i;
    int64_t size = head->shape[axis];
    array->strides[axis] = extent;
    empty |= size == 0;
    if (__builtin_mul_overflow(extent, size > 1 ? size : 1, &extent))
      return fail(error, "the sizes in the shape multiply to more than 63 bits");
  }
  if (__builtin_mul_overflow(extent, (int64_t)npy_type_size(array->type), &total))
    return fail(error, "the sizes in the shape multiply to more than 63 bits");
  *bytes = empty ? 0 : (size_t)total;
  return true;
}

// Regular files tell their size, so a wrong shape is found before memory is asked for.
static bool check_size(FILE *file, size_t bytes, npy_error *error) {
  struct stat status;
  off_t at = ftello(file);
  if (at < 0 || fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode)) return true;
  size_t left = status.st_size > at ? (size_t)(status.st_size - at) : 0;
  if (left == bytes) return true;
  return fail(error, "%s: the header's shape needs %zu bytes of data, the file has %zu",
              left < bytes ? "truncated" : "too long", bytes, left);
}

bool npy_read(FILE *file, npy_array *array, npy_error *error) {
  header head = {0};
  npy_array out = {0};
  size_t bytes = 0;
  if (!read_header(file, &head, error) || !find_type(head.descr, &out.type, error)) return false;
  if (!measure(&head, &out, &bytes, error) || !check_size(file, bytes, error)) return false;
  out.rank = head.rank;
  memcpy(out.shape, head.shape, sizeof out.shape);
  if (bytes > 0 && !(out.data = malloc(bytes)))
    return fail(error, "no memory for %zu bytes", bytes);
  bool good = read_bytes(file, out.data, bytes, "data", error);
  if (good && fgetc(file) != EOF)
    good = fail(error, "too long: bytes follow the %zu of data", bytes);
  if (good)
    *array = out;
  else
    free(out.data);
  return good;
}

void npy_free(npy_array *array) {
  free(array->data);
  array->data = NULL;
}

// ---- writing ------------------------------------------------------------------------------------

bool npy_write_header(FILE *file, npy_type type, uint32_t rank, const int64_t *shape) {
  char sizes[NPY_MAX_RANK * 22 + 1] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < rank; i++)
    used += (size_t)sprintf(sizes + used, "%s%" PRId64 "%s", i ? " " : "", shape[i],
                            i + 1 < rank || rank == 1 ? "," : "");
  char text[512];
  int length =
      snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
               types[type].descr, sizes);
  // Spaces and a newline bring the data to a multiple of 64 bytes.
  size_t unpadded = PREFIX + 2 + (size_t)length + 1;
  int padding = (int)((64 - unpadded % 64) % 64);
  size_t total = (size_t)length + (size_t)padding + 1;
  unsigned char size[2] = {total & 255, (unsigned char)(total >> 8)};
  return fwrite("\x93NUMPY\x01\x00", 1, PREFIX, file) == PREFIX && fwrite(size, 1, 2, file) == 2 &&
         fprintf(file, "%s%*s\n", text, padding, "") == (int)total;
}
