// image: see image.h. Cubins are ELF files of NVIDIA's machine; PTX is text.
#include "double/image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "double/cubin_writer.h"

enum { MACHINE_CUDA = 190, OSABI_CUDA_13 = 0x41 };

// ---- cubins -------------------------------------------------------------------------------------

static const Elf64_Shdr *sections(const char *image) {
  return (const Elf64_Shdr *)(image + ((const Elf64_Ehdr *)image)->e_shoff);
}

static const char *section_name(const char *image, const Elf64_Shdr *section) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  return image + sections(image)[header->e_shstrndx].sh_offset + section->sh_name;
}

// The compute capability that a cubin is for: 90 for sm_90.
static int cubin_arch(const Elf64_Ehdr *header) {
  const bool wide = header->e_ident[EI_OSABI] == OSABI_CUDA_13;
  return (int)(wide ? header->e_flags >> 8 : header->e_flags) & 0xff;
}

static CUresult judge_cubin(const char *image, int arch) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  if (header->e_machine != MACHINE_CUDA || header->e_shentsize != sizeof(Elf64_Shdr) ||
      header->e_shstrndx >= header->e_shnum)
    return CUDA_ERROR_INVALID_IMAGE;
  const int made_for = cubin_arch(header);
  return made_for / 10 == arch / 10 && made_for <= arch ? CUDA_SUCCESS
                                                        : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static const Elf64_Shdr *find_section(const char *image, const char *prefix, const char *name) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  const size_t length = strlen(prefix);
  for (int i = 0; i < header->e_shnum; i++) {
    const Elf64_Shdr *section = &sections(image)[i];
    const char *full = section_name(image, section);
    if (strncmp(full, prefix, length) == 0 && strcmp(full + length, name) == 0) return section;
  }
  return NULL;
}

static size_t cubin_length(const char *image) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  size_t end = header->e_shoff + (size_t)header->e_shnum * sizeof(Elf64_Shdr);
  for (int i = 0; i < header->e_shnum; i++) {
    const Elf64_Shdr *section = &sections(image)[i];
    const size_t section_end =
        section->sh_offset + (section->sh_type == SHT_NOBITS ? 0 : section->sh_size);
    if (section_end > end) end = section_end;
  }
  return end;
}

// ---- PTX ----------------------------------------------------------------------------------------

static CUresult judge_ptx(const char *image, int arch, int version, char *log, size_t room) {
  unsigned major = 0, minor = 0, target = 0;
  const char *target_line = strstr(image, ".target sm_");
  if (sscanf(strstr(image, ".version"), ".version %u.%u", &major, &minor) != 2 ||
      target_line == NULL || sscanf(target_line, ".target sm_%u", &target) != 1) {
    snprintf(log, room, "ptxas fatal : no .version and .target\n");
    return CUDA_ERROR_INVALID_PTX;
  }
  // PTX 7.y came with CUDA 11.y, 8.y with 12.y, 9.y with 13.y.
  const unsigned cuda = (unsigned)version;
  if (major > cuda / 1000 - 4 || (major == cuda / 1000 - 4 && minor > cuda % 1000 / 10)) {
    snprintf(log, room, "ptxas fatal : Unsupported .version %u.%u\n", major, minor);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  return target <= (unsigned)arch ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static bool ptx_has_kernel(const char *image, const char *name, size_t *parameter_bytes) {
  char entry[256];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  const char *found = strstr(image, entry);
  if (found == NULL) return false;
  const char *bracket = strpbrk(found, "[{");
  if (bracket && *bracket == '[') *parameter_bytes = strtoul(bracket + 1, NULL, 10);
  return true;
}

// ---- any ----------------------------------------------------------------------------------------

CUresult image_judge(const char *image, int arch, int version, image_kind *kind, char *log,
                     size_t room) {
  if (strncmp(image, DOUBLE_TEXT_MAGIC, strlen(DOUBLE_TEXT_MAGIC)) == 0) {
    *kind = IMAGE_TEXT;
    return CUDA_SUCCESS;
  }
  if (strncmp(image, ELFMAG, SELFMAG) == 0) {
    *kind = IMAGE_CUBIN;
    return judge_cubin(image, arch);
  }
  *kind = IMAGE_PTX;
  if (strstr(image, ".version") == NULL) return CUDA_ERROR_INVALID_IMAGE;
  return judge_ptx(image, arch, version, log, room);
}

size_t image_length(const char *image, image_kind kind) {
  return kind == IMAGE_CUBIN ? cubin_length(image) : strlen(image) + 1;
}

const char *image_text(const char *image, image_kind kind) {
  if (kind == IMAGE_TEXT) return image + strlen(DOUBLE_TEXT_MAGIC);
  const Elf64_Shdr *section =
      kind == IMAGE_CUBIN ? find_section(image, DOUBLE_TEXT_SECTION, "") : NULL;
  return section ? image + section->sh_offset : NULL;
}

bool image_has_kernel(const char *image, image_kind kind, const char *name,
                      size_t *parameter_bytes) {
  *parameter_bytes = 0;
  return kind == IMAGE_CUBIN ? find_section(image, ".text.", name) != NULL
                             : ptx_has_kernel(image, name, parameter_bytes);
}
