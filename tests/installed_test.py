#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a temporary place, builds a ten-line program against it with pkg-config,
runs it, and runs the installed command. Arguments: the build directory, the source directory, the compiler.
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
        env = os.environ | {"PKG_CONFIG_PATH": str(pc.parent)}
        query = ["pkg-config", f"--define-variable=prefix={prefix}", "--static"]
        flags = run([*query, "--cflags", "kref"], env=env).split()
        libs = run([*query, "--libs", "kref"], env=env).split()
        (scratch / "program.cc").write_text(PROGRAM)
        run([*compiler, "-std=c++20", *flags, "program.cc", *libs, "-o", "program"], cwd=scratch)
        printed = run([scratch / "program"]).strip()
        if printed != "16":
            sys.exit(f"the program printed {printed!r}, expected 16")
        printed = run([prefix / "bin" / "kref", "check", f"{source}/tests/runs/m02-primes.safetensors"])
        if not printed.startswith("ok"):
            sys.exit(f"the installed command printed {printed!r}")
    print("installed, built against, run")


if __name__ == "__main__":
    main()
