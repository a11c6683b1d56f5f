# The results of bench/device.sh (JSON lines, each object flat) as short Markdown tables.
#
#   awk -f bench/device/table.awk results.jsonl

function field(key,    rest) { # of this line; "" when it has none
  if (!match($0, "\"" key "\": ")) return ""
  rest = substr($0, RSTART + RLENGTH)
  if (substr(rest, 1, 1) != "\"") {
    match(rest, /[,}]/)
    return substr(rest, 1, RSTART - 1)
  }
  rest = substr(rest, 2)
  match(rest, /(^|[^\\])"/)
  return substr(rest, 1, RSTART + RLENGTH - 2)
}

function number(value, digits) {
  return value == "" || value == "null" ? "" : sprintf("%." digits "f", value)
}

# Remembers a shape's size in the order it came in. kind: bench, warm, compare
function row_of(kind,    name) {
  name = field("shape") SUBSEP field("size")
  if (!((kind, name) in known)) {
    known[kind, name] = 1
    rows[kind, ++count[kind]] = name
  }
  return kind SUBSEP name
}

{
  gpu = field("gpu")
  driver = field("driver")
  step = field("step")
  status = field("status")
  if ($0 ~ /"exit": /) {
    steps[++step_count] = "| " step " | " status " | " field("seconds") " |"
    next
  }
  cases[step, status]++
  if (status == "failed" || (status == "skipped" && step != "compare"))
    failures[++failure_count] = "- " step ", " field("shape") ", T = " field("size") ", " field("strategy") \
      field("contender") ": " substr(field("error"), 1, 200)
}

step == "bench" && status == "ok" {
  kind = field("cache") == "warm" ? "warm" : "bench"
  row = row_of(kind)
  us = field("median_us")
  strategy = field("strategy")
  if (strategy == "default") {
    default_us[row] = us
    gb_s[row] = field("gb_s")
    ceiling[row] = field("ceiling_gb_s")
    share[row] = field("of_ceiling")
    launch[row] = field("launch_us")
  }
  if (!(row in best_us) || us + 0 < best_us[row] + 0) {
    best_us[row] = us
    best[row] = strategy
    best_share[row] = field("of_ceiling")
  }
}

step == "compare" && status == "ok" {
  row = row_of("compare")
  compared[row, field("contender")] = field("median_us")
}

function bench_table(kind, title,    i, row, parts) {
  if (count[kind] == 0) return
  print "\n## " title "\n"
  print "| shape | T | default, us | GB/s | copy, GB/s | share | launch, us | fastest | us | share |"
  print "|---|---|---|---|---|---|---|---|---|---|"
  for (i = 1; i <= count[kind]; i++) {
    row = kind SUBSEP rows[kind, i]
    split(rows[kind, i], parts, SUBSEP)
    print "| " parts[1] " | " parts[2] " | " number(default_us[row], 2) " | " number(gb_s[row], 0) " | " \
      number(ceiling[row], 0) " | " number(share[row], 2) " | " number(launch[row], 1) " | " best[row] " | " \
      number(best_us[row], 2) " | " number(best_share[row], 2) " |"
  }
}

function compare_table(    i, j, n, row, parts, names, line) {
  if (count["compare"] == 0) return
  n = split("fathom eager torch.compile fla fast-attnres flash-attn-res", names, " ")
  print "\n## Beside PyTorch and peers: us, cold caches\n"
  line = "| shape | T |"
  for (j = 1; j <= n; j++)
    line = line " " names[j] " |"
  print line
  print "|---|---|---|---|---|---|---|---|"
  for (i = 1; i <= count["compare"]; i++) {
    row = "compare" SUBSEP rows["compare", i]
    split(rows["compare", i], parts, SUBSEP)
    line = "| " parts[1] " | " parts[2] " |"
    for (j = 1; j <= n; j++)
      line = line " " number(compared[row, names[j]], 2) " |"
    print line
  }
}

END {
  print "# " gpu ", driver " driver
  print "\n| step | | s |\n|---|---|---|"
  for (i = 1; i <= step_count; i++)
    print steps[i]
  print "\nChecks against the reference: " cases["check", "ok"] + 0 " good, " cases["check", "failed"] + 0 " failed, " \
    cases["check", "refused"] + 0 " refused (the strategy does not apply), " cases["check", "skipped"] + 0 \
    " without time."
  bench_table("bench", "Cold caches")
  bench_table("warm", "Warm caches")
  compare_table()
  if (failure_count > 0) print "\n## What failed\n"
  for (i = 1; i <= failure_count && i <= 40; i++)
    print failures[i]
  if (failure_count > 40) print "- and " failure_count - 40 " more: see results.jsonl"
}
