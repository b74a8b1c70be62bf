#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a temporary place, builds two short programs against it with pkg-config,
runs them, and runs the installed command. Arguments: the build directory, the source directory, the compiler.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """
#include <cstdio>
#include "dsl/dsl.h"
#include "kernels/kernels.h"
int main() {
  kref::Tensor<float, 2> x({3, 2}, 2.0f), y({2, 5}, 4.0f), z({3, 5});
  kref::matmul(x.ref(), y.ref(), z.ref());
  std::printf("%g\\n", static_cast<double>(z(2, 4)));
}
"""

# Judges a run, and once more with an expectation that is off by 100 bounds in one element.
JUDGE = """
#include <cstdio>
#include "golden/judge.h"
#include "golden/operation.h"
#include "golden/run.h"
int main(int, char** argv) {
  const kref::Run run = kref::read_run(argv[1]);
  const kref::Operation& operation = kref::find_operation(run.op);
  operation.validate(run, true);
  for (kref::Expectation& e : operation.expect(run)) {
    const kref::Array& actual = run.out.at(e.output);
    std::printf("%s %d", e.output.c_str(), static_cast<int>(kref::judge(e, actual).wrong));
    e.value[3] += 100 * e.likely[3];
    const kref::Verdict off = kref::judge(e, actual);
    std::printf(" %d %d\\n", static_cast<int>(off.wrong), static_cast<int>(off.worst.element));
  }
}
"""


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    build, source, *compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        prefix = scratch / "prefix"
        # A prefix inside the scratch directory, whatever this build was configured with.
        run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", str(scratch / "root")])
        found = list((scratch / "root").rglob("kref.pc"))
        if len(found) != 1:
            sys.exit(f"expected one kref.pc, found {found}")
        installed = pathlib.Path(next(l.split("=", 1)[1] for l in found[0].read_text().split("\n") if l.startswith("prefix=")))
        (scratch / "root" / installed.relative_to("/")).rename(prefix)
        pc = next(prefix.rglob("kref.pc"))
        for line in pc.read_text().split("\n"):
            words = line.split()
            if len(words) != len(set(words)):
                sys.exit(f"{pc.name} repeats itself: {line}")
        env = os.environ | {"PKG_CONFIG_PATH": str(pc.parent)}
        query = ["pkg-config", f"--define-variable=prefix={prefix}"]
        flags = run([*query, "--cflags", "kref"], env=env).split()
        libs = run([*query, "--libs", "kref"], env=env).split()
        good = f"{source}/tests/runs/m02-primes.safetensors"
        headers = sorted(str(h.relative_to(prefix / "include" / "kref")) for h in (prefix / "include").rglob("*.h"))
        everything = "".join(f'#include "{h}"\n' for h in headers)
        for name, text, arguments, expected in (("program", PROGRAM, [], "16"),
                                                ("judge", everything + JUDGE, [good], "z 0 1 3")):
            (scratch / f"{name}.cc").write_text(text)
            run([*compiler, "-std=c++20", *flags, f"{name}.cc", *libs, "-o", name], cwd=scratch)
            printed = run([scratch / name, *arguments]).strip()
            if printed != expected:
                sys.exit(f"{name} printed {printed!r}, expected {expected!r}")
        printed = run([prefix / "bin" / "kref", "check", good])
        if not printed.startswith("ok"):
            sys.exit(f"the installed command printed {printed!r}")
    print("installed, built against, run")


if __name__ == "__main__":
    main()
