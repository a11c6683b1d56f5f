// npy: NumPy's .npy array files (format versions 1, 2 and 3; little-endian host).
//
// Specification: numpy/lib/format.py, "NPY format". Only the types kernels use are read: '<f4',
// '<f2', and patterns of 16 bits as '<u2' or '|V2' (how bfloat16 arrays are saved), of 8 bits as '|u1'.
// Every other file is refused with the reason, whatever its bytes are.
#ifndef FATHOM_NPY_H
#define FATHOM_NPY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum npy_type { NPY_F4, NPY_F2, NPY_U2, NPY_V2, NPY_U1, NPY_TYPE_COUNT } npy_type;

const char *npy_type_descr(npy_type type); // "<f4"
size_t npy_type_size(npy_type type);       // bytes

enum { NPY_MAX_RANK = 8 };

typedef struct npy_array {
  npy_type type;
  uint32_t rank;
  int64_t shape[NPY_MAX_RANK];
  int64_t strides[NPY_MAX_RANK]; // in elements; the file's order, C or Fortran
  void *data;                    // from malloc; NULL when there is no element
} npy_array;

typedef struct npy_error {
  char text[256]; // what was expected, what was found, what to do
} npy_error;

// Reads one array and expects the end of the file after it. Never allocates more than a regular
// file can fill. False: *error says why and *array is untouched.
bool npy_read(FILE *file, npy_array *array, npy_error *error);
void npy_free(npy_array *array);

// Writes the header (version 1, C order) of an array whose elements follow. False: a write failed.
bool npy_write_header(FILE *file, npy_type type, uint32_t rank, const int64_t *shape);

#endif
