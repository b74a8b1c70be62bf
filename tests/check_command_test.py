#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kref check` as a user meets it: lines, JSON, separate arrays, options, errors by name."""
import array
import json
import struct
import sys
import unittest

from command import GOOD, RUNS, CommandTest, kref, read, write, write_npy


class Check(CommandTest):
    def test_every_run_is_ok(self):
        files = sorted(RUNS.glob("*.safetensors"))
        self.assertGreaterEqual(len(files), 60)
        code, out, err = kref("check", *files)
        self.assertEqual((code, err), (0, ""))
        lines = out.splitlines()
        self.assertEqual(len(lines), len(files))
        for line, file in zip(lines, files):
            self.assertRegex(line, r"^ok +\S+: \w+: (\d+) of \1 elements compared, largest error \S+ of its bound$")
            self.assertIn(str(file), line)

    def test_every_refusal_is_one_line_that_names_the_file(self):
        files = sorted([*RUNS.glob("refuse/*.safetensors"), *RUNS.glob("sharded/refuse/*.safetensors")])
        self.assertGreaterEqual(len(files), 21)
        for file in files:
            self.refused("check", file, mentions=str(file))

    def test_mismatch(self):
        bad = self.mutant()
        code, out, err = kref("check", bad)
        self.assertEqual((code, err), (1, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^MISMATCH +\S+bad.safetensors: matmul: 91 of 91 elements compared, 1 wrong, "
                                   r"largest error \S+ of its bound$")
        self.assertTrue(1 < len(lines) <= 26, lines)
        self.assertIn("z", lines[1])

    def test_report_of_several_outputs(self):
        meta, tensors = read(RUNS / "attention" / "a021-window-no-left.safetensors")
        for name in ("out.o", "out.lse"):
            dtype, shape, raw = tensors[name]
            tensors[name] = (dtype, shape, struct.pack("<f", 1e6) * (len(raw) // 4))
        bad = self.tmp / "both.safetensors"
        write(bad, meta, tensors)
        code, out, _ = kref("check", bad)
        lines = out.splitlines()
        self.assertEqual(code, 1)
        self.assertRegex(lines[0], "^MISMATCH .* 360 of 360 elements compared, 360 wrong, ")
        self.assertLessEqual(len(lines), 26)
        self.assertTrue(all(line.startswith("  ") for line in lines[1:]))
        outputs = json.loads(kref("check", "--json", bad)[1])["outputs"]
        self.assertEqual({o["output"]: o["wrong"] for o in outputs}, {"o": 320, "lse": 40})

    def test_one_bad_file_among_several_does_not_hide_the_others(self):
        bad = self.mutant()
        code, out, err = kref("check", GOOD, self.tmp / "absent.safetensors", bad, GOOD)
        self.assertEqual(code, 2)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("absent.safetensors", err)
        verdicts = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
        self.assertEqual(verdicts, ["ok", "MISMATCH", "ok"])
        self.assertEqual(kref("check", bad, GOOD)[0], 1)

    def test_quiet(self):
        self.assertEqual(kref("check", "--quiet", GOOD), (0, "", ""))
        code, out, _ = kref("check", "--quiet", GOOD, self.mutant())
        self.assertEqual(code, 1)
        self.assertTrue(out.startswith("MISMATCH"))

    def test_json(self):
        bad, absent = self.mutant(add=float("nan")), self.tmp / "absent.safetensors"
        code, out, err = kref("check", "--json", GOOD, bad, absent)
        self.assertEqual(code, 2)
        self.assertIn("absent", err)
        good, wrong, error = [json.loads(line, parse_constant=self.fail) for line in out.splitlines()]
        self.assertEqual((good["run"], good["op"], good["verdict"], good["exit"]), (str(GOOD), "matmul", "ok", 0))
        self.assertEqual((good["compared"], good["elements"], good["wrong"]), (91, 91, 0))
        self.assertLessEqual(good["largest_error"], 1)
        self.assertEqual((wrong["verdict"], wrong["exit"], wrong["wrong"]), ("mismatch", 1, 1))
        self.assertEqual(wrong["largest_error"], "inf")
        output = wrong["outputs"][0]
        self.assertEqual((output["output"], output["wrong"]), ("z", 1))
        self.assertEqual((output["dtype"], output["shape"]), ("F32", [7, 13]))
        self.assertEqual(output["first_wrong_tiles"][0]["wrong"], 1)
        self.assertEqual((output["worst"]["index"], output["worst"]["actual"]), ([0, 3], "nan"))
        self.assertEqual((error["verdict"], error["exit"], error["op"]), ("error", 2, None))
        self.assertIn("absent.safetensors", error["error"])

    def test_separate_arrays(self):
        given = self.arrays()
        z = ["--actual", f"z={self.tmp}/z.npy"]
        code, out, err = kref("check", "matmul", *given, *z)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^ok +matmul: 91 of 91 elements compared")
        self.refused("check", "matmul", *given, mentions="out.z")
        self.refused("check", "matmul", *given[2:], *z, mentions="in.x")
        self.refused("check", "matmul", *given, *given[:2], *z, mentions="--in x is given twice")
        self.refused("check", "matmul", *given, *z, "--in", f"w={self.tmp}/x.npy", mentions="unknown tensor 'in.w'")
        self.refused("check", "matmul", "--in", "x", mentions="expected NAME=VALUE")
        self.refused("check", "matmul", GOOD, mentions="stands alone")
        self.refused("check", GOOD, *given, mentions="--in")
        self.refused("check", "matmul", *given, "--actual", f"z={self.tmp}", mentions="directory")

    def test_members(self):
        """A run file is safetensors with any names: members are named, or named like the operand."""
        tensors = {"a": read(GOOD)[1]["in.x"], "y": read(GOOD)[1]["in.y"], "z": read(GOOD)[1]["out.z"]}
        both = self.tmp / "both.safetensors"
        write(both, {}, tensors)
        code, _, err = kref("check", "matmul", "--in", f"x={both}:a", "--in", f"y={both}", "--actual", f"z={both}")
        self.assertEqual((code, err), (0, ""))
        self.refused("check", "matmul", "--in", f"x={both}", "--in", f"y={both}", mentions="it holds a, y, z")
        self.refused("check", "matmul", "--in", f"x={both}:b", mentions="no array named 'b'")

    def test_dtype(self):
        meta, tensors = read(RUNS / "m22-bf16.safetensors")
        for name, (dtype, shape, raw) in tensors.items():
            self.assertEqual(dtype, "BF16")
            write_npy(self.tmp / f"{name.split('.')[1]}.npy", "|V2", shape, raw)
        given = ["--in", f"x={self.tmp}/x.npy", "--in", f"y={self.tmp}/y.npy", "--actual", f"z={self.tmp}/z.npy"]
        hints = [word for name in "xyz" for word in ("--dtype", f"{name}=bf16")]
        self.assertEqual(kref("check", "matmul", *given, *hints)[::2], (0, ""))
        self.refused("check", "matmul", *given, *hints[2:], mentions="x.npy")
        self.refused("check", "matmul", *given, "--dtype", "x=f32", mentions="x.npy")
        self.refused("check", "matmul", *given, "--dtype", "x=bf17", mentions="unknown element type 'bf17'")
        self.refused("check", "matmul", *given, "--dtype", "w=bf16", mentions="--dtype w")

    def partials(self, run, change=lambda values: None):
        """The outputs of a run as those of its one block of keys: o in a file as V2, lse in another."""
        meta, tensors = read(run)
        o, lse = tensors["out.o"], tensors["out.lse"]
        self.assertEqual((o[0], lse[0]), ("BF16", "F32"))
        values = array.array("H", o[2])
        change(values)
        write_npy(self.tmp / "o.npy", "<V2", [1, *o[1]], values.tobytes())
        write(self.tmp / "lse.safetensors", {}, {"lse": ("F32", [1, *lse[1]], lse[2])})
        return ["--partial", self.tmp / "o.npy", "--partial", self.tmp / "lse.safetensors", "--dtype", "partial.o=bf16"]

    def test_partial_results(self):
        run = self.bf16_attention()
        right = self.partials(run)
        code, out, err = kref("check", run, *right)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^ok .* of its bound; after 1 key blocks \d+ elements right, largest error \S+ of its bound")
        given = ["--partial", f"o={self.tmp}/o.npy", "--partial", f"lse={self.tmp}/lse.safetensors:lse", *right[4:]]
        self.assertEqual(kref("check", run, *given)[::2], (0, ""))

        def flip(values):
            values[7] ^= 0x8000
        wrong = self.partials(run, flip)
        code, out, err = kref("check", run, *wrong)
        self.assertEqual((code, err), (1, ""))
        lines = out.splitlines()
        self.assertIn("MISMATCH", lines[0])
        self.assertNotIn("wrong", lines[0])
        self.assertRegex(lines[1], r"^  partial results: 1 of \d+ elements wrong, though the outputs are right$")
        self.assertIn("first depart at key block 0 (keys 0..", lines[2])
        partial = json.loads(kref("check", "--json", run, *wrong)[1])["partial"]
        self.assertEqual((partial["blocks"], partial["wrong"], partial["first"]["block"]), (1, 1, 0))
        self.assertEqual(partial["worst"], [])

    def test_partial_results_of_a_wrong_run(self):
        run = self.bf16_attention()
        states = self.partials(run)
        meta, tensors = read(run)
        for name in ("out.o", "out.lse"):
            dtype, shape, raw = tensors[name]
            tensors[name] = (dtype, shape, b"\x77" * len(raw))
        bad = self.tmp / "wrong.safetensors"
        write(bad, meta, tensors)
        code, out, _ = kref("check", bad, *states)
        lines = out.splitlines()
        self.assertEqual(code, 1)
        self.assertLessEqual(len(lines), 26)
        self.assertRegex(lines[-1], "partial results: all .* are right: the fault lies behind the last key block")

    def test_partial_results_count_what_is_not_judged(self):
        run = RUNS / "attention" / "a010-long-q-bottom.safetensors"
        tensors = read(run)[1]
        states = self.tmp / "states.safetensors"
        write(states, {}, {name: (t[0], [1, *t[1]], t[2]) for name in ("o", "lse") for t in [tensors[f"out.{name}"]]})
        code, out, _ = kref("check", run, "--partial", states)
        self.assertEqual(code, 0)
        # Four of seven rows, of four heads, begin before the first key.
        self.assertRegex(out, r"after 1 key blocks 108 .*, 16 states of rows that had seen no key not judged$")
        self.assertEqual(json.loads(kref("check", "--json", run, "--partial", states)[1])["partial"]["unseen"], 16)

    def test_partial_results_are_refused_by_name(self):
        run = self.bf16_attention()
        right = self.partials(run)
        self.refused("check", run, *right[:4], mentions="--dtype")
        self.refused("check", run, *right, "--block-kv", "0", mentions="--block-kv '0'")
        self.refused("check", run, *right, "--block-kv", "1", mentions="partial.o has N = 1 states, expected")
        self.refused("check", run, *right, *right[:2], mentions="--partial o is given twice")
        self.refused("check", run, "--partial", f"partial.o={self.tmp}/o.npy",
                     mentions="'partial.o' is none of o, lse, acc, m, l, and there is no file of that name")
        odd = self.tmp / "block=1.safetensors"
        odd.write_bytes((self.tmp / "lse.safetensors").read_bytes())
        self.refused("check", run, "--partial", odd, mentions="partial.o is missing")
        self.refused("check", run, *right, "--dtype", "partial.m=f32", mentions="--dtype partial.m: no partial result")
        self.refused("check", run, *right, "--dtype", "q=bf16", mentions="--dtype go with the name of an operation")
        self.refused("check", run, run, *right, mentions="--partial: expected one run or operation, found 2")
        self.refused("check", run, "--block-kv", "8", mentions="--block-kv: expected with --partial")
        self.refused("check", GOOD, *right, mentions="only attention and decode_attention have partial results")
        self.refused("check", run, "--partial", GOOD, mentions="--partial: array 'in.x' is none of o, lse, acc, m, l")
        self.refused("check", run, "--partial", self.tmp / "none.npy", mentions="none.npy")
        self.refused("check", run, "--partial", f"o={GOOD}:in.x", mentions="has rank 2, expected 5: [N, B, H, T, E]")

    def bf16_attention(self):
        for file in sorted(RUNS.glob("attention/*.safetensors")):
            meta, tensors = read(file)
            if tensors["out.o"][0] == "BF16" and "out.lse" in tensors and "layout" not in meta["set"]:
                return file
        self.fail("there is no such run")

    def test_set(self):
        for value in ("f32", '"f32"'):
            self.assertEqual(kref("check", GOOD, "--set", f"precision={value}")[0], 0)
        self.assertEqual(kref("check", GOOD, "--set", "tile=[4,4,4]", "--set", "trans_x=false")[0], 0)
        self.refused("check", GOOD, "--set", "precision=bf17", mentions='expected one of "bf16"')
        self.refused("check", GOOD, "--set", "precison=f32", mentions="did you mean 'precision'?")
        self.refused("check", GOOD, "--set", "tile=[4,4", mentions="--set tile")
        self.refused("check", GOOD, "--set", "tile=" + "[" * 100000, mentions="--set tile")
        self.refused("check", GOOD, "--set", "precision", mentions="expected NAME=VALUE")
        self.refused("check", GOOD, "--set", "trans_x=1", mentions="expected true or false")
        # trans_y turns x (7, 11), y (11, 13) into no product at all: the option reaches the rules.
        self.refused("check", GOOD, "--set", "trans_y=true", mentions="k = 13")

    def test_placement(self):
        code, _, err = kref("check", RUNS / "m16-trans-both.safetensors", "--mesh", "X=3", "--in-spec", "x=X,None,None",
                            "--in-spec", "y=P('X', None, None)", "--out-spec", "z=X")
        self.assertEqual((code, err), (0, ""))
        self.refused("check", GOOD, "--mesh", "X=2", "--in-spec", "x=X", mentions="m02-primes")
        self.refused("check", GOOD, "--mesh", "X=2", "--in-spec", "x=Y", mentions="Y")
        self.refused("check", GOOD, "--in-spec", "x=X", mentions="mesh")
        self.refused("check", GOOD, "--mesh", "X=2048", mentions="1024")
        self.refused("check", GOOD, "--mesh", "X", mentions="mesh")
        self.refused("check", GOOD, "--mesh", "X=2", "--in-spec", "q=X", mentions="'q'")
        for file in sorted(RUNS.glob("sharded/*.safetensors")):
            self.assertEqual(kref("check", file)[::2], (0, ""), file)

    def test_numbers(self):
        for n in ("1", "2", "3"):
            self.assertEqual(kref("check", GOOD, "--threads", n, "--seed", n)[0], 0)
        for flag in ("--threads", "--seed"):
            for bad in ("-1", "two", "1.5", "", " 1", "1x", "99999999999999999999999"):
                self.refused("check", GOOD, flag, bad, mentions=flag)
        self.refused("check", GOOD, "--threads", "0", mentions="--threads '0'")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
