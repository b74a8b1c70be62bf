#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kref cost`: run files and shapes, on named chips."""
import json
import sys
import unittest

from command import GOOD, CommandTest, kref, read, write

MATMUL = ["matmul", "--shape", "x=bf16[8192,8192]", "--shape", "y=bf16[8192,32768]"]
SPECS = ["--in-spec", "x=X,Y", "--in-spec", "y=None,Y", "--out-spec", "z=X,Y"]
SHARDED = MATMUL + ["--mesh", "X=4,Y=4"] + SPECS
LAYER = ["--shape", "x=bf16[524288,8192]", "--shape", "w_in=bf16[8192,28672]", "--chip", "v5p", "--slice", "4x4x4"]


class Cost(CommandTest):
    def cost(self, *args):
        code, out, err = kref("cost", *args, "--json")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

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
        small = self.cost("psum", "--shape", "x=bf16[16,8]", "--mesh", "X=16", "--chip", "v5e", "--in-spec", "x=X",
                          "--set", "axis_name=X")
        self.assertEqual(small["steps"][0]["bound_by"], "link latency")

    def test_attention(self):
        def attention(*args):
            return self.cost("attention", "--shape", "q=bf16[4,64,4096,128]", "--shape", "k=bf16[4,8,4096,128]",
                             "--shape", "v=bf16[4,8,4096,128]", "--set", "scale=1", "--chip", "v5e", *args)
        flops = 4 * 4 * 64 * 4096 * 4096 * 128
        self.assertEqual(attention()["steps"][0]["flops"], flops)
        half = attention("--set", "causal=top_left")["steps"][0]["flops"]
        self.assertAlmostEqual(half / flops, 4097 / 8192)
        shared = attention("--mesh", "X=4", "--in-spec", "q=None,X", "--in-spec", "k=None,X", "--in-spec", "v=None,X")
        self.assertEqual(shared["steps"][0]["flops"], flops / 4)

    def test_decode(self):
        c = self.cost("decode_attention", "--shape", "q=bf16[64,64,128]", "--shape", "k_cache=bf16[64,8192,8,128]",
                      "--shape", "v_cache=bf16[64,8192,8,128]", "--set", "scale=1", "--mesh", "X=4", "--chip", "v5e",
                      "--in-spec", "q=None,X", "--in-spec", "k_cache=X", "--in-spec", "v_cache=X",
                      "--out-spec", "o=None,X")
        self.assertEqual([s["bound_by"] for s in c["steps"]], ["link bandwidth", "hbm", "link bandwidth"])
        self.assertAlmostEqual(c["steps"][0]["seconds"], 2 * 64 * 64 * 128 / (4 * 4.5e10))
        cache = 2 * 2 * 16 * 8192 * 8 * 128
        self.assertAlmostEqual(c["steps"][1]["hbm_seconds"] * 8.1e11 / cache, 1, places=2)

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
        self.refused("cost", "matmul", "--shape", "x=f64[8,8]", "--shape", "y=f64[8,8]", "--chip", "v5e",
                     mentions="no unit multiplies F64")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
