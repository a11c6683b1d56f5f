// The .npy reader meets files from anywhere: what NumPy writes is read back, and everything else is
// refused with the right reason. Both kinds of file are tried, since a pipe does not tell its size
// and a regular file does.

// It belongs to the program, so no library has it.
#include "tools/npy.c" // NOLINT(bugprone-suspicious-include)

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// A file of these bytes, positioned at the start.
static FILE *file_of(const void *bytes, size_t length, bool regular) {
  FILE *file = regular ? tmpfile() : fmemopen((void *)bytes, length, "r");
  assert_non_null(file);
  if (regular) {
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fseek(file, 0, SEEK_SET), 0);
  }
  return file;
}

// A .npy image: prefix, header of the given version, data.
static size_t image(char *out, int version, const char *header, const void *data,
                    size_t data_length) {
  size_t length = strlen(header), at = 0;
  memcpy(out, "\x93NUMPY", 6);
  out[6] = (char)version;
  out[7] = 0;
  at = 8;
  for (int i = 0; i < (version == 1 ? 2 : 4); i++)
    out[at++] = (char)(length >> (8 * i));
  memcpy(out + at, header, length);
  memcpy(out + at + length, data, data_length);
  return at + length + data_length;
}

static bool read_image(int version, const char *header, const void *data, size_t length,
                       bool regular, npy_array *array, npy_error *error) {
  static char bytes[1 << 17];
  assert_true(strlen(header) + length + 16 < sizeof bytes);
  FILE *file = file_of(bytes, image(bytes, version, header, data, length), regular);
  bool good = npy_read(file, array, error);
  fclose(file);
  return good;
}

static void expect_refusal(int version, const char *header, size_t length, const char *reason) {
  static const char data[64];
  for (int regular = 0; regular < 2; regular++) {
    npy_array array;
    npy_error error = {""};
    if (read_image(version, header, data, length, regular, &array, &error))
      fail_msg("was read: %s", header);
    if (!strstr(error.text, reason))
      fail_msg("%s: expected '%s', found '%s'", header, reason, error.text);
  }
}

// ---- what is read -------------------------------------------------------------------------------

static void test_versions_and_spellings(void **state) {
  (void)state;
  static const char *const headers[] = {
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
      "{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}",
      "{ 'fortran_order' : False , 'descr':'<f4','shape':( 2L , 3L , ) , }\n\n",
  };
  const float data[6] = {0, 1, 2, 3, 4, 5};
  for (int version = 1; version <= 3; version++) {
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
      npy_array array;
      npy_error error;
      if (!read_image(version, headers[i], data, sizeof data, i & 1, &array, &error))
        fail_msg("%s", error.text);
      assert_int_equal(array.type, NPY_F4);
      assert_int_equal(array.rank, 2);
      assert_int_equal(array.shape[0], 2);
      assert_int_equal(array.shape[1], 3);
      assert_int_equal(array.strides[0], 3);
      assert_int_equal(array.strides[1], 1);
      assert_memory_equal(array.data, data, sizeof data);
      npy_free(&array);
    }
  }
}

static void test_fortran_order_only_changes_strides(void **state) {
  (void)state;
  const uint16_t data[6] = {0, 1, 2, 3, 4, 5};
  npy_array array;
  npy_error error;
  assert_true(read_image(1, "{'descr': '|V2', 'fortran_order': True, 'shape': (1, 2, 3)}", data,
                         sizeof data, true, &array, &error));
  assert_int_equal(array.type, NPY_V2);
  assert_int_equal(array.strides[0], 1);
  assert_int_equal(array.strides[1], 1);
  assert_int_equal(array.strides[2], 2);
  npy_free(&array);
}

static void test_scalars_and_empty_arrays(void **state) {
  (void)state;
  npy_array array;
  npy_error error;
  assert_true(read_image(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "\0\0\x80\x3f",
                         4, true, &array, &error));
  assert_int_equal(array.rank, 0);
  assert_true(*(float *)array.data == 1.0f);
  npy_free(&array);
  assert_true(read_image(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 7)}", "", 0,
                         false, &array, &error));
  assert_int_equal(array.shape[1], 7);
  assert_null(array.data);
}

static void test_written_headers_are_read_back(void **state) {
  (void)state;
  static const int64_t shape[NPY_MAX_RANK] = {1, 0, INT64_MAX / 10, 3, 4, 5, 1, 2};
  for (uint32_t rank = 0; rank <= NPY_MAX_RANK; rank++) {
    FILE *file = tmpfile();
    assert_true(npy_write_header(file, NPY_U2, rank, shape));
    if (rank < 2) assert_int_equal(fwrite("\1\2", 1, 2, file), 2);
    assert_int_equal(ftell(file) % 64, rank < 2 ? 2 : 0);
    assert_int_equal(fseek(file, 0, SEEK_SET), 0);
    npy_array array;
    npy_error error;
    bool good = npy_read(file, &array, &error);
    fclose(file);
    if (rank >= 5) { // empty, but its strides would overflow
      assert_false(good);
      assert_non_null(strstr(error.text, "63 bits"));
      continue;
    }
    if (!good) fail_msg("rank %u: %s", rank, error.text);
    assert_int_equal(array.type, NPY_U2);
    assert_int_equal(array.rank, rank);
    for (uint32_t i = 0; i < rank; i++)
      assert_int_equal(array.shape[i], shape[i]);
    npy_free(&array);
  }
}

// ---- what is refused ----------------------------------------------------------------------------

#define DICT(DESCR, ORDER, SHAPE)                                                                  \
  "{'descr': " DESCR ", 'fortran_order': " ORDER ", 'shape': " SHAPE "}"

static void test_types_are_refused_with_the_cure(void **state) {
  (void)state;
  expect_refusal(1, DICT("'<f8'", "False", "(1,)"), 8, "convert it with array.astype('<f4')");
  expect_refusal(1, DICT("'>f4'", "False", "(1,)"), 4, "big-endian dtype '>f4'");
  expect_refusal(1, DICT("'<i4'", "False", "(1,)"), 4, "dtype '<i4'; expected '<f4'");
  expect_refusal(1, DICT("'|O'", "False", "(1,)"), 4, "dtype '|O'");
  expect_refusal(1, DICT("'<f4<f4<f4<f4<f4<f4'", "False", "(1,)"), 4, "too long");
  expect_refusal(1, DICT("[('a', '<f4')]", "False", "(1,)"), 4, "structured");
}

static void test_damaged_headers(void **state) {
  (void)state;
  static const struct {
    const char *header, *reason;
  } cases[] = {
      {"", "it ends where '{'"},
      {"{", "it ends where a key"},
      {"{}", "no 'descr'"},
      {"[1]", "expected '{', found '['"},
      {"{'descr': '<f4', 'fortran_order': False}", "no 'shape'"},
      {"{'descr': '<f4', 'shape': (1,)}", "no 'fortran_order'"},
      {"{'descr': '<f4', 'descr': '<f4'}", "'descr' is there twice"},
      {"{'descr': '<f4', 'order': False}", "unknown key 'order'"},
      {"{'descr': '<f4", "a quote is not closed"},
      {"{'a_key_that_is_much_too_long': 1}", "too long"},
      {"{'descr' '<f4'}", "expected ':'"},
      {"{'descr': <f4}", "expected a dtype in quotes"},
      {DICT("'<f4'", "false", "(1,)"), "expected True or False"},
      {DICT("'<f4'", "False", "(1)"), "expected a comma"},
      {DICT("'<f4'", "False", "(1 2)"), "expected a comma"},
      {DICT("'<f4'", "False", "(,)"), "expected a size"},
      {DICT("'<f4'", "False", "1"), "a shape in parentheses"},
      {"{'shape': (1,", "it ends where a size"},
      {DICT("'<f4'", "False", "(1.5,)"), "expected a comma"},
      {DICT("'<f4'", "False", "(-1,)"), "negative size"},
      {DICT("'<f4'", "False", "(99999999999999999999,)"), "beyond 63 bits"},
      {DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), "more than 8 axes"},
      {DICT("'<f4'", "False", "(1,)") " x", "expected nothing more"},
      {DICT("'<f4'", "False", "(1,)") "}", "expected nothing more"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int version = 1; version <= 3; version++)
      expect_refusal(version, cases[i].header, 4, cases[i].reason);
}

static void test_sizes_that_overflow(void **state) {
  (void)state;
  expect_refusal(1, DICT("'<f4'", "False", "(4611686018427387904, 2)"), 4, "more than 63 bits");
  expect_refusal(1, DICT("'<f4'", "False", "(4611686018427387904,)"), 4, "more than 63 bits");
  expect_refusal(1, DICT("'<f4'", "True", "(0, 4611686018427387904, 2)"), 0, "more than 63 bits");
}

static void test_data_of_the_wrong_length(void **state) {
  (void)state;
  expect_refusal(1, DICT("'<f4'", "False", "(3,)"), 11, "truncated");
  expect_refusal(1, DICT("'<f4'", "False", "(3,)"), 0, "truncated");
  expect_refusal(1, DICT("'<f4'", "False", "(3,)"), 13, "too long");
  expect_refusal(1, DICT("'<f4'", "False", "(0,)"), 1, "too long");
}

// A regular file is never asked to fill more memory than it can.
static void test_huge_shape_in_a_small_file(void **state) {
  (void)state;
  npy_array array;
  npy_error error;
  assert_false(
      read_image(1, DICT("'<f4'", "False", "(1000000000000000,)"), "", 0, true, &array, &error));
  assert_non_null(strstr(error.text, "needs 4000000000000000 bytes of data, the file has 0"));
}

static void expect_refused_bytes(const char *bytes, size_t length, const char *reason) {
  FILE *file = file_of(bytes, length, true);
  npy_array array;
  npy_error error;
  assert_false(npy_read(file, &array, &error));
  fclose(file);
  if (!strstr(error.text, reason)) fail_msg("expected '%s', found '%s'", reason, error.text);
}

static void test_other_files(void **state) {
  (void)state;
#define BYTES(text) text, sizeof text - 1
  expect_refused_bytes(BYTES(""), "not a .npy file");
  expect_refused_bytes(BYTES("\x93NUM"), "not a .npy file");
  expect_refused_bytes(BYTES("PK\3\4 an .npz archive"), "not a .npy file");
  expect_refused_bytes(BYTES("\x93NUMPY\4\0"), "format version 4.0");
  expect_refused_bytes(BYTES("\x93NUMPY\0\0"), "format version 0.0");
  expect_refused_bytes(BYTES("\x93NUMPY\1\0\5"), "truncated");
  expect_refused_bytes(BYTES("\x93NUMPY\1\0\xff\0{'descr'"), "truncated");
  expect_refused_bytes(BYTES("\x93NUMPY\2\0\xff\xff\xff\xff{"), "a header of 4294967295 bytes");
  expect_refused_bytes(BYTES("\x93NUMPY\1\0\2\0{\0"), "zero byte");
#undef BYTES
}

// Every prefix of a good file, and every single byte of it changed: refused or read, never a crash.
static void test_prefixes_and_flipped_bytes(void **state) {
  (void)state;
  char bytes[256];
  size_t length = image(bytes, 1, DICT("'<f4'", "False", "(2, 1)"), "12345678", 8);
  for (size_t i = 0; i < length; i++) {
    expect_refused_bytes(bytes, i, "");
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (char)(1 << bit);
      FILE *file = file_of(bytes, length, bit & 1);
      npy_array array;
      npy_error error;
      if (npy_read(file, &array, &error)) npy_free(&array);
      fclose(file);
      bytes[i] ^= (char)(1 << bit);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions_and_spellings),
      cmocka_unit_test(test_fortran_order_only_changes_strides),
      cmocka_unit_test(test_scalars_and_empty_arrays),
      cmocka_unit_test(test_written_headers_are_read_back),
      cmocka_unit_test(test_types_are_refused_with_the_cure),
      cmocka_unit_test(test_damaged_headers),
      cmocka_unit_test(test_sizes_that_overflow),
      cmocka_unit_test(test_data_of_the_wrong_length),
      cmocka_unit_test(test_huge_shape_in_a_small_file),
      cmocka_unit_test(test_other_files),
      cmocka_unit_test(test_prefixes_and_flipped_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
