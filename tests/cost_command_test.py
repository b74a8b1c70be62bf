#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kref cost`: run files and shapes, on named chips."""
import json
import sys
import unittest

from command import GOOD, CostTest, kref, read, write

MATMUL = ["matmul", "--shape", "x=bf16[8192,8192]", "--shape", "y=bf16[8192,32768]"]
SPECS = ["--in-spec", "x=X,Y", "--in-spec", "y=None,Y", "--out-spec", "z=X,Y"]
SHARDED = MATMUL + ["--mesh", "X=4,Y=4"] + SPECS
LAYER = ["--shape", "x=bf16[524288,8192]", "--shape", "w_in=bf16[8192,28672]", "--chip", "v5p", "--slice", "4x4x4"]


class Cost(CostTest):
    def test_matmul_on_one_chip(self):
        c = self.cost(*MATMUL, "--chip", "v5e")
        self.assertEqual([s["step"] for s in c["steps"]], ["multiply"])
        flops = 2 * 8192 * 8192 * 32768
        self.assertEqual(c["steps"][0]["flops"], flops)
        self.assertAlmostEqual(c["seconds"]["expected"] / (flops / 1.97e14), 1)
        self.assertEqual(c["bound_by"], "compute")
        other = self.cost(*MATMUL, "--chip", "v5e:bf16=3.94e14")
        self.assertAlmostEqual(c["seconds"]["expected"] / other["seconds"]["expected"], 2)
        f32 = self.cost("matmul", "--shape", "x=f32[8192,8192]", "--shape", "y=f32[8192,32768]", "--chip", "v5e")
        self.assertAlmostEqual(f32["seconds"]["compute"] / c["seconds"]["compute"], 6)
        tiled = self.cost(*MATMUL, "--chip", "v5e", "--set", "tile=[512,1024,512]")
        self.assertEqual(tiled["steps"][0]["grid_steps"], 16 * 32 * 16)
        self.assertGreater(tiled["steps"][0]["scalar_seconds"], 0)

    def test_sharded_matmul(self):
        c = self.cost(*SHARDED, "--chip", "v5e")
        self.assertEqual(len(c["steps"]), 2)
        gather = c["steps"][0]
        whole = 2 * 2048 * 8192  # x along Y, once gathered
        self.assertEqual(gather["sent_bytes"], whole * 3 / 4)
        self.assertAlmostEqual(gather["seconds"], whole * 3 / 4 / 4.5e10)  # a line: v5e 4x4 does not wrap
        self.assertEqual(gather["bound_by"], "link bandwidth")
        self.assertEqual(c["wraps"], [False, False])
        ring = self.cost(*MATMUL, *SPECS, "--chip", "v5p", "--mesh", "X=16,Y=4", "--slice", "4x4x4")
        self.assertAlmostEqual(ring["axes"]["Y"]["seconds"], 2 * 512 * 8192 / 1.8e11)

    def test_collective_matmul(self):
        given = ["--shape", "x=bf16[1024,2048]", "--shape", "y=bf16[2048,8192]", "--mesh", "X=2,Y=4", "--chip", "v5e"]
        naive = self.cost("matmul", *given, *SPECS)
        ring = self.cost("collective_matmul", *given, *SPECS, "--set", "axis_name=Y")
        self.assertAlmostEqual(naive["seconds"]["expected"] * 1e6, 56.8, places=1)
        self.assertAlmostEqual(ring["seconds"]["expected"] * 1e6, 43.4, places=1)

    def test_conditions(self):
        def conditions(chip, slice_, b=524288, f=28672):
            return self.cost("mlp.vjp", "--shape", f"x=bf16[{b},8192]", "--shape", f"w_in=bf16[8192,{f}]", "--chip",
                             chip, "--slice", slice_, "--sweep")["conditions"]
        v5p = conditions("v5p", "4x4x4", f=32768)
        self.assertEqual(v5p["data_parallel_tokens"], [2550, 1275, 850])
        self.assertAlmostEqual(v5p["slice_tokens"], 73440)
        self.assertAlmostEqual(v5p["tensor_parallel_chips"][2], 3 * 32768 / 2550)
        self.assertAlmostEqual(v5p["optimal_data_axis"], (524288 / 32768 * 2 * 64) ** 0.5)
        self.assertAlmostEqual(v5p["mixed_tokens"], 99.2, places=1)
        self.assertAlmostEqual(v5p["message_bytes"], 90e3)
        self.assertNotIn("decode_model_axis", v5p)
        v5e = conditions("v5e", "4x4", b=32, f=16384)
        self.assertEqual(round(v5e["data_parallel_tokens"][0]), 2189)
        self.assertEqual(round(v5e["ring_columns"]), 2189)
        self.assertAlmostEqual(v5e["message_bytes"], 45e3)
        self.assertAlmostEqual(v5e["decode_model_axis"], 16384 / (32 * 9))  # 56.9; beta 9, which the book rounds to 8
        self.assertEqual(v5e["tokens_a_chip"], 2)
        one = self.cost("mlp", "--shape", "x=bf16[65536,4096]", "--shape", "w_in=bf16[4096,16384]", "--chip", "v5e",
                        "--mesh", "X=8", "--set", "strategy=fsdp")
        self.assertEqual(one["conditions"]["tokens_a_chip"], 8192)
        self.assertAlmostEqual(one["message_bytes"], 45e3)
        code, text, _ = kref("cost", *["mlp.vjp", *LAYER], "--sweep")
        self.assertEqual(code, 0)
        for part in ("2550 on an axis of links, 1275 on 2, 850 on 3 tokens a chip; here 8192", "73440 tokens a slice"):
            self.assertIn(part, text)

    def test_decoding_with_weights_that_move(self):
        layer = ["mlp", "--shape", "x=bf16[32,8192]", "--shape", "w_in=bf16[8192,28672]", "--chip", "v5e", "--slice",
                 "16x16"]
        fsdp = [*layer, "--mesh", "X=16,Y=16", "--set", "strategy=fsdp"]
        c = self.cost(*fsdp)
        s = c["serving"]
        self.assertEqual(len(s["moved"]), 2)
        self.assertAlmostEqual(s["penalty"], 16 * 9)  # Y beta
        self.assertAlmostEqual(s["move_seconds"], c["axes"]["X"]["seconds"])
        sweep = self.cost(*layer, "--sweep")
        rows = {(r["strategy"], r["mesh"]): r["seconds"]["expected"] for r in sweep["rows"]}
        self.assertIn("stationary", {strategy for strategy, _ in rows})
        best = s["better"][0]
        self.assertEqual((best["strategy"], best["mesh"]), min(rows, key=rows.get))
        for choice in s["better"]:
            self.assertAlmostEqual(choice["seconds"], rows[choice["strategy"], choice["mesh"]])
        code, text, _ = kref("cost", *fsdp)
        self.assertEqual(code, 0)
        self.assertIn("decoding moves weights (all_gather(X, axis=0, tiled=true) of w_in, ", text)
        self.assertIn("144 times", text)
        self.assertIn(f"take {best['strategy']} on {best['mesh']}: ", text)
        tp = self.cost(*layer, "--mesh", "Y=256", "--set", "strategy=tp")
        self.assertEqual(tp["serving"]["moved"], [])
        code, text, _ = kref("cost", *layer, "--mesh", "Y=256", "--set", "strategy=tp")
        self.assertIn("decoding moves no weights", text)
        # A step of training is none of decoding, nor are so many tokens.
        self.assertNotIn("serving", self.cost("mlp.vjp", *fsdp[1:]))
        many = [a.replace("[32,", "[4096,") for a in fsdp]
        self.assertNotIn("serving", self.cost(*many))
        trained = self.cost("mlp.vjp", *layer[1:], "--sweep")["rows"]
        self.assertNotIn("stationary", {r["strategy"] for r in trained})

    def test_meshes_of_any_size(self):
        c = self.cost("matmul", "--shape", "x=bf16[8960,64]", "--shape", "y=bf16[64,64]", "--mesh", "X=8960",
                      "--in-spec", "x=X", "--out-spec", "z=X", "--chip", "v5p", "--slice", "16x20x28")
        self.assertEqual(c["axes"], {})
        self.assertEqual(c["steps"][0]["flops"], 2 * 64 * 64)

    def test_collectives(self):
        def one(op, *args):
            return self.cost(op, "--shape", "x=bf16[4096,4096]", "--mesh", "X=16", "--chip", "v5e", "--slice", "16",
                             "--in-spec", "x=X", *args, "--set", "axis_name=X")["steps"]
        whole = 2 * 4096 * 4096
        gather = one("all_gather", "--set", "tiled=true")
        self.assertAlmostEqual(gather[0]["seconds"], whole / 9e10)
        scatter = one("all_gather.vjp", "--set", "tiled=true", "--shape", "ct.y=bf16[4096,4096]")
        self.assertTrue(any("psum_scatter" in s["step"] for s in scatter), scatter)
        sums = one("psum")
        self.assertAlmostEqual(sums[0]["seconds"], 16e-6 if whole / 16 * 2 / 9e10 < 16e-6 else whole / 16 * 2 / 9e10)
        exchange = one("all_to_all", "--set", "split_axis=1", "--set", "concat_axis=0", "--set", "tiled=true",
                       "--out-spec", "y=None,X")
        self.assertAlmostEqual(exchange[0]["seconds"], whole / (4 * 9e10))
        shift = one("ppermute", "--set", "perm=[[0,1],[1,2]]", "--out-spec", "y=X")
        self.assertAlmostEqual(shift[0]["seconds"], whole / 16 / 4.5e10)
        # In parts of the ring: lines of four, and rings of four in each other, whose links they share.
        def groups(*lists, op="all_gather", args=("--set", "tiled=true")):
            step = one(op, *args, "--set", "axis_index_groups=" + json.dumps(lists))[0]
            return step["seconds"], step["sent_bytes"]
        rows = [list(range(i, i + 4)) for i in range(0, 16, 4)]
        comb = [list(range(i, 16, 4)) for i in range(4)]
        block = whole / 16
        self.assertEqual(groups(*rows)[1], 3 * block)
        self.assertAlmostEqual(groups(*rows)[0], 3 * block / 4.5e10)
        self.assertAlmostEqual(groups(*comb)[0], 4 * 4 * block / 9e10)
        uneven = groups([0], list(range(1, 16)), op="psum", args=())
        self.assertAlmostEqual(uneven[0], max(2 * block * 14 / 15 / 4.5e10, 2 * 14e-6))
        self.refused("cost", "psum", "--shape", "x=bf16[4096]", "--mesh", "X=4", "--chip", "v5e", "--in-spec", "x=X",
                     "--set", "axis_name=X", "--set", "axis_index_groups=[[0,1,3],[2]]", mentions="no price")
        small = self.cost("psum", "--shape", "x=bf16[16,8]", "--mesh", "X=16", "--chip", "v5e", "--in-spec", "x=X",
                          "--set", "axis_name=X")
        self.assertEqual(small["steps"][0]["bound_by"], "link latency")

    def test_layer_and_sweep(self):
        c = self.cost("mlp", *LAYER, "--mesh", "X=16,Y=4", "--set", "strategy=fsdp_tp")
        self.assertEqual(sum("sent_bytes" in s for s in c["steps"]), 4)
        s = self.cost("mlp.vjp", *LAYER, "--sweep")
        rows = {(r["strategy"], r["mesh"]): r for r in s["rows"]}
        times = [r["seconds"]["expected"] for r in s["rows"]]
        self.assertEqual(times, sorted(times))
        self.assertEqual(s["rows"][-1]["strategy"], "tp")
        # By hand: 12BDF / (N C), and 8DF / (3W) of DP.
        compute = 12 * 524288 * 8192 * 28672 / (64 * 4.59e14)
        dp = rows["dp", "X=64"]["seconds"]
        self.assertAlmostEqual(dp["expected"] / compute, 1)
        self.assertAlmostEqual(dp["links"] / (8 * 8192 * 28672 / (3 * 1.8e11)), 1)
        self.assertAlmostEqual(rows["fsdp_tp", "X=16,Y=4"]["axes"]["Y"]["seconds"] /
                               (10 * 524288 * 8192 / (16 * 1.8e11)), 1)

    def test_text_and_run_files(self):
        code, out, err = kref("cost", GOOD, "--chip", "v5e")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("multiply", out)
        self.assertIn("expected ", out)
        meta, tensors = read(GOOD)
        file = self.tmp / "sharded.safetensors"
        x, y = tensors["in.x"], tensors["in.y"]
        write(file, {"kref": "1", "op": "matmul", "mesh": "X=1"}, {"in.x": x, "in.y": y})
        code, out, err = kref("cost", file, "--chip", "v5e")
        self.assertEqual((code, err), (0, ""))
        code, out, err = kref("cost", *SHARDED, "--chip", "v5e")
        self.assertIn("all_gather(Y, axis=1, tiled=true) of x", out)
        self.assertIn("links of Y", out)
        code, out, err = kref("cost", "mlp.vjp", *LAYER, "--sweep")
        self.assertIn("fsdp_tp   X=16,Y=4", out)

    def test_refused(self):
        self.refused("cost", *MATMUL, mentions="expected --chip")
        self.refused("cost", *MATMUL, "--chip", "v9", mentions="unknown chip 'v9'")
        self.refused("cost", *MATMUL, "--chip", "v5e", "--slice", "4y4", mentions="slice '4y4'")
        self.refused("cost", *SHARDED, "--chip", "v5e", "--slice", "4x2", mentions="needs 16 chips")
        self.refused("cost", "matmul", "--shape", "x=bf16[8,8]", "--chip", "v5e", mentions="in.y")
        self.refused("cost", "matmul", "--shape", "x=bf16", "--chip", "v5e", mentions="--shape x")
        self.refused("cost", "matmul", "--shape", "x=bf17[2,2]", "--chip", "v5e", mentions="--shape x")
        self.refused("cost", "matmul", "--shape", "x=bf16[2,]", "--chip", "v5e", mentions="--shape x")
        self.refused("cost", GOOD, "--chip", "v5e", "--shape", "x=bf16[2,2]", mentions="--shape goes with")
        self.refused("cost", *MATMUL, "--chip", "v5e", "--sweep", mentions="has no strategies")
        self.refused("cost", "mlp", "--shape", "x=bf16[8,8]", "--shape", "w_in=bf16[8,8]", "--chip", "v5e", "--sweep",
                     mentions="expected --slice")
        on = ("--chip", "v5e", "--slice", "2x2", "--sweep")
        for b, d, f in ((0, 8, 8), (8, 0, 8), (8, 8, 0)):
            self.refused("cost", "mlp", "--shape", f"x=bf16[{b},{d}]", "--shape", f"w_in=bf16[{d},{f}]", *on,
                         mentions=f"B = {b}, D = {d}, F = {f}, expected sizes of at least 1")
        self.refused("cost", "mlp.vjp", *LAYER, "--sweep", "--network", "X", mentions="--network is given")
        self.refused("cost", "mlp", "--shape", "x=bf16[8,4611686018427387904]", *on, mentions="more than 18 digits")
        self.refused("cost", "matmul", "--shape", "x=f64[8,8]", "--shape", "y=f64[8,8]", "--chip", "v5e",
                     mentions="no unit multiplies F64")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
