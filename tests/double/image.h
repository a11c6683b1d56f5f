// What the driver's double reads in an image: of what kind it is, whether it would load, which
// kernels it has.
#ifndef FATHOM_TESTS_DOUBLE_IMAGE_H
#define FATHOM_TESTS_DOUBLE_IMAGE_H

#include "double/double.h"

typedef enum image_kind { IMAGE_CUBIN, IMAGE_PTX, IMAGE_TEXT } image_kind;

// As cuModuleLoadData judges it, on a device sm_`arch` with a driver of that version. `log`, which
// has room for `room` bytes, gets a line when there is something to say.
CUresult image_judge(const char *image, int arch, int version, image_kind *kind, char *log,
                     size_t room);
// The rest is for images that were judged to load.
size_t image_length(const char *image, image_kind kind);
// What the emulator is to run; NULL for code of a real GPU.
const char *image_text(const char *image, image_kind kind);
// Whether a cubin or PTX has a kernel of that name. *parameter_bytes: of its first parameter, 0
// when it is not told.
bool image_has_kernel(const char *image, image_kind kind, const char *name,
                      size_t *parameter_bytes);

#endif
