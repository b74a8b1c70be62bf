#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the tree that no compiler checks; each failure is one line, exit status 1.

Layers point one way, vectors and threads stay in their files, the oracle shares nothing with the
kernels, files stay small, headers say their licence, README code is real code, listed test cases exist.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parent.parent
OPENS_THREADS = re.compile(r"dsl/grid\w*\.cc")  # a team for a grid
OWNS_THREADS = re.compile(r"dsl/grid_threads\.cc|sharding/device_threads\.cc")  # those of devices, which stay
# Absolute paths of some machine; spelled so that this line does not match.
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(?:work|tmp|home|root|Users|builds)/")
LAYERS = ["dsl", "kernels", "sharding", "golden"]  # each may include itself and those before it
TOP = {"dsl", "kernels", "sharding", "golden", "bench", "tests", "meson.build", "README.md", "LICENSE", "run",
       "meson_options.txt", ".clang-format", ".clang-tidy", ".editorconfig", ".gitignore", ".ci"}
UMBRELLAS = {"dsl/dsl.h", "kernels/kernels.h", "sharding/sharding.h", "golden/golden.h"}
MAX_LINES = 300
# Numbered as in the semantics of JAX's tests; tests/behaviours.tsv. Of sharding, and of one core's Pallas (P1, ...).
BEHAVIOURS = {str(n) for n in range(1, 74)} | {f"P{n}" for n in (*range(1, 63), *range(80, 99))}
SOURCE = {".h", ".cc", ".py"}
TEXT = SOURCE | {".md", ".build", ".txt", ".tsv"}

failures = []


def fail(path, line, what):
    failures.append(f"{path}:{line}: {what}" if line else f"{path}: {what}")


def tracked():
    try:
        out = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], capture_output=True, check=True)
        return [p for p in out.stdout.decode().split("\n") if p and (ROOT / p).is_file()]
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        files = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
        return [str(p) for p in files if p.parts[0] != ".git" and not p.parts[0].startswith("build") and p.suffix != ".pyc"]


def check_include(path, number, target):
    top = path.split("/")[0]
    target_top = target.split("/")[0]
    if top in LAYERS and target_top in LAYERS and LAYERS.index(target_top) > LAYERS.index(top):
        fail(path, number, f"{top}/ includes {target}: layers point the other way ({' <- '.join(LAYERS)})")
    if top in LAYERS and target_top in ("bench", "tests"):
        fail(path, number, f"the library includes {target}")
    if top in LAYERS and target in UMBRELLAS:
        fail(path, number, f"umbrella header {target} is for users, not for the library")
    if target.startswith("hwy/") and top in LAYERS and not (top == "kernels"):
        fail(path, number, "hwy/ belongs into kernels/")
    if target == "omp.h" and top in LAYERS and not OPENS_THREADS.fullmatch(path):
        fail(path, number, "threads are opened in dsl/grid*.cc only")
    name = path.split("/")[-1]
    if top == "kernels" and name.startswith("reference") and target_top == "kernels" and not target.split("/")[-1].startswith("reference"):
        fail(path, number, f"the oracle includes {target}: it shares nothing with the kernels")
    if top == "kernels" and name.startswith("reference") and target in ("dsl/grid.h", "dsl/step.h"):
        fail(path, number, f"the oracle includes {target}: it is plain loops")


def check_source(path, lines):
    if not any("SPDX-License-Identifier: Apache-2.0" in l for l in lines[:3]):
        fail(path, 0, "no SPDX line among the first three")
    if len(lines) > MAX_LINES:
        fail(path, 0, f"{len(lines)} lines, at most {MAX_LINES}: split it by nature")
    top = path.split("/")[0]
    for number, line in enumerate(lines, 1):
        include = re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)
        if include:
            check_include(path, number, include.group(1))
        if re.search(r"#\s*pragma\s+omp", line) and top in LAYERS and not OPENS_THREADS.fullmatch(path):
            fail(path, number, "#pragma omp: threads are opened in dsl/grid*.cc only")
        if re.search(r"\bstd::(thread|jthread|async)\b(?!::)", line) and top in LAYERS and not OWNS_THREADS.fullmatch(path):
            fail(path, number, "threads are created in dsl/grid_threads.cc and sharding/device_threads.cc only")
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and path != "tests/tree_check.py":
            fail(path, number, "a note to oneself: do it or file an issue")
    if top == "kernels" and any(re.match(r'\s*#\s*include\s+<hwy/', l) for l in lines) and not path.endswith("-inl.h") and not (
            path.endswith(".cc") and any("define HWY_TARGET_INCLUDE" in l for l in lines)):
        fail(path, 0, "hwy/ appears in -inl.h files and the .cc that dispatches, never elsewhere")
    if path in INSTALLED:
        check_documented(path, lines)
    if path.endswith(".h") and "#pragma once" not in "\n".join(lines) and "-inl.h" not in path and top in LAYERS:
        fail(path, 0, "no #pragma once")


def installed_headers():
    """What a layer's meson.build lists as `LAYER_headers`."""
    out = set()
    for layer in LAYERS:
        build = ROOT / layer / "meson.build"
        for block in re.findall(r"\w+_headers = \[(.*?)\]", build.read_text(encoding="utf-8") if build.exists() else "", re.S):
            out |= {f"{layer}/{name}" for name in re.findall(r"'([^']+)'", block)}
    return out


def check_documented(path, lines):
    """Each paragraph of declarations at namespace scope begins with a comment or follows a section's
    ("// ---- Moving"). What the comment at the top of the file names ("// Grid: ...") and what only our
    own code sees (namespace detail) may do without."""
    hidden, section, previous, depth = False, False, "", 0
    top = next((l for l in lines if l.startswith("// ") and "SPDX" not in l), "")
    subject = re.match(r"// (\w+)\b.*:", top)
    own = re.compile(rf"(class|struct) {subject.group(1)}\b" if subject else r"(?!)")
    for number, line in enumerate(lines, 1):
        if re.match(r"namespace (\w+::)?detail\b", line):
            hidden = True
        elif line.startswith("}  // namespace") and "detail" in line:
            hidden = False
        section = section or line.startswith("// ----")
        declares = re.match(r"[A-Za-z]", line) and not re.match(r"(namespace|using|extern|class \w+;|struct \w+;)", line)
        if declares and previous == "" and depth == 0 and not hidden and not section and not own.search("".join(lines[number - 1:number + 1])):
            fail(path, number, "a public declaration without a comment: " + line.strip()[:60])
        if not line.startswith(("namespace", "}  // namespace")):
            code = re.sub(r'//.*|"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', "", line)
            depth += code.count("{") + code.count("(") - code.count("}") - code.count(")")
        previous = line.strip()


def check_text(path, text):
    if text and not text.endswith("\n"):
        fail(path, 0, "no newline at the end")
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip() and not path.endswith(".tsv"):
            fail(path, number, "blanks at the end of the line")
        if re.search("[\u200b-\u200f\u202a-\u202e\u2060\ufeff\u00a0]", line):
            fail(path, number, "invisible character")
        if MACHINE_PATH.search(line):
            fail(path, number, "a path of one machine")
        if "\t" in line and pathlib.PurePath(path).suffix in SOURCE:
            fail(path, number, "tab")


def check_readme():
    """Each ```cpp block whose first line is `// FILE` stands in that file, line for line."""
    readme = ROOT / "README.md"
    if not readme.exists():
        fail("README.md", 0, "missing")
        return
    text = readme.read_text(encoding="utf-8")
    for block in re.findall(r"```cpp\n// (\S+)\n(.*?)```", text, re.S):
        source = ROOT / block[0]
        if not source.exists():
            fail("README.md", 0, f"quotes {block[0]}, which does not exist")
            continue
        squeeze = lambda s: re.sub(r"\s+", " ", s).strip()
        if squeeze(block[1]) not in squeeze(source.read_text(encoding="utf-8")):
            fail("README.md", 0, f"the code quoted from {block[0]} is not in it")


def check_behaviours():
    """tests/behaviours.tsv: for each numbered behaviour the test cases that show it, which exist, or why
    it does not apply."""
    table, cases, seen = ROOT / "tests/behaviours.tsv", {}, set()
    for number, line in enumerate(table.read_text(encoding="utf-8").split("\n")[1:-1], 2):
        behaviour, path, case = line.split("\t")
        seen.add(behaviour)
        if path == "-":
            continue
        if path not in cases:
            text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
            literals = re.findall(r'TEST_CASE(?:_TEMPLATE)?\(\s*((?:"(?:\\.|[^"\\])*"\s*)+)', text)
            cases[path] = {"".join(re.findall(r'"((?:\\.|[^"\\])*)"', literal)) for literal in literals}
        if case not in cases[path]:
            fail("tests/behaviours.tsv", number, f"no test case '{case}' in {path}")
    for behaviour in sorted(BEHAVIOURS - seen):
        fail("tests/behaviours.tsv", 0, f"behaviour {behaviour} is missing")
    for behaviour in sorted(seen - BEHAVIOURS):
        fail("tests/behaviours.tsv", 0, f"behaviour {behaviour} is none")


INSTALLED = installed_headers()


def main():
    paths = tracked()
    for path in paths:
        if path.split("/")[0] not in TOP:
            fail(path, 0, "not part of the layout in the design")
        p = ROOT / path
        data_file = path.startswith(("tests/runs/", "tests/files/", "tests/fuzz/corpus/"))
        if data_file or p.suffix not in TEXT and path not in ("run", ".ci/run"):
            continue
        try:
            text = p.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            fail(path, 0, "not UTF-8")
            continue
        check_text(path, text)
        if p.suffix in SOURCE:
            check_source(path, text.rstrip("\n").split("\n"))
    check_readme()
    check_behaviours()
    for line in failures:
        print(line)
    print(f"{len(paths)} files, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
