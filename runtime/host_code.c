// Code for the host as bytes (see host_code.h).
#include "runtime/host_code.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const base_loc nowhere;

// ---- may it run here? ---------------------------------------------------------------------------

static base_status refuse(const rt_host_image *image, const char *what, const base_text *names,
                          base_diag *diag) {
  base_error_status(diag, BASE_UNSUPPORTED, nowhere,
                    "the code was compiled for the CPU %s, and %s: %.*s", image->cpu, what,
                    BASE_FMT(base_text_str(names)));
  base_hint(diag, "compile it again on this machine, or for a CPU with less, such as "
                  "--mcpu x86-64-v3 or x86-64-v2");
  return BASE_UNSUPPORTED;
}

base_status rt_host_check(const rt_host_image *image, const rt_cpu *cpu, base_diag *diag) {
  if (strcmp(image->abi, RT_HOST_ABI) != 0 || image->abi[0] == 0) {
    base_error_status(diag, BASE_UNSUPPORTED, nowhere, "the code is for %s, and this process %s%s",
                      image->abi, RT_HOST_ABI[0] ? "is " : "can load none", RT_HOST_ABI);
    base_hint(diag, "compile it again on a machine of this kind");
    return BASE_UNSUPPORTED;
  }
  base_text absent = {.arena = diag->arena}, unknown = {.arena = diag->arena};
  for (const char *at = image->features; *at; at += strspn(at, ",")) {
    base_str name = {at, strcspn(at, ",")};
    at += name.length;
    const rt_cpu_feature found = rt_cpu_find(cpu, name);
    base_text *list = found == RT_CPU_ABSENT ? &absent : found == RT_CPU_UNKNOWN ? &unknown : NULL;
    if (list != NULL) base_text_printf(list, "%s%.*s", list->length ? ", " : "", BASE_FMT(name));
  }
  if (absent.length > 0) return refuse(image, "this processor lacks", &absent, diag);
  if (unknown.length > 0)
    return refuse(image, "this Fathom cannot tell whether the processor has", &unknown, diag);
  return BASE_OK;
}

// ---- loading ------------------------------------------------------------------------------------

static base_status report(base_diag *diag, const char *what) {
  const char *why = strerror(errno);
  base_error_status(diag, BASE_UNSUPPORTED, nowhere, "memory for the code could not be %s: %s",
                    what, why);
  base_hint(diag, "the system has to allow memory that is written first and executed then");
  return BASE_UNSUPPORTED;
}

// ISO C has no cast from void * to a function.
static void set_code(const rt_host_code *code, const rt_host_entry *entry, rt_kernel *kernel) {
  void *body = (char *)code->address + entry->body, *prepare = NULL;
  if (entry->prepare != RT_NO_ENTRY) prepare = (char *)code->address + entry->prepare;
  memcpy(&kernel->body, &body, sizeof body);
  memcpy(&kernel->prepare, &prepare, sizeof prepare);
}

base_status rt_host_code_map(const rt_host_image *image, rt_kernel *kernels, rt_host_code *out,
                             base_diag *diag) {
  *out = (rt_host_code){0};
  if (image->code.length == 0) return BASE_OK; // a graph without kernels
  void *address =
      mmap(NULL, image->code.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return report(diag, "had");
  *out = (rt_host_code){address, image->code.length};
  memcpy(address, image->code.data, image->code.length);
  if (mprotect(address, out->bytes, PROT_READ | PROT_EXEC) != 0) {
    base_status status = report(diag, "made executable");
    rt_host_code_unmap(out);
    return status;
  }
  for (uint32_t i = 0; i < image->entry_count; i++)
    set_code(out, &image->entries[i], &kernels[i]);
  return BASE_OK;
}

void rt_host_code_unmap(rt_host_code *code) {
  if (code->address != NULL) munmap(code->address, code->bytes);
  *code = (rt_host_code){0};
}
