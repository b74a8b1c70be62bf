#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kref run`, `list`, `describe`, `version`, help, and what happens to the streams."""
import json
import os
import pty
import resource
import subprocess
import sys
import unittest

from command import GOOD, KREF, RUNS, CommandTest, kref, read, write


class Run(CommandTest):
    def test_run_writes_a_run_that_checks(self):
        out = self.tmp / "out.safetensors"
        for file in (GOOD, RUNS / "m16-trans-both.safetensors", RUNS / "m33-int8.safetensors"):
            self.assertEqual(kref("run", file, "--out", out)[::2], (0, ""))
            self.assertEqual(kref("check", out)[0], 0)
            (meta, tensors), (before, old) = read(out), read(file)
            self.assertTrue(meta["source"].startswith("kref "))
            self.assertEqual(json.loads(meta["set"]), json.loads(before["set"]))
            self.assertEqual(set(tensors), set(old))
            self.assertEqual(tensors["in.x"], old["in.x"])

    def test_run_replaces_a_wrong_output(self):
        bad = self.mutant()
        self.assertEqual(kref("run", bad, "--out", bad)[::2], (0, ""))
        self.assertEqual(kref("check", bad)[0], 0)

    def test_run_of_arrays(self):
        given = self.arrays()
        z, npz = self.tmp / "new.npy", self.tmp / "new.npz"
        code, out, err = kref("run", "matmul", *given, "--out", z)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("F32[7,13]", out)
        self.assertEqual(z.read_bytes()[-91 * 4:], read(GOOD)[1]["out.z"][2])  # exact in the index
        self.assertEqual(kref("run", "matmul", *given, "--out", npz, "--quiet"), (0, "", ""))
        self.assertEqual(kref("check", "matmul", *given, "--actual", f"z={npz}")[0], 0)
        self.assertEqual(kref("run", "matmul", *given, "--out", f"z={npz}:product")[0], 0)
        self.assertEqual(kref("check", "matmul", *given, "--actual", f"z={npz}:product")[0], 0)
        code, out, _ = kref("run", "matmul", *given, "--out", z, "--json")
        self.assertEqual(json.loads(out)["outputs"], [{"output": "z", "dtype": "F32", "shape": [7, 13]}])

    def test_probe_writes_a_run_that_checks_until_an_output_is_replaced(self):
        out = self.tmp / "probe.safetensors"
        for kind in ("uniform", "select", "position"):
            code, text, err = kref("run", "attention", "--probe", kind, "--shape", "q=f32[1,4,40,16]", "--shape",
                                   "k=f32[1,2,40,16]", "--set", "causal=top_left", "--out", out)
            self.assertEqual((code, err), (0, ""))
            self.assertIn("F32[1,4,40,16]", text)
            self.assertEqual(kref("check", out)[0], 0)
            meta, tensors = read(out)
            self.assertEqual(meta["probe"], kind)
            self.assertEqual(json.loads(meta["set"]), {"causal": "top_left", "scale": 0.25})
            # What a kernel does that sees one key too many, except in the last row.
            self.assertEqual(kref("run", out, "--set", "causal=none", "--set", "window=[null,1]", "--out", out)[0], 0)
            wrong = read(out)[1]["out.o"]
            write(out, meta, {**tensors, "out.o": wrong})
            code, text, _ = kref("check", out, "--json")
            self.assertEqual(code, 0 if kind == "position" else 1)
            if kind == "uniform":
                # On a ramp that is also each row in the place of the one before.
                guess = json.loads(text)["outputs"][0]
                self.assertIn("causal off by one", guess["pattern"] + guess["detail"])
        self.assertEqual(kref("run", "decode_attention", "--probe", "select", "--out", out)[0], 0)
        self.assertEqual(kref("check", out)[0], 0)
        run = RUNS / "attention" / "a004-square-33.safetensors"
        self.assertEqual(kref("run", run, "--probe", "position", "--out", out)[0], 0)
        self.assertEqual(kref("check", out)[0], 0)
        self.refused("run", "attention", "--probe", "uniforn", "--out", out, mentions="uniform")
        self.refused("run", "matmul", "--probe", "uniform", "--out", out, mentions="no probe")
        self.refused("run", GOOD, "--shape", "x=f32[2,2]", "--out", out, mentions="--probe")

    def test_run_refuses(self):
        given = self.arrays()
        self.refused("run", "matmul", *given, mentions="--out")
        self.refused("run", "matmul", *given, "--out", self.tmp / "z.txt", mentions="z.txt")
        self.refused("run", "matmul", *given, "--out", self.tmp / "no" / "z.npy", mentions="z.npy")
        self.refused("run", "matmul", *given, "--out", f"w={self.tmp}/z.npy", mentions="no output 'w'")
        self.refused("run", "matmul", *given, "--actual", "z=z.npy", mentions="--actual")
        self.refused("run", GOOD, GOOD, "--out", self.tmp / "z.npy", mentions="one run")
        (self.tmp / "d.npy").mkdir()
        self.refused("run", "matmul", *given, "--out", self.tmp / "d.npy", mentions="d.npy")

    def test_threads_that_the_system_does_not_give(self):
        def little():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        if kref("version", preexec_fn=little)[0] != 0:
            self.skipTest("a sanitizer needs more address space")
        many = ["run", RUNS / "m21-tiles.safetensors", "--set", "tile=[1,1,50]", "--out", self.tmp / "z.npy"]
        for threads in (1000, 1024):
            code, out, err = kref(*many, "--threads", threads, preexec_fn=little)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(f"{threads} threads were asked for, the system gives this process ", err)
        self.assertEqual(kref(*many, "--threads", 8, preexec_fn=little)[0], 0)

    def test_same_bits_for_every_thread_count_and_tile(self):
        out, seen = self.tmp / "z.npy", set()

        def run(*options, **more):
            self.assertEqual(kref("run", RUNS / "m21-tiles.safetensors", *options, "--out", out, **more)[0], 0)
            seen.add(out.read_bytes())
            out.unlink()

        for threads in ("1", "2", "3", "8"):
            for tile in ("[8,8,8]", "[16,32,24]", "[1000,1000,1000]", "[1,1,1]", "[40,7,2147483647]"):
                run("--threads", threads, "--set", f"tile={tile}")
        for seed in ("0", "1", "18446744073709551615"):
            run("--seed", seed, env=os.environ | {"KREF_CHECKS": "full"})
        self.assertEqual(len(seen), 1)

    def test_the_strict_checks_are_named(self):
        self.refused("run", RUNS / "m21-tiles.safetensors", "--out", self.tmp / "z.npy", mentions="KREF_CHECKS",
                     env=os.environ | {"KREF_CHECKS": "ful"})


class About(CommandTest):
    def test_list_and_describe(self):
        code, out, err = kref("list")
        self.assertEqual((code, err), (0, ""))
        names = [line.split()[0] for line in out.splitlines()]
        self.assertIn("matmul", names)
        self.assertEqual([json.loads(line)["op"] for line in kref("list", "--json")[1].splitlines()], names)
        for name in names:
            code, text, _ = kref("describe", name)
            self.assertEqual(code, 0)
            described = json.loads(kref("describe", name, "--json")[1])
            for key in ("inputs", "outputs", "options"):
                for entry in described[key]:
                    self.assertIn(entry["name"], text)
            self.assertIn("sources", text)
        self.refused("describe", "matmull", mentions="did you mean 'matmul'?")
        self.refused("describe", mentions="kref list")

    def test_version_and_help(self):
        self.assertRegex(kref("version")[1], r"^kref \d+\.\d+\.\d+\n$")
        self.assertEqual(kref("--version")[1], kref("version")[1])
        self.assertEqual(json.loads(kref("version", "--json")[1])["run_file"], "1")
        for args in (["--help"], ["check", "--help"], ["run", "-h"]):
            code, out, err = kref(*args)
            self.assertEqual((code, err), (0, ""))
            self.assertIn("Usage: kref", out)
        code, out, err = kref()
        self.assertEqual((code, out), (2, ""))
        self.assertIn("Usage", err)

    def test_unknown_words(self):
        self.refused("chek", GOOD, mentions="did you mean 'check'?")
        self.refused("cost", GOOD, mentions="cost")
        self.refused("check", mentions="expected a run file")
        self.refused("check", "matmu", mentions="did you mean 'matmul'?")
        self.refused("check", GOOD, "--jsn", mentions="'--jsn'")
        self.refused("check", GOOD, "--out", "z.npy", mentions="'--out'")
        self.refused("check", GOOD, "--set", mentions="--set")
        self.refused("check", self.tmp, mentions="directory")


class Streams(CommandTest):
    def test_closed_pipe(self):
        p = subprocess.Popen([str(KREF), "check", *map(str, sorted(RUNS.glob("*.safetensors")))],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.close()
        self.assertEqual(p.stderr.read(), b"")
        p.stderr.close()
        self.assertEqual(p.wait(timeout=60), 2)

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            p = subprocess.run([str(KREF), "check", str(GOOD)], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.returncode, 2)
        self.assertIn("standard output", p.stderr)

    def test_progress_on_a_terminal_only(self):
        try:
            ours, theirs = pty.openpty()
        except OSError as e:  # a container may have none
            self.skipTest(str(e))
        p = subprocess.run([str(KREF), "check", str(GOOD)], stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        shown = os.read(ours, 4096).decode()
        os.close(ours)
        self.assertIn("1 of 1", shown)
        self.assertTrue(p.stdout.startswith("ok "), p.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
