// Replays fuzzer inputs without a fuzzing engine: every file given, and every file of every folder
// given, goes through LLVMFuzzerTestOneInput once. So each build, whatever its compiler, keeps what
// fuzzing once found fixed. random:FIRST:COUNT stands for inputs of random bytes with these numbers.
// Prints each name first: the last one printed is the culprit of a crash.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Inputs replayed, or -1 when something could not be read.
static long replay(const char *path);

static long replay_file(const char *path, size_t size) {
  FILE *file = fopen(path, "rb");
  uint8_t *data = malloc(size ? size : 1); // exact, so that the sanitizers see reads past the end
  long count = -1;
  if (file && data && fread(data, 1, size, file) == size) {
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    count = 1;
  } else {
    perror(path);
  }
  free(data);
  if (file) fclose(file);
  return count;
}

static long replay_folder(const char *path) {
  struct dirent **entries;
  int entry_count = scandir(path, &entries, NULL, alphasort);
  long total = 0;
  if (entry_count < 0) {
    perror(path);
    return -1;
  }
  for (int i = 0; i < entry_count; i++) {
    if (entries[i]->d_name[0] != '.' && total >= 0) {
      char child[4096];
      snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
      long count = replay(child);
      total = count < 0 ? -1 : total + count;
    }
    free(entries[i]);
  }
  free(entries);
  return total;
}

static long replay_random(unsigned long first, unsigned long count) {
  for (unsigned long number = first; number < first + count; number++) {
    uint8_t data[512];
    uint64_t state = (number + 1) * UINT64_C(0x9e3779b97f4a7c15); // for xorshift64* (Vigna 2014)
    for (size_t i = 0; i < sizeof data; i++) {
      state ^= state >> 12;
      state ^= state << 25;
      state ^= state >> 27;
      data[i] = (uint8_t)(state * UINT64_C(2685821657736338717) >> 56);
    }
    printf("random:%lu:1\n", number);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, sizeof data);
  }
  return (long)count;
}

static long replay(const char *path) {
  struct stat info;
  unsigned long first, count;
  if (sscanf(path, "random:%lu:%lu", &first, &count) == 2) return replay_random(first, count);
  if (stat(path, &info) != 0) {
    perror(path);
    return -1;
  }
  return S_ISDIR(info.st_mode) ? replay_folder(path) : replay_file(path, (size_t)info.st_size);
}

int main(int argc, char **argv) {
  long total = 0;
  for (int i = 1; i < argc; i++) {
    long count = replay(argv[i]);
    if (count < 0) return 1;
    total += count;
  }
  if (total == 0) {
    fprintf(stderr, "no inputs replayed; usage: %s FILE, FOLDER or random:FIRST:COUNT ...\n",
            argv[0]);
    return 1;
  }
  printf("%ld inputs replayed\n", total);
  return 0;
}
