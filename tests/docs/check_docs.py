#!/usr/bin/env python3
"""The documentation says what is so. Usage: check_docs.py SOURCE_DIR PROGRAM

Of README.md, CHANGELOG.md and docs/*.md:

  ```fir       and indented blocks that start with `graph @`: they parse and verify
  ```console   `$ command` lines run, and print what stands below them; `...` stands for anything.
               `$ cat FILE` makes that file
  ```sh        and indented blocks of commands: programs, subcommands, options, presets and files
               exist, and fathom commands whose input files are there succeed (bench is not run)
  links        relative ones lead to a file or a heading; paths such as `ir/ops.def` are there
  tables       docs/schedule.md has the knobs of ir/schedule.def; docs/ir.md names real variants

Everything runs in a scratch folder with links to the source tree, so nothing is written to it.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT, PROGRAM = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
COMMANDS = {"fathom", "cmake", "ctest", "cc", "pkg-config", "cd", "export"}
MADE_UP = {"passes/fold_neg.c"}  # what a recipe tells the reader to write
failures = []


def fail(place, text):
    failures.append(f"{place}: {text}")


# ---- pages ---------------------------------------------------------------------------------------


def blocks(page):
    """(line number, kind, text, paragraph before) of each code block; kind "" for indented ones."""
    lines, i, before = open(page).read().split("\n"), 0, ""
    while i < len(lines):
        fence = re.match(r"```(\w*)$", lines[i])
        start = i
        if fence:
            i = next(j for j in range(i + 1, len(lines)) if lines[j] == "```")
            yield start + 1, fence[1], "\n".join(lines[start + 1 : i]) + "\n", before
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i]):
                i += 1
            text = "\n".join(line[4:] for line in lines[start:i]).rstrip()
            yield start + 1, "", text + "\n", before
            i -= 1
        elif lines[i]:
            before = lines[i] if i == 0 or not lines[i - 1] else before + " " + lines[i]
        i += 1


def run(command, text=None):
    folder = os.path.dirname(PROGRAM)
    environment = dict(os.environ, PATH=folder + ":" + os.environ["PATH"])
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        input=text,
        text=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return done.returncode, done.stdout


# ---- blocks --------------------------------------------------------------------------------------


def check_graph(place, text, before):
    code, output = run([PROGRAM, "opt", "-", "--passes="], text)
    if code:
        fail(place, "this graph does not verify:\n" + output)
    name = re.search(r"`(\w+\.fir)`", before)
    if name and not os.path.exists(name[1]):  # so that later commands find it
        open(name[1], "w").write(text)


def same_output(expected, found):
    pattern = ".*".join(re.escape(part) for part in expected.rstrip("\n").split("..."))
    return re.fullmatch(pattern, found.rstrip("\n"), re.S)


def check_console(place, text):
    for step in re.split(r"(?m)^\$ ", text)[1:]:
        command, expected = step.split("\n", 1)
        while command.endswith("\\"):
            more, expected = expected.split("\n", 1)
            command = command[:-1] + more.lstrip()
        made = re.match(r"cat (\S+)$", command)
        if made and not os.path.exists(made[1]):
            open(made[1], "w").write(expected)
            continue
        check_command(place, command, False)
        found = run(command)[1]
        if not same_output(expected, found):
            fail(place, f"`{command}` prints something else:\n{found}")


@functools.lru_cache(None)
def help_of(*command):
    code, text = run([PROGRAM, *command, "--help"])
    return text if code == 0 else None


def check_fathom(place, words, runs):
    if words[0].startswith("--"):
        return
    text = help_of(words[0])
    if text is None:
        return fail(place, f"there is no command `fathom {words[0]}`")
    if re.search(r"(?m)^usage: fathom \S+ COMMAND", text) and len(words) > 1 and words[1][0] != "-":
        text = help_of(words[0], words[1])
        if text is None:
            return fail(place, f"`fathom {words[0]}` has no command {words[1]}")
    for word in words[1:]:
        option = re.match(r"--?[a-z][a-z-]*", word)
        if option and not re.search(re.escape(option[0]) + r"(?![\w-])", text):
            fail(place, f"`fathom {words[0]}` has no option {option[0]}")
    inputs = [word.split("=", 1)[-1] for word in words[1:] if word.endswith((".fir", ".npy"))]
    outputs = {b.split("=")[-1] for a, b in zip(words, words[1:]) if a in ("--out", "-o")}
    there = all(os.path.exists(name) for name in inputs if name not in outputs)
    if runs and there and inputs and words[0] != "bench":
        code, output = run([PROGRAM] + words)
        if code:
            fail(place, f"`fathom {' '.join(words)}` fails:\n{output}")


def check_command(place, line, runs=True):
    for part in re.split(r"\s(?:&&|\|)\s", re.sub(r"\s+#.*", "", line)):
        words = shlex.split(re.sub(r"[<>]\s*\S+", "", part))
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if not words:
            continue
        if os.path.basename(words[0]) == "fathom":
            check_fathom(place, words[1:], runs)
        elif words[0] == "cmake" and "--preset" in words:
            preset = words[words.index("--preset") + 1]
            if f'"{preset}"' not in open("CMakePresets.json").read():
                fail(place, f"there is no preset {preset}")
        elif "/" in words[0] and not words[0].startswith(("build/", "./")):
            if not os.path.exists(words[0]):
                fail(place, f"there is no {words[0]}")
        elif "/" not in words[0] and words[0] not in COMMANDS | {"grep", "FileCheck"}:
            fail(place, f"`{words[0]}` is no command this test knows")


def check_commands(place, text):
    for line in text.replace("\\\n", " ").split("\n"):
        if line.strip() and not line.startswith("#"):
            check_command(place, line)


# ---- links and tables ----------------------------------------------------------------------------


def anchors(page):
    titles = re.findall(r"(?m)^#+ (.*)$", open(page).read())
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def check_links(page, name):
    text = re.sub(r"(?ms)^```.*?^```$", "", open(page).read())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        path = os.path.join(os.path.dirname(page), path) if path else page
        if not os.path.exists(path):
            fail(name, f"the link to {target} leads nowhere")
        elif anchor and anchor not in anchors(path):
            fail(name, f"{target}: no such heading")
    tops = set(os.listdir(ROOT)) - {"build"}
    for path in set(re.findall(r"`([\w.-]+/[\w./-]*)`", text)) - MADE_UP:
        if path.split("/")[0] in tops and not os.path.exists(path):
            fail(name, f"there is no {path}")


def check_knobs():
    page = open("docs/schedule.md").read()
    table = open("ir/schedule.def").read()
    for name, low, high, initial in re.findall(r"(?m)^KNOB\((\w+), (\d+), (\d+), (\d+),", table):
        row = f"| `{name}` | {low} .. {high} | {initial} |"
        if "\n" + row not in page:
            fail("docs/schedule.md", f"there is no row {row}")


def check_variants():
    section = open("docs/ir.md").read().split("\n## Variants\n")[1]
    for name in re.findall(r"`(\w+)`", section):
        if not os.path.exists(f"tests/variants/{name}.fir"):
            fail("docs/ir.md", f"there is no tests/variants/{name}.fir")


# ---- main ----------------------------------------------------------------------------------------


def main():
    docs = sorted(os.path.join("docs", name) for name in os.listdir(os.path.join(ROOT, "docs")))
    pages = ["README.md", "CHANGELOG.md"] + [name for name in docs if name.endswith(".md")]
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for name in os.listdir(ROOT):
            if not name.startswith("."):
                os.symlink(os.path.join(ROOT, name), name)
        for name in pages:
            for line, kind, text, before in blocks(name):
                place = f"{name}:{line}"
                if kind == "fir" or (kind == "" and text.startswith("graph @")):
                    check_graph(place, text, before)
                elif kind == "console":
                    check_console(place, text)
                elif kind == "sh" or kind == "" and re.match(r"(fathom|tools/\w+|cmake) ", text):
                    check_commands(place, text)
            check_links(name, name)
        check_knobs()
        check_variants()
        os.chdir("/")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{len(pages)} pages, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
