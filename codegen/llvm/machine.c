// Target machines: which CPU, which features, how wide its vectors are.
#include <string.h>

#include <llvm-c/Target.h>

#include "codegen/llvm/cpu.h"

static void release_machine(void *object) {
  LLVMDisposeTargetMachine(object);
}
static void release_message(void *object) {
  LLVMDisposeMessage(object);
}

static const char *kept(base_arena *arena, char *message) {
  base_defer(arena, release_message, message);
  return message;
}

typedef struct named_cpu {
  const char *name;
  uint32_t width;
  const char *needs;
} named_cpu;

static const named_cpu cpus[] = {
#define CPU(name, width, needs) {name, width, needs},
#include "codegen/llvm/cpus.def"
#undef CPU
};
enum { CPU_COUNT = sizeof cpus / sizeof cpus[0] };

// NULL: not in the table.
static const named_cpu *find_named(const char *cpu) {
  for (size_t i = 0; i < CPU_COUNT; i++)
    if (strcmp(cpu, cpus[i].name) == 0) return &cpus[i];
  return NULL;
}

static void unknown_cpu(const char *cpu, base_diag *diag) {
  const char *names[CPU_COUNT];
  for (size_t i = 0; i < CPU_COUNT; i++)
    names[i] = cpus[i].name;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "unknown CPU '%s'", cpu);
  const char *nearest = base_nearest(base_str_from(cpu), names, CPU_COUNT);
  if (nearest)
    base_hint(diag, "did you mean '%s'?", nearest);
  else
    base_hint(
        diag,
        "use host, x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or LLVM's name of a 64-bit CPU, such as "
        "haswell, skylake-avx512, sapphirerapids, znver4");
}

static uint32_t featured_width(const char *features) {
  if (strstr(features, "+avx512vl")) return 16;
  return strstr(features, "+avx2") ? 8 : 4;
}

static bool host_runs(const char *needs) {
  const rt_cpu cpu = rt_cpu_read();
  for (const char *at = needs; *at; at += strspn(at, ",")) {
    base_str name = {at, strcspn(at, ",")};
    at += name.length;
    if (rt_cpu_find(&cpu, name) != RT_CPU_PRESENT) return false;
  }
  return true;
}

static bool find_target(base_arena *arena, const char *triple, LLVMTargetRef *target,
                        base_diag *diag) {
  char *message = NULL;
  if (!LLVMGetTargetFromTriple(triple, target, &message)) return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "LLVM has no target for %s: %s", triple,
                    kept(arena, message));
  return false;
}

void cpu_machine_start(void) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
}

bool cpu_machine_open(base_arena *arena, const char *cpu, cpu_machine *machine, base_diag *diag) {
  bool host = !cpu || !*cpu || strcmp(cpu, "host") == 0 || strcmp(cpu, "native") == 0;
  *machine = (cpu_machine){.triple = kept(arena, LLVMGetDefaultTargetTriple())};
  machine->x86 = strncmp(machine->triple, "x86_64", 6) == 0;
  machine->cpu = host ? kept(arena, LLVMGetHostCPUName()) : cpu;
  machine->features = host ? kept(arena, LLVMGetHostCPUFeatures()) : "";
  const named_cpu *named = host ? NULL : find_named(cpu);
  machine->needs = host ? machine->features : named ? named->needs : "";
  machine->width = host ? featured_width(machine->features) : named ? named->width : 0;
  machine->halves =
      !machine->x86 || (host ? strstr(machine->features, "+f16c") != NULL : machine->width > 4);
  machine->runs_here = host || (named && host_runs(named->needs));
  if (machine->width == 0 && machine->x86) {
    unknown_cpu(cpu, diag);
    return false;
  }
  if (machine->width == 0) machine->width = 4;
  LLVMTargetRef target;
  if (!find_target(arena, machine->triple, &target, diag)) return false;
  machine->target =
      LLVMCreateTargetMachine(target, machine->triple, machine->cpu, machine->features,
                              LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelDefault);
  base_defer(arena, release_machine, machine->target);
  return true;
}

void cpu_machine_describe(base_text *out) {
  base_diag diag;
  base_diag_init(&diag, out->arena, BASE_STR(""), BASE_STR(""));
  cpu_machine machine;
  if (!cpu_machine_open(out->arena, "host", &machine, &diag)) return;
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  base_text_printf(out, "llvm: %u.%u.%u\n", major, minor, patch);
  base_text_printf(out, "llvm cpu: %s (%s), %u f32 lanes\n", machine.cpu, machine.triple,
                   machine.width);
}

bool cpu_machine_identify(base_arena *arena, cg_identity *out) {
  base_diag diag;
  base_diag_init(&diag, arena, BASE_STR(""), BASE_STR(""));
  cpu_machine machine;
  if (!cpu_machine_open(arena, "host", &machine, &diag)) return false;
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  base_str digest =
      base_hash_hex(arena, base_hash_bytes(machine.features, strlen(machine.features)));
  *out = (cg_identity){
      .machine = base_str_format(arena, "%s, %u lanes, features %.8s", machine.cpu, machine.width,
                                 digest.data)
                     .data,
      .compiler = base_str_format(arena, "LLVM %u.%u.%u", major, minor, patch).data,
      .lanes = machine.width,
  };
  return true;
}
