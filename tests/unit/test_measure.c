// Measuring: the statistics are exact on given samples, every stream kernel moves all its bytes and
// no others, and a comparison takes turns. No test asks for a speed.
#include "autotune/contest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void run_in_turn(void *user, size_t count, void (*work)(void *argument, size_t index),
                        void *argument) {
  (void)user;
  for (size_t i = 0; i < count; i++) {
    work(argument, i);
  }
}

static const rt_executor in_turn = {.concurrency = 3, .parallel_for = run_in_turn};

static void count_call(void *user) {
  ++*(uint32_t *)user;
}

static void statistics_of_known_samples(void **state) {
  (void)state;
  double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, single[] = {7};
  tune_samples samples = {.seconds = odd, .count = 5};
  tune_timing timing = tune_samples_timing(&samples);
  assert_true(timing.median == 3 && timing.minimum == 1 && timing.runs == 5);
  assert_true(timing.spread == (4.0 - 2.0) / 3);
  samples = (tune_samples){.seconds = even, .count = 4};
  timing = tune_samples_timing(&samples);
  assert_true(timing.median == 2.5 && timing.spread == (3.25 - 1.75) / 2.5);
  samples = (tune_samples){.seconds = single, .count = 1};
  timing = tune_samples_timing(&samples);
  assert_true(timing.median == 7 && timing.minimum == 7 && timing.spread == 0);
  samples.count = 0;
  assert_int_equal(tune_samples_timing(&samples).runs, 0);
}

static void short_work_is_timed_in_batches(void **state) {
  (void)state;
  uint32_t calls = 0;
  tune_timing timing;
  assert_int_equal(tune_time((tune_work){count_call, &calls}, 0.01, &timing), BASE_OK);
  assert_in_range(timing.runs, 3, TUNE_MAX_SAMPLES);
  assert_true(calls > 2 * timing.runs); // a call takes nanoseconds, a sample 20 us
  assert_true(timing.minimum > 0 && timing.minimum <= timing.median);
  assert_true(timing.minimum < 2e-7); // of one call, not of the batch
  assert_int_equal(tune_time((tune_work){count_call, &calls}, 0, &timing), BASE_OK);
  assert_int_equal(timing.runs, 3);
}

static void mixes_keep_ratio_and_total(void **state) {
  (void)state;
  static const struct {
    uint64_t read, written;
    uint32_t reads, writes;
  } cases[] = {
      {10 * 7168 * 2048ull, 2 * 7168 * 2048ull, 5, 1}, // the K3 site
      {8, 16, 1, 2},
      {1000000, 1000000, 1, 1},
      {1000000, 10, 1, 0},
      {10, 1000000, 0, 1},
      {900000, 70000, 12, 1},
      {0, 0, 1, 0},
      {1ull << 50, 1ull << 49, 2, 1},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    tune_mix mix = tune_mix_of(cases[c].read, cases[c].written);
    assert_int_equal(mix.reads, cases[c].reads);
    assert_int_equal(mix.writes, cases[c].writes);
    assert_int_equal(mix.stream_bytes % STREAM_LINE, 0);
    uint64_t total = cases[c].read + cases[c].written, streams = mix.reads + mix.writes;
    assert_in_range(mix.stream_bytes * streams, total, total + STREAM_LINE * (streams + 1));
  }
}

enum { UNTOUCHED = 0xaa, MARK = 0x10 };

// Reads are 0 but for one marked byte; then all written rows must be written, nothing else may be,
// and the mark must have reached a write.
static void expect_traffic(tune_contest *contest, tune_candidate *candidate, size_t marked) {
  size_t written = contest->rows * contest->row_bytes * contest->mix.writes, found = 0, marks = 0;
  memset(contest->first, 0, contest->read_room);
  memset(contest->first + contest->read_room, UNTOUCHED, contest->write_room);
  contest->first[marked] = MARK;
  tune_work work = tune_candidate_work(candidate);
  work.call(work.user);
  for (size_t i = 0; i < contest->write_room; i++) {
    unsigned char byte = (unsigned char)contest->first[contest->read_room + i];
    found += byte != UNTOUCHED;
    marks += byte == MARK;
  }
  assert_int_equal(found, written);
  if (contest->mix.writes > 0) assert_true(marks > 0);
  size_t kept = 0; // reads stay as they are
  for (size_t i = 0; i < contest->read_room; i++) {
    kept += contest->first[i] != 0;
  }
  assert_int_equal(kept, contest->mix.reads > 0);
}

static void expect_all_differ(const tune_contest *contest) {
  assert_true(contest->count >= 8);
  for (uint32_t i = 0; i < contest->count; i++) {
    for (uint32_t j = 0; j < i; j++) {
      tune_timing timing = {0};
      assert_string_not_equal(tune_candidate_ceiling(&contest->candidates[i], timing).variant,
                              tune_candidate_ceiling(&contest->candidates[j], timing).variant);
    }
  }
}

static void every_candidate_moves_all_bytes(void **state) {
  (void)state;
  static const tune_mix mixes[] = {{1, 0, 256},   {0, 1, 512},       {1, 1, 256},
                                   {5, 1, 70144}, {1, 2, 16 * 1024}, {9, 7, 256 * 130}};
  for (size_t m = 0; m < COUNT(mixes); m++) {
    tune_contest contest;
    assert_int_equal(tune_contest_open(&contest, &in_turn, mixes[m], 0), BASE_OK);
    uint32_t streams = mixes[m].reads + mixes[m].writes;
    assert_in_range(contest.bytes, mixes[m].stream_bytes * streams,
                    mixes[m].stream_bytes * streams * 11 / 10 + 256 * streams);
    expect_all_differ(&contest);
    for (uint32_t i = 0; i < contest.count; i++) {
      tune_candidate *candidate = &contest.candidates[i];
      stream_rows rows = tune_candidate_rows(candidate, 0, 1);
      for (uint32_t r = 0; r < mixes[m].reads; r++) { // the last line of each stream's first row
        expect_traffic(&contest, candidate,
                       (size_t)(rows.read[r] - contest.first) + contest.row_bytes - STREAM_LINE);
      }
    }
    tune_contest_close(&contest);
  }
}

static void cold_sets_are_enough_and_all_used(void **state) {
  (void)state;
  assert_int_equal(tune_cold_sets_of(1000, 100), 20);
  assert_int_equal(tune_cold_sets_of(1000, 99), 21);
  assert_int_equal(tune_cold_sets_of(1000, 1999), 2);
  assert_int_equal(tune_cold_sets_of(1000, 2000), 1);
  assert_int_equal(tune_cold_sets_of(1000, UINT64_MAX), 1);
  assert_int_equal(tune_cold_sets_of(1000, 0), 1);
  assert_int_equal(tune_cold_sets_of(0, 100), 1);
  assert_int_equal(tune_cold_sets_of(UINT64_C(1) << 40, 1), UINT32_MAX);
  for (uint32_t sets = 1; sets < 600; sets++) {
    bool used[600] = {false};
    uint32_t step = tune_cold_step(sets), set = 0, count = 0;
    for (uint32_t i = 0; i < sets; i++, set = (set + step) % sets) {
      count += !used[set];
      used[set] = true;
    }
    assert_int_equal(count, sets);
    if (sets > 8) assert_in_range(step % sets, 2, sets - 2); // no neighbour comes next
  }
}

// How many bytes of the sets' results were written, and are again as they were.
static size_t count_written(tune_contest *contest) {
  size_t written = 0, set_room = contest->read_room + contest->write_room;
  for (uint32_t set = 0; set < contest->sets; set++) {
    char *at = contest->first + set * set_room + contest->read_room;
    for (size_t i = 0; i < contest->write_room; i++)
      written += (unsigned char)at[i] != UNTOUCHED;
    memset(at, UNTOUCHED, contest->write_room);
  }
  return written;
}

static void cold_streams_go_round_all_sets(void **state) {
  (void)state;
  static const tune_mix mixes[] = {{1, 1, 256}, {5, 1, 4096}, {1, 2, 70144}};
  enum { CACHES = 1 << 20 };
  for (size_t m = 0; m < COUNT(mixes); m++) {
    tune_contest contest;
    assert_int_equal(tune_contest_open(&contest, &in_turn, mixes[m], CACHES), BASE_OK);
    assert_true(contest.sets > 1 && contest.sets * contest.bytes >= 2 * CACHES);
    size_t room = contest.sets * (contest.read_room + contest.write_room);
    assert_true(room <= 2 * (2 * CACHES + contest.bytes)); // the skew is no larger than the streams
    size_t of_call = contest.rows * contest.row_bytes * mixes[m].writes;
    count_written(&contest);
    // Any candidate takes the next set.
    for (uint32_t i = 0; i < contest.sets; i++) {
      tune_work work = tune_candidate_work(&contest.candidates[i % contest.count]);
      work.call(work.user);
    }
    assert_int_equal(count_written(&contest), contest.sets * of_call);
    for (uint32_t i = 0; i < contest.sets / 2; i++) {
      tune_work work = tune_candidate_work(&contest.candidates[0]);
      work.call(work.user);
    }
    assert_int_equal(count_written(&contest), contest.sets / 2 * of_call);
    tune_contest_close(&contest);
  }
}

static void narrowing_keeps_the_fastest(void **state) {
  (void)state;
  tune_contest contest;
  assert_int_equal(tune_contest_open(&contest, &in_turn, (tune_mix){2, 1, 4096}, 0), BASE_OK);
  for (uint32_t i = 0; i < contest.count;
       i++) { // times no run can beat: the last three are the fastest
    contest.candidates[i].best = -(double)i;
  }
  double fastest = -(double)(contest.count - 1);
  tune_contest_narrow(&contest, 3, 0.01);
  assert_int_equal(contest.count, 3);
  for (uint32_t i = 0; i < contest.count; i++) {
    assert_true(contest.candidates[i].best == fastest + i);
  }
  tune_contest_close(&contest);
}

static void a_comparison_takes_turns(void **state) {
  (void)state;
  uint32_t calls = 0;
  tune_comparison result;
  tune_work work = {count_call, &calls};
  assert_int_equal(tune_measure_interleaved(work, &in_turn, 1 << 16, 1 << 14, 0, 0.05, &result),
                   BASE_OK);
  assert_true(calls >= result.kernel.runs);
  assert_true(result.kernel.runs >= 9 && result.ceiling.timing.runs >= 3);
  assert_true(result.ceiling.timing.runs <=
              result.kernel.runs / 3 + 1); // three finalists share the turns
  assert_true(result.ceiling.gb_s > 0 && strlen(result.ceiling.variant) > 0);
  double expected = ((1 << 16) + (1 << 14)) / result.kernel.median * 1e-9;
  assert_true(result.gb_s == expected);
  // More memory than there is: a status, not a crash.
  assert_int_equal(
      tune_measure_interleaved(work, &in_turn, UINT64_MAX / 2, UINT64_MAX / 2, 0, 0.05, &result),
      BASE_MEMORY);
}

static void a_ceiling_on_threads(void **state) {
  (void)state;
  rt_pool *pool;
  assert_int_equal(rt_pool_create(2, &pool), BASE_OK);
  rt_executor executor = rt_pool_executor(pool);
  tune_ceiling ceiling;
  assert_int_equal(tune_ceiling_measure(&executor, (tune_mix){3, 1, 1 << 18}, 0.05, &ceiling),
                   BASE_OK);
  assert_true(ceiling.gb_s > 0);
  assert_true(ceiling.gb_s * 1e9 * ceiling.timing.median >= 4 << 18);
  rt_pool_destroy(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(statistics_of_known_samples),
      cmocka_unit_test(short_work_is_timed_in_batches),
      cmocka_unit_test(mixes_keep_ratio_and_total),
      cmocka_unit_test(every_candidate_moves_all_bytes),
      cmocka_unit_test(cold_sets_are_enough_and_all_used),
      cmocka_unit_test(cold_streams_go_round_all_sets),
      cmocka_unit_test(narrowing_keeps_the_fastest),
      cmocka_unit_test(a_comparison_takes_turns),
      cmocka_unit_test(a_ceiling_on_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
