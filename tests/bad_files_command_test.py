#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hostile files of tests/files/bad_files through the kref command, as bad_files.tsv gives them:
each refused for its reason, in one line, within two seconds of processor time and 200 MB.

With --sanitized: no limit on memory, of which a sanitizer needs terabytes of address space.
"""
import csv
import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest
import sys

from command import KREF, ROOT

SECONDS, BYTES = 2, 200_000_000
SANITIZED = "--sanitized" in sys.argv


def limits():
    slow = 10 if SANITIZED else 1
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * slow, SECONDS * slow))
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))


def run(words, folder):
    """(exit status or -signal, standard output, standard error, peak resident bytes)"""
    # Stacks of a team count as memory: two threads whatever the machine.
    env = os.environ | {"OMP_NUM_THREADS": "2"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        p = subprocess.Popen(["timeout", "60", str(KREF), *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                             env=env, preexec_fn=limits)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read().decode(errors="replace"))
        return p.returncode, *texts, usage.ru_maxrss << 10


class BadFilesCommandTest(unittest.TestCase):
    def test_every_row(self):
        folder = ROOT / "tests" / "files"
        with open(folder / "bad_files.tsv", encoding="utf-8", newline="") as f:
            rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
        self.assertGreaterEqual(len(rows), 87)
        refused = 0
        for row in rows:
            with self.subTest(file=row["file"], fault=row["fault"]):
                code, out, err, resident = run(row["command"].split(), folder)
                self.assertEqual(code, int(row["exit"]), err)
                if not SANITIZED:
                    self.assertLess(resident, BYTES)
                if row["exit"] == "0":
                    self.assertTrue(out.startswith("ok"), out)
                    self.assertEqual(err, "")
                    continue
                refused += 1
                name = pathlib.PurePath(row["file"]).name
                self.assertEqual(out, "")
                self.assertTrue(err.startswith("kref: ") and err.count("\n") == 1, err)
                self.assertIn(name, err)
                self.assertRegex(err.replace(name, ""), re.compile(row["mentions"], re.I))
        self.assertGreaterEqual(refused, 80)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
