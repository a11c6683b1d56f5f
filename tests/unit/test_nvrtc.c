// NVRTC: what is compiled, what is read about it, how errors look, what the cache does. Skipped where
// there is no NVRTC; what does not need one is tested everywhere. With FATHOM_NVRTC_TIME set, how
// long compiling takes is printed as well.
#include "codegen/cuda/nvrtc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/cuda/arch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

extern const char cuda_prelude_device[], cuda_prelude_common[];

typedef struct fixture {
  base_arena arena;
  base_diag diag;
  const cuda_nvrtc *nvrtc;
  char folder[64];
} fixture;

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  base_str why;
  base_arena_init(&f->arena, NULL);
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
  f->nvrtc = cuda_nvrtc_open(&f->arena, &why);
  if (f->nvrtc == NULL) print_message("%s\n", why.data);
  strcpy(f->folder, "/tmp/fathom-nvrtc-XXXXXX");
  *state = f;
  return mkdtemp(f->folder) ? 0 : -1;
}

static int teardown(void **state) {
  fixture *f = *state;
  const int result = system(base_str_format(&f->arena, "rm -r %s", f->folder).data);
  base_arena_reset(&f->arena);
  free(f);
  return result;
}

static fixture *need_nvrtc(void **state) {
  fixture *f = *state;
  if (f->nvrtc == NULL) skip();
  return f;
}

static void fail_with(fixture *f) {
  fail_msg("%s", base_diag_render(&f->diag).data);
}

static void expect_words(base_str text, const char *word) {
  if (strstr(text.data, word) == NULL) fail_msg("no '%s' in:\n%s", word, text.data);
}

static cuda_unit with_preludes(base_arena *arena, const char *name, const char *kernels) {
  return (cuda_unit){
      name, base_str_format(arena, "%s%s%s", cuda_prelude_device, cuda_prelude_common, kernels)};
}

static cuda_unit smoke_unit(base_arena *arena) {
  base_str kernels, why;
  const char *path = base_str_format(arena, "%s/prelude_smoke.cu", getenv("FATHOM_TEST_DATA")).data;
  if (base_file_read(arena, path, &kernels, &why) != BASE_OK) fail_msg("%s", why.data);
  return with_preludes(arena, "prelude_smoke.cu", kernels.data);
}

// A kernel with a constant of its own.
static cuda_unit small_unit(base_arena *arena, uint32_t number) {
  const char *text = base_str_format(arena,
                                     "extern \"C\" __global__ void __launch_bounds__(96)\n"
                                     "k%u(float *p) {\n  p[threadIdx.x] += %u.5f;\n}\n",
                                     number, number)
                         .data;
  return (cuda_unit){base_str_format(arena, "small%u.cu", number).data, base_str_from(text)};
}

static const cuda_kernel_resources *kernel(const cuda_binary *binary, const char *name) {
  for (uint32_t i = 0; i < binary->kernel_count; i++)
    if (base_str_equal(binary->kernels[i].name, base_str_from(name))) return &binary->kernels[i];
  fail_msg("no kernel %s", name);
  return NULL;
}

// ---- architectures ------------------------------------------------------------------------------

static void test_arch_names(void **state) {
  (void)state;
  static const struct {
    const char *asked, *name; // NULL: there is none
  } cases[] = {
      {"sm_90", "sm_90"}, {"sm_90a", "sm_90a"}, {"90", "sm_90"},        {"9.0a", "sm_90a"},
      {"8.6", "sm_86"},   {"12.0", "sm_120"},   {"sm_100f", "sm_100f"}, {"sm_120a", "sm_120a"},
      {"sm_80a", NULL},   {"sm_90f", NULL},     {"sm_90aa", NULL},      {"sm_91", NULL},
      {"sm_", NULL},      {"", NULL},           {"compute_90", NULL},   {"sm_4294967386", NULL},
      {"sm_90 ", NULL},   {"9.", NULL},         {"gfx942", NULL},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    cuda_arch arch;
    const bool found = cuda_arch_find(cases[i].asked, &arch);
    if (found != (cases[i].name != NULL)) fail_msg("'%s': %d", cases[i].asked, found);
    if (found) assert_string_equal(arch.name, cases[i].name);
  }
}

static void test_arch_facts(void **state) {
  (void)state;
  cuda_arch arch;
  assert_true(cuda_arch_find("sm_80", &arch));
  assert_true(arch.copy_async && arch.tensor_bf16 && !arch.bulk_copy && !arch.cluster);
  assert_int_equal(arch.shared_per_block, 163 << 10);
  assert_true(cuda_arch_find("sm_120", &arch));
  assert_true(arch.bulk_copy && arch.cluster && arch.dependent_launch && arch.tensor_fp8);
  assert_int_equal(arch.shared_per_block, 99 << 10);
  assert_int_equal(arch.shared_reserved, 1 << 10);
  assert_int_equal(arch.threads, 1536);
  assert_int_equal(arch.capability, 120);
}

// ---- opening ------------------------------------------------------------------------------------

static void test_open(void **state) {
  fixture *f = need_nvrtc(state);
  base_str why;
  assert_ptr_equal(cuda_nvrtc_open(&f->arena, &why), f->nvrtc);
  assert_true(f->nvrtc->major >= 11);
  assert_true(f->nvrtc->arch_count > 0);
  assert_non_null(strstr(f->nvrtc->path, "libnvrtc"));
  if (!cuda_nvrtc_probe(&f->arena, f->nvrtc, &why)) fail_msg("%s", why.data);
}

// Whatever it lists that is not older than sm_75.
static void test_listed_archs_are_known(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit unit = small_unit(&f->arena, 1);
  for (uint32_t i = 0; i < f->nvrtc->arch_count; i++) {
    if (f->nvrtc->archs[i] < 75 || f->nvrtc->archs[i] == 101) continue; // 101 became 110
    const char *name = base_str_format(&f->arena, "sm_%d", f->nvrtc->archs[i]).data;
    cuda_arch arch;
    if (!cuda_arch_find(name, &arch)) fail_msg("%s is not in arch.def", name);
    for (const char *suffix = arch.suffixes;; suffix++) {
      const char *full = base_str_format(&f->arena, "%s%.1s", name, suffix).data;
      cuda_binary binary;
      if (!cuda_compile_unit(&f->arena, f->nvrtc, full, &unit, &binary, &f->diag)) fail_with(f);
      if (*suffix == 0) break;
    }
  }
}

static void test_unknown_arch(void **state) {
  fixture *f = *state;
  cuda_nvrtc older = {.major = 11, .minor = 2, .arch_count = 3, .archs = {75, 80, 86}};
  assert_false(cuda_check_arch(&older, "sm_120", &f->diag));
  base_str text = base_diag_render(&f->diag);
  expect_words(text, "error: NVRTC 11.2 does not compile for the architecture sm_120\n");
  expect_words(text, "hint: it compiles for sm_75, sm_80, sm_86; the nearest is sm_86\n");
  assert_int_equal(f->diag.status, BASE_UNSUPPORTED);
  assert_false(cuda_check_arch(&older, "sm_99", &f->diag));
  expect_words(base_diag_render(&f->diag), "error: there is no GPU architecture 'sm_99'\n");
  assert_true(cuda_check_arch(&older, "sm_86", &f->diag));
}

// ---- what comes out -----------------------------------------------------------------------------

static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"};

// Of the first kernel whose account in the log has `before` ahead of a number and `after` behind it.
static uint32_t log_number(const cuda_binary *binary, const char *name, const char *before,
                           const char *after) {
  char entry[96], pattern[96];
  uint32_t value = 0;
  snprintf(entry, sizeof entry, "entry function '%s'", name);
  snprintf(pattern, sizeof pattern, "%s%%u%s%%n", before, after);
  const char *at = strstr(binary->log.data, entry);
  const char *end = at ? strstr(at, "Compile") : NULL; // of this one, or the next
  for (; at && *at && (end == NULL || at < end || value == 0); at++) {
    int length = 0;
    if (sscanf(at, pattern, &value, &length) == 1 && length > 0) return value;
  }
  return 0;
}

static void check_smoke(const cuda_binary *binary, const char *name, uint32_t threads) {
  const cuda_kernel_resources *k = kernel(binary, name);
  assert_int_equal(k->registers, log_number(binary, name, "Used ", " registers"));
  assert_int_equal(k->barriers, log_number(binary, name, "used ", " barriers"));
  assert_int_equal(k->stack_bytes, 0);
  assert_int_equal(k->spill_store_bytes, 0);
  assert_int_equal(k->spill_load_bytes, 0);
  assert_int_equal(k->static_shared_bytes, 0);
  assert_int_equal(k->max_threads, threads);
  assert_true(k->constant_bytes > 100);
}

static void test_preludes_everywhere(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit unit = smoke_unit(&f->arena);
  for (size_t i = 0; i < COUNT(archs); i++) {
    cuda_arch arch;
    assert_true(cuda_arch_find(archs[i], &arch));
    cuda_compile_options options = {.arch = archs[i]};
    cuda_binary binary;
    if (!cuda_check_arch(f->nvrtc, archs[i], &f->diag)) continue; // an older NVRTC
    if (!cuda_compile(&f->arena, f->nvrtc, &options, &unit, 1, &binary, &f->diag)) fail_with(f);
    if (strstr(binary.log.data, "warning")) fail_msg("%s", binary.log.data);
    check_smoke(&binary, "smoke_site", 224);
    check_smoke(&binary, "smoke_memory", 64);
    check_smoke(&binary, "smoke_reduce", 64);
    check_smoke(&binary, "smoke_tensor", 64);
    if (arch.cluster) check_smoke(&binary, "smoke_cluster", 64);
    assert_int_equal(binary.kernel_count, arch.cluster ? 5 : 4);
    expect_words(binary.ptx, base_str_format(&f->arena, ".target %s", arch.name).data);
    expect_words(binary.ptx, "ld.global.nc.L1::no_allocate.L2::128B.v4.u32");
    assert_null(strstr(binary.ptx.data, ".f64"));
    assert_null(strstr(binary.ptx.data, ".local"));
  }
}

static void test_spills_and_shared_memory(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit unit = {
      "costly.cu",
      BASE_STR("extern \"C\" __global__ void __launch_bounds__(1024, 2) spill(float *p) {\n"
               "  float x[100];\n"
               "#pragma unroll\n"
               "  for (int i = 0; i < 100; i++) x[i] = p[threadIdx.x + i * 1024];\n"
               "  __syncthreads();\n"
               "#pragma unroll\n"
               "  for (int i = 0; i < 100; i++) p[threadIdx.x * 100 + i * 3] = x[99 - i] + x[i * 7 "
               "% 100];\n"
               "}\n"
               "extern \"C\" __global__ void __launch_bounds__(96) shared(float *p) {\n"
               "  __shared__ float s[64];\n"
               "  s[threadIdx.x % 64] = p[threadIdx.x];\n"
               "  __syncthreads();\n"
               "  p[threadIdx.x] = s[threadIdx.x * 7 % 64];\n"
               "}\n")};
  static const char *const large[] = {"sm_80", "sm_90a"}; // hold two blocks of 1024 threads
  for (size_t i = 0; i < COUNT(large); i++) {
    cuda_binary binary;
    if (!cuda_compile_unit(&f->arena, f->nvrtc, large[i], &unit, &binary, &f->diag)) fail_with(f);
    const cuda_kernel_resources *k = kernel(&binary, "spill");
    assert_true(k->spill_store_bytes > 0 && k->spill_load_bytes > 0);
    assert_int_equal(k->spill_store_bytes, log_number(&binary, "spill", "", " bytes spill stores"));
    assert_int_equal(k->stack_bytes, log_number(&binary, "spill", "", " bytes stack frame"));
    assert_true(k->stack_bytes > 0);
    k = kernel(&binary, "shared");
    assert_int_equal(k->static_shared_bytes, 256);
    assert_int_equal(k->max_threads, 96);
    assert_int_equal(k->spill_store_bytes, 0);
    // Another log for the same code; of a kernel and a function that it calls.
    base_str why;
    binary.log =
        BASE_STR("ptxas info    : Compiling entry function 'spill' for 'sm_80'\n"
                 "    16 bytes stack frame, 12 bytes spill stores, 34 bytes spill loads\n"
                 "ptxas info    : Function properties for helper\n"
                 "    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
                 "ptxas info    : Compiling entry function 'shared' for 'sm_80'\n"
                 "    0 bytes stack frame, 0 bytes spill stores, 4294967295 bytes spill loads");
    assert_true(cuda_read_resources(&f->arena, &binary, &why));
    assert_int_equal(kernel(&binary, "spill")->spill_store_bytes, 16);
    assert_int_equal(kernel(&binary, "spill")->spill_load_bytes, 42);
    assert_int_equal(kernel(&binary, "shared")->spill_load_bytes, 4294967295);
  }
}

static void test_damaged_cubin(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit unit = small_unit(&f->arena, 1);
  cuda_binary binary;
  if (!cuda_compile_unit(&f->arena, f->nvrtc, "sm_80", &unit, &binary, &f->diag)) fail_with(f);
  char *bytes = (char *)binary.cubin.data;
  uint32_t random = 1;
  for (int round = 0; round < 4000; round++) {
    random = random * 1664525 + 1013904223;
    const size_t at = (random >> 4) % binary.cubin.length;
    const char saved = bytes[at];
    bytes[at] = (char)(saved ^ (1 << (random >> 28 & 7)));
    base_arena arena;
    base_arena_init(&arena, NULL);
    cuda_cubin cubin;
    base_str why, whole = binary.cubin, part = {bytes, at};
    cuda_cubin_read(&arena, whole, &cubin, &why);
    cuda_cubin_read(&arena, part, &cubin, &why);
    base_arena_reset(&arena);
    bytes[at] = saved;
  }
}

// ---- errors -------------------------------------------------------------------------------------

static void test_compile_error(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit units[] = {
      small_unit(&f->arena, 1),
      {"wrong.cu", BASE_STR("extern \"C\" __global__ void wrong(float *p) {\n"
                            "  p[0] = fm_no_such(p[1]);\n"
                            "}\n")},
      {"worse.cu", BASE_STR("extern \"C\" __global__ void worse() {\n  int x = ;\n}\n")},
  };
  cuda_compile_options options = {.arch = "sm_80", .workers = 2};
  cuda_binary binaries[COUNT(units)];
  assert_false(
      cuda_compile(&f->arena, f->nvrtc, &options, units, COUNT(units), binaries, &f->diag));
  assert_int_equal(f->diag.status, BASE_INTERNAL);
  assert_int_equal(f->diag.error_count, 2);
  const base_str text = base_diag_render(&f->diag);
  expect_words(text, " does not compile wrong.cu for sm_80:\nwrong.cu:2:10: error: identifier "
                     "\"fm_no_such\" is undefined\n"
                     "  2 |   p[0] = fm_no_such(p[1]);\n"
                     "    |          ^\n");
  expect_words(text, " does not compile worse.cu for sm_80:\nworse.cu:2:11: error: expected an "
                     "expression\n");
  assert_true(strstr(text.data, "wrong.cu") < strstr(text.data, "worse.cu"));
}

// What an architecture lacks is missing when it is used, not before.
static void test_missing_feature(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit unit = with_preludes(&f->arena, "bulk.cu",
                                       "extern \"C\" __global__ void bulk(float *p) {\n"
                                       "  fm_bulk_copy(fm_shared(), p, 64, 0);\n}\n");
  cuda_binary binary;
  if (!cuda_compile_unit(&f->arena, f->nvrtc, "sm_90a", &unit, &binary, &f->diag)) fail_with(f);
  assert_false(cuda_compile_unit(&f->arena, f->nvrtc, "sm_89", &unit, &binary, &f->diag));
  expect_words(base_diag_render(&f->diag), "identifier \"fm_bulk_copy\" is undefined\n");
}

static void test_given_library_is_missing(void **state) {
  fixture *f = *state;
  if (f->nvrtc) skip(); // remembered: another is not looked for
  base_str why;
  setenv("FATHOM_LIBNVRTC", "/nowhere/libnvrtc.so.13", 1);
  assert_null(cuda_nvrtc_open(&f->arena, &why));
  expect_words(why, "NVRTC could not be opened, where $FATHOM_LIBNVRTC says it is:");
  unsetenv("FATHOM_LIBNVRTC");
}

// ---- workers ------------------------------------------------------------------------------------

static void test_order(void **state) {
  fixture *f = need_nvrtc(state);
  enum { UNITS = 12 };
  cuda_unit units[UNITS];
  for (uint32_t i = 0; i < UNITS; i++)
    units[i] = small_unit(&f->arena, i);
  cuda_binary one[UNITS], four[UNITS];
  cuda_compile_options options = {.arch = "sm_80", .workers = 1};
  if (!cuda_compile(&f->arena, f->nvrtc, &options, units, UNITS, one, &f->diag)) fail_with(f);
  options.workers = 4;
  if (!cuda_compile(&f->arena, f->nvrtc, &options, units, UNITS, four, &f->diag)) fail_with(f);
  for (uint32_t i = 0; i < UNITS; i++) {
    kernel(&four[i], base_str_format(&f->arena, "k%u", i).data);
    assert_true(base_str_equal(one[i].cubin, four[i].cubin));
  }
  options.workers = 0;
  if (!cuda_compile(&f->arena, f->nvrtc, &options, units, 0, NULL, &f->diag)) fail_with(f);
}

typedef struct limited {
  atomic_int left, balance;
} limited;

static void *allocate(void *user, size_t size) {
  limited *l = user;
  if (atomic_fetch_sub(&l->left, 1) <= 0) return NULL;
  atomic_fetch_add(&l->balance, 1);
  return malloc(size);
}

static void release(void *user, void *pointer) {
  limited *l = user;
  atomic_fetch_sub(&l->balance, 1);
  free(pointer);
}

static bool compile_two(fixture *f, base_arena *arena) {
  const cuda_unit units[] = {small_unit(&f->arena, 1), small_unit(&f->arena, 2)};
  const cuda_compile_options options = {
      .arch = "sm_80", .workers = 2, .cache_directory = f->folder};
  cuda_binary binaries[2];
  base_diag diag;
  base_diag_init(&diag, arena, BASE_STR(""), BASE_STR(""));
  if (cuda_compile(arena, f->nvrtc, &options, units, 2, binaries, &diag)) return true;
  assert_int_equal(diag.status, BASE_MEMORY);
  return false;
}

// Each allocation fails once, on whichever thread: the call ends in an error or an escape, and all
// is given back.
static void test_out_of_memory(void **state) {
  fixture *f = need_nvrtc(state);
  volatile bool done = false;
  for (volatile int budget = 0; !done; budget++) {
    limited l = {budget, 0};
    const base_allocator allocator = {&l, allocate, release};
    base_arena arena;
    base_arena_init(&arena, &allocator);
    jmp_buf escape;
    if (BASE_TRY(&arena, escape)) done = compile_two(f, &arena);
    base_arena_reset(&arena);
    assert_int_equal(l.balance, 0);
    assert_true(budget < 1000);
  }
}

// ---- cache --------------------------------------------------------------------------------------

static bool compile_cached(fixture *f, const char *arch, const cuda_unit *unit,
                           cuda_binary *binary) {
  cuda_compile_options options = {.arch = arch, .cache_directory = f->folder};
  if (!cuda_compile(&f->arena, f->nvrtc, &options, unit, 1, binary, &f->diag)) fail_with(f);
  return binary->from_cache;
}

static void test_cache(void **state) {
  fixture *f = need_nvrtc(state);
  cuda_unit unit = small_unit(&f->arena, 7);
  cuda_binary fresh, cached;
  assert_false(compile_cached(f, "sm_80", &unit, &fresh));
  assert_true(compile_cached(f, "sm_80", &unit, &cached));
  assert_true(base_str_equal(fresh.cubin, cached.cubin));
  assert_true(base_str_equal(fresh.ptx, cached.ptx));
  assert_true(base_str_equal(fresh.log, cached.log));
  assert_int_equal(cached.kernel_count, 1);
  assert_int_equal(cached.kernels[0].registers, fresh.kernels[0].registers);
  // Each part of the key.
  assert_false(compile_cached(f, "sm_86", &unit, &cached));
  unit.text = base_str_format(&f->arena, "%s\n", unit.text.data);
  assert_false(compile_cached(f, "sm_80", &unit, &cached));
  unit.name = "other.cu";
  assert_false(compile_cached(f, "sm_80", &unit, &cached));
  assert_true(compile_cached(f, "sm_80", &unit, &cached));
}

// A file that is cut or changed anywhere counts as absent.
static void test_damaged_cache(void **state) {
  fixture *f = need_nvrtc(state);
  const cuda_unit unit = small_unit(&f->arena, 7);
  const cuda_compile_options options = {.arch = "sm_80", .cache_directory = f->folder};
  const cg_cache_entry entry = cuda_cache_entry(&f->arena, f->nvrtc, &options, &unit);
  cuda_binary binary;
  assert_false(compile_cached(f, "sm_80", &unit, &binary));
  const char *path = base_str_format(&f->arena, "%s/cubins/%s.bin", f->folder,
                                     base_hash_hex(&f->arena, entry.key).data)
                         .data;
  base_str file, why;
  assert_int_equal(base_file_read(&f->arena, path, &file, &why), BASE_OK);
  const size_t cuts[] = {0, 1, 31, 32, 33, 56, file.length / 2, file.length - 1};
  for (size_t i = 0; i < COUNT(cuts); i++) {
    assert_int_equal(base_file_write(&f->arena, path, file.data, cuts[i], &why), BASE_OK);
    assert_false(cuda_cache_load(&f->arena, &entry, &binary));
  }
  for (size_t at = 0; at < file.length; at += 97) {
    char *changed = (char *)base_str_copy(&f->arena, file).data;
    changed[at] ^= 4;
    assert_int_equal(base_file_write(&f->arena, path, changed, file.length, &why), BASE_OK);
    assert_false(cuda_cache_load(&f->arena, &entry, &binary));
  }
  // Sound as a file, but its lengths do not add up.
  const char lengths[24] = {1, 2, 3};
  cg_cache_store(&f->arena, &entry, (base_str){lengths, sizeof lengths});
  assert_false(cuda_cache_load(&f->arena, &entry, &binary));
  assert_false(compile_cached(f, "sm_80", &unit, &binary)); // and is mended
  assert_true(compile_cached(f, "sm_80", &unit, &binary));
}

// ---- time ---------------------------------------------------------------------------------------

static double milliseconds(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct cost {
  double wall, processor; // milliseconds; the processor's over all threads
} cost;

static cost time_all(fixture *f, const cuda_unit *units, uint32_t count, uint32_t workers) {
  cuda_binary *binaries = base_new_array(&f->arena, cuda_binary, count);
  const cuda_compile_options options = {.arch = "sm_90a", .workers = workers};
  const cost start = {milliseconds(CLOCK_MONOTONIC), milliseconds(CLOCK_PROCESS_CPUTIME_ID)};
  if (!cuda_compile(&f->arena, f->nvrtc, &options, units, count, binaries, &f->diag)) fail_with(f);
  return (cost){milliseconds(CLOCK_MONOTONIC) - start.wall,
                milliseconds(CLOCK_PROCESS_CPUTIME_ID) - start.processor};
}

// The processor's time shows whether two workers stand in each other's way also where other
// programs take their share of the machine.
static void test_time(void **state) {
  fixture *f = need_nvrtc(state);
  if (getenv("FATHOM_NVRTC_TIME") == NULL) skip();
  enum { UNITS = 24 };
  cuda_unit units[UNITS];
  double times[UNITS];
  const base_str smoke = smoke_unit(&f->arena).text;
  const char *end = strstr(smoke.data, "FM_ENTRY(smoke_site");
  for (uint32_t i = 0; i < UNITS; i++) {
    const char *name = base_str_format(&f->arena, "site%u.cu", i).data;
    units[i] = (cuda_unit){
        name, base_str_format(&f->arena, "%.*s\n// %u\n", (int)(end - smoke.data), smoke.data, i)};
    times[i] = time_all(f, &units[i], 1, 1).wall;
  }
  qsort(times, UNITS, sizeof *times, compare);
  print_message("one site kernel: median %.0f ms (%.0f to %.0f)\n", times[UNITS / 2], times[0],
                times[UNITS - 1]);
  const cost one = time_all(f, units, UNITS, 1), two = time_all(f, units, UNITS, 2);
  print_message("%d of them: %.0f ms on one worker, %.0f ms on two, %.2f times as fast\n", UNITS,
                one.wall, two.wall, one.wall / two.wall);
  print_message("of the processor: %.0f ms and %.0f ms\n", one.processor, two.processor);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_arch_names),
      TEST(test_arch_facts),
      TEST(test_given_library_is_missing),
      TEST(test_open),
      TEST(test_listed_archs_are_known),
      TEST(test_unknown_arch),
      TEST(test_preludes_everywhere),
      TEST(test_spills_and_shared_memory),
      TEST(test_damaged_cubin),
      TEST(test_compile_error),
      TEST(test_missing_feature),
      TEST(test_order),
      TEST(test_out_of_memory),
      TEST(test_cache),
      TEST(test_damaged_cache),
      TEST(test_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
