#!/bin/bash
# What Fathom does on this machine's NVIDIA GPU: tests, checks, ceilings, every strategy on real shapes, and others'
# code beside it. In less than eight minutes.
#
#   bench/device.sh [--dry-run] [OUT_FOLDER]      (default: bench/results/NAME_OF_THE_GPU)
#
# The machine needs bash, the driver and NVRTC, which may come from a Python environment. Where `python3` has PyTorch,
# it is compared as well. Nothing is compiled here: bring a build from a machine with a compiler,
#
#   cmake -S . -B build/bundle -G Ninja -DFATHOM_LLVM=OFF -DFATHOM_BUNDLE=ON && cmake --build build/bundle
#
# of which bin/, lib/, bench/strategies and tests/device_* are used, and the sources' bench/ and tests/variants/.
#
# Writes to OUT_FOLDER:
#   results.jsonl   one JSON object a line: gpu, driver, step, then what the step found; last, how each step went
#   table.md        the same in short
#   log.txt         all that the steps said
#
# Steps have limits of time and go on after a failure. Exit status: 0 when every step was well, 1 when one was not, 2
# when there is no GPU or no build.
#
# Environment:
#   FATHOM_BUILD           the build (default: build/bundle)
#   FATHOM_DEVICE_LISTS    the folder of what is checked and measured (default: bench/device)
#   FATHOM_DEVICE_SECONDS  of one measurement (default: 0.1)
# whose relative paths begin at the root of the sources.
set -uo pipefail
dry_run=
[[ ${1-} == --dry-run ]] && { dry_run=1; shift; }
out=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.." || exit 2

build=${FATHOM_BUILD:-build/bundle}
lists=${FATHOM_DEVICE_LISTS:-bench/device}
seconds=${FATHOM_DEVICE_SECONDS:-0.1}
deadline=$((SECONDS + 475))
jobs=$(nproc)
((jobs > 12)) && jobs=12

stop() {
  echo "device.sh: $*" >&2
  exit 2
}

cases() { # LIST: how many there are
  "$build/bench/strategies" list "$lists/$1.shapes" "$lists/$1.strategies" | wc -l
}

# ---- the plan ----------------------------------------------------------------------------------------------

# NAME LIMIT COMMAND: the limits add up to less than eight minutes.
plan() {
  local strategies=$build/bench/strategies test
  for test in "$build"/tests/device_*; do
    [[ -x $test && ! -d $test ]] && "$1" "test ${test##*/}" 60 "$test"
  done
  "$1" check 85 "$strategies" check "$lists"/check.{shapes,strategies} --jobs "$jobs" --limit 30 --budget 75
  "$1" ceiling 15 "$strategies" bench "$lists"/ceiling.{shapes,strategies} --seconds 0.5
  "$1" bench 175 "$strategies" bench "$lists"/bench.{shapes,strategies} --seconds "$seconds" --limit 20 \
    --budget 165
  "$1" decode 25 "$strategies" bench "$lists"/decode.{shapes,strategies} --seconds "$seconds" \
    --limit 10 --budget 20 --cache warm
  "$1" compare 95 python3 bench/device/compare.py "$build/lib/libfathom.so" "$lists/compare.shapes"
}

[[ -x $build/bin/fathom && -x $build/bench/strategies ]] ||
  stop "$build is no build of Fathom: FATHOM_BUILD names one, and the head of this script says how to make it"

show() {
  local name=$1 limit=$2
  shift 2
  echo "  $name, at most $limit s: $*"
}

if [[ $dry_run ]]; then
  echo "to ${out:-bench/results/NAME_OF_THE_GPU}, with $build:"
  plan show
  echo "cases: $(cases check) of check, $(cases bench) of bench, $(cases decode) of decode"
  exit 0
fi

# ---- the machine -------------------------------------------------------------------------------------------

# NVRTC and cuBLASLt may lie where nobody looks: any copy of a version that Fathom knows will do.
find_library() { # VARIABLE PATTERN
  local found
  [[ -z ${!1-} ]] || return 0
  found=$(timeout 20 find /usr /opt "$HOME" -name "$2" 2>/dev/null | sort -rV | head -n 1)
  [[ -z $found ]] || export "$1=$found"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FATHOM_CACHE=$work/cache
info=$("$build/bin/fathom" info)
grep -q '^nvrtc: ' <<<"$info" || find_library FATHOM_LIBNVRTC 'libnvrtc.so.1[1-9]*'
grep -q '^cublaslt: ' <<<"$info" || find_library FATHOM_LIBCUBLASLT 'libcublasLt.so.1[1-9]*'
info=$("$build/bin/fathom" info)
gpu=$(sed -n 's/^gpu 0: \([^,]*\),.*/\1/p' <<<"$info" | tr -cd 'A-Za-z0-9 .()-')
[[ -n $gpu ]] || stop "no GPU here: $(grep -m 1 '^missing: .*driver' <<<"$info")"
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
driver=${driver:-$(sed -n 's/^driver: .*, for \(CUDA [0-9.]*\),.*/\1/p' <<<"$info")}
out=${out:-bench/results/${gpu// /_}}
mkdir -p "$out" || stop "cannot write to $out"
results=$out/results.jsonl log=$out/log.txt
: >"$results"
: >"$log"
echo "$info" | tee -a "$log"

# ---- the steps ---------------------------------------------------------------------------------------------

record() { # JSON lines from stdin, with the machine in front
  sed "s/^{/{\"gpu\": \"$gpu\", \"driver\": \"$driver\", /" >>"$results"
}

bad=0
steps=$work/steps
run_step() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) start=$SECONDS status word
  shift 2
  ((limit < left)) || limit=$left
  echo "== $name, at most $limit s" | tee -a "$log"
  : >"$work/said"
  : >"$work/errors"
  if ((limit <= 0)); then
    word=skipped status=0
  else
    timeout -k 5 "$limit" "$@" >"$work/said" 2>"$work/errors"
    status=$?
    case $status in
      0) word=ok ;;
      3) word="cut short" ;; # good as far as there was time
      77) word=skipped ;; # what it needs is not here
      124 | 137) word="out of time" ;;
      *) word=failed ;;
    esac
  fi
  grep '^{' "$work/said" | record
  grep -v '^{' "$work/said" >>"$log"
  cat "$work/errors" >>"$log"
  case $status in 0 | 3 | 77) ;; *) bad=1 ;; esac
  echo "   $word after $((SECONDS - start)) s$(count "$work/said")" | tee -a "$log"
  echo "{\"step\": \"$name\", \"status\": \"$word\", \"exit\": $status, \"seconds\": $((SECONDS - start))}" >>"$steps"
}

count() { # FILE: how many cases went which way
  local word
  for word in ok refused failed skipped; do
    grep -c "^{.*\"status\": \"$word\"" "$1" | sed -n "s/^[1-9].*/, & $word/p" | tr -d '\n'
  done
}

plan run_step
record <"$steps"
awk -f bench/device/table.awk "$results" >"$out/table.md" || bad=1
cat "$out/table.md"
echo "in $SECONDS s; results are in $out"
exit "$bad"
