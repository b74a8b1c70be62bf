#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The collectives through the command: every run ok, what is computed ok, a corrupted shard named by its device,
refusals by name, the plan of a run."""
import array
import json
import sys
import unittest

from command import ROOT, RUNS, CommandTest, kref, read, write, write_npy

FOLDER = RUNS / "collectives"


def ops():
    return sorted(FOLDER.glob("*.safetensors"))


class Collectives(CommandTest):
    def test_every_run_is_ok(self):
        code, out, err = kref("check", *ops())
        self.assertEqual((code, err), (0, ""))
        self.assertGreaterEqual(len(out.splitlines()), 60)
        self.assertEqual({line.split(": ")[1] for line in out.splitlines()},
                         {"all_gather", "psum", "pmean", "pmax", "pmin", "psum_scatter", "all_to_all", "ppermute",
                          "all_gather.vjp", "psum.vjp", "pmean.vjp", "psum_scatter.vjp", "all_to_all.vjp",
                          "ppermute.vjp"})
        self.assertEqual(kref("check", "--quiet", *ops()), (0, "", ""))

    def test_what_run_computes_is_ok(self):
        for file in ops():
            out = self.tmp / file.name
            self.assertEqual(kref("run", file, "--out", out, "--quiet"), (0, "", ""))
            self.assertEqual(read(out)[1].keys(), read(file)[1].keys())
        self.assertEqual(kref("check", "--quiet", *sorted(self.tmp.glob("*.safetensors"))), (0, "", ""))

    def test_every_refusal_is_one_line_that_names_the_file(self):
        files = sorted((FOLDER / "refuse").glob("*.safetensors"))
        self.assertEqual(len(files), 8)
        for file in files:
            self.refused("check", file, mentions=str(file))
        self.refused("run", files[0], "--out", self.tmp / "y.npy", mentions="names axis 'X' in dimensions 0 and 1")
        self.assertEqual(kref("check", *files)[0], 2)

    def sharded(self, change):
        """A 4 x 8 output of X=2,Y=4 whose shards are [2, 2], after change(y); its path and the report of check."""
        file = FOLDER / "psum-21-X2Y4-s32.safetensors"
        meta, tensors = read(file)
        x = array.array("i", [i * i % 97 - 40 for i in range(32)])
        meta |= {"op": "ppermute", "set": json.dumps({"axis_name": "X", "perm": [[0, 1], [1, 0]]}),
                 "in_specs": json.dumps({"x": ["X", "Y"]}), "out_specs": json.dumps({"y": ["X", "Y"]})}
        y = x[16:] + x[:16]
        change(y)
        tensors = {"in.x": ("I32", [4, 8], x.tobytes()), "out.y": ("I32", [4, 8], y.tobytes())}
        path = self.tmp / "bad.safetensors"
        write(path, meta, tensors)
        return path, *kref("check", path)

    def test_a_corrupted_shard_is_named_by_its_device(self):
        self.assertEqual(self.sharded(lambda y: None)[1], 0)

        def zero(y):
            for i in (2, 3):
                for j in (4, 5):
                    y[8 * i + j] = 0
        path, code, out, err = self.sharded(zero)
        self.assertEqual((code, err), (1, ""))
        self.assertIn("in 1 of 8 shards", out)
        self.assertIn("    device     (X=1, Y=2)\n", out)
        self.assertIn("pattern: tile missing: the shard of (X=1, Y=2) holds zeros", out)
        one = json.loads(kref("check", path, "--json")[1])
        self.assertEqual((one["verdict"], one["wrong"], one["exit"]), ("mismatch", 4, 1))
        self.assertEqual(one["outputs"][0]["worst"]["device"], "(X=1, Y=2)")
        self.assertEqual(one["outputs"][0]["pattern"], "tile missing")

        def swap(y):
            for i in (0, 1):
                for j in (0, 1):
                    y[8 * i + j], y[8 * (i + 2) + j + 6] = y[8 * (i + 2) + j + 6], y[8 * i + j]
        _, code, out, _ = self.sharded(swap)
        self.assertEqual(code, 1)
        self.assertIn("pattern: shard swapped: shards of (X=0, Y=0) and (X=1, Y=3)", out)

        def element(y):
            y[8 * 3 + 7] += 1
        _, code, out, _ = self.sharded(element)
        self.assertEqual(code, 1)
        self.assertIn("1 wrong", out)
        self.assertIn("    device     (X=1, Y=3)\n", out)
        self.assertIn("pattern: unknown", out)

    def test_separate_arrays(self):
        write_npy(self.tmp / "x.npy", "<f4", [4], array.array("f", [1, 2, 3, 4]).tobytes())
        given = ["--in", f"x={self.tmp}/x.npy", "--set", "axis_name=X", "--mesh", "X=4", "--in-spec", "x=X"]
        y = self.tmp / "y.npy"
        self.assertEqual(kref("run", "psum", *given, "--out", y, "--quiet"), (0, "", ""))
        self.assertEqual(array.array("f", y.read_bytes()[-4:])[0], 10)
        self.assertEqual(kref("check", "psum", *given, "--actual", f"y={y}")[0], 0)
        self.assertEqual(kref("check", "pmean", *given, "--actual", f"y={y}")[0], 1)
        other = ["axis_name=Z" if word == "axis_name=X" else word for word in given]
        self.refused("run", "psum", *other, "--out", y, mentions="unbound axis name 'Z', the mesh has X=4")
        self.refused("run", "psun.vjp", *given, "--out", y, mentions="did you mean 'psum.vjp'?")

    def test_describe_a_run(self):
        file = RUNS / "sharded" / "matmul-08-X2Y4-f32.safetensors"
        code, out, err = kref("describe", file)
        self.assertEqual((code, err), (0, ""))
        for part in ("mesh X=2,Y=4, 8 devices", "in.x   F32[16,16]  P(('X', 'Y'), None)  [2,16] a device",
                     "plan: case 2 (contraction sharded on one side)\n  all_gather y along contraction over (X,Y)\n"
                     "  multiply [2,16] by [16,6]\n", "336 bytes", "a device computes 384 flops"):
            self.assertIn(part, out)
        plan = json.loads(kref("describe", file, "--json")[1])["plan"]
        self.assertEqual((plan["case"], plan["bytes"], plan["flops"]), (2, 336, 384))
        self.assertEqual(len(plan["steps"]), 2)

        file = FOLDER / "psum-25-X4-f32i.safetensors"
        out = kref("describe", file)[1]
        self.assertIn("plan: 4 devices in 2 groups of 1 to 3\n  group (X=3) (X=0) (X=1)\n  group (X=2)\n", out)
        # Twice (n - 1) parts of ceil(6 / 3) elements of 4 bytes, to three devices.
        plan = json.loads(kref("describe", file, "--json")[1])["plan"]
        self.assertEqual((plan["case"], plan["bytes"], plan["groups"]), (None, 2 * 2 * 2 * 4,
                                                                         [["(X=3)", "(X=0)", "(X=1)"], ["(X=2)"]]))
        # A sum that is handed out again is summed on the way back.
        out = kref("describe", FOLDER / "pmean.vjp-18-X8-f32.safetensors")[1]
        self.assertIn("psum(X) of ct.y F32[3,2] a device\n  pvary(X, mean=true) of ct.y", out)

        self.assertIn("a device sends nothing", kref("describe", RUNS / "m11-batch.safetensors")[1])
        self.assertEqual(kref("describe", next((RUNS / "attention").glob("*.safetensors")))[0], 0)
        self.assertEqual(kref("describe", "psum", file)[0], 0)
        self.assertEqual(kref("describe", *ops())[0], 0)
        bad = FOLDER / "refuse" / "psum-02-X4-f32.safetensors"
        self.refused("describe", bad, mentions=f"{bad}: psum: in.x: spec P('Z')")
        self.refused("describe", ROOT / "none.safetensors", mentions="none.safetensors")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
