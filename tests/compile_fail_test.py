#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each mistake in compile_fail.cc must not compile, and the same program without it must.
Arguments: the source root, then the compiler's command."""
import concurrent.futures
import os
import re
import subprocess
import sys
import unittest

ROOT, COMPILER = sys.argv[1], sys.argv[2:]
SOURCE = os.path.join(ROOT, "tests", "compile_fail.cc")


def compiles(mistake, *more):
    command = [*COMPILER, "-std=c++20", "-fopenmp", "-fsyntax-only", "-I", ROOT, f"-D{mistake}", *more, SOURCE]
    return subprocess.run(command, capture_output=True, text=True)


class CompileFail(unittest.TestCase):
    def test_each_mistake(self):
        with open(SOURCE, encoding="utf-8") as f:
            mistakes = re.findall(r"^#(?:el)?if defined\((\w+)\)", f.read(), re.MULTILINE)
        self.assertGreaterEqual(len(mistakes), 20)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            right = list(pool.map(compiles, mistakes))
            wrong = list(pool.map(lambda m: compiles(m, "-DFAIL"), mistakes))
        for mistake, r, w in zip(mistakes, right, wrong):
            with self.subTest(mistake):
                self.assertEqual(r.returncode, 0, f"{mistake}: its right form does not compile\n{r.stderr}")
                self.assertNotEqual(w.returncode, 0, f"{mistake} compiles")
                self.assertIn("error", w.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
