#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kref cost` of attention, its gradients and decoding."""
import sys
import unittest

from command import CostTest, kref


class AttentionCost(CostTest):
    def test_attention(self):
        shapes = ["--shape", "q=bf16[4,64,4096,128]", "--shape", "k=bf16[4,8,4096,128]", "--shape",
                  "v=bf16[4,8,4096,128]", "--set", "scale=1", "--chip", "v5e"]

        def attention(*args):
            return self.cost("attention", *shapes, *args)
        flops = 4 * 4 * 64 * 4096 * 4096 * 128
        self.assertEqual(attention()["steps"][0]["flops"], flops)
        half = attention("--set", "causal=top_left")["steps"][0]["flops"]
        self.assertAlmostEqual(half / flops, 4097 / 8192)
        unbounded = attention("--set", f"window=[{2**63 - 1},{2**63 - 1}]")
        self.assertEqual(unbounded["steps"][0]["flops"], flops)
        self.refused("cost", "attention", *shapes, "--mesh", "X=4", mentions="runs attention on one device only")

    def test_attention_of_many_tokens(self):
        def flops(tokens, *args):
            shapes = [a for n in "qkv" for a in ("--shape", f"{n}=bf16[1,1,{tokens},128]")]
            c = self.cost("attention", *shapes, "--set", "scale=0.1", "--chip", "v5e", *args)
            return c["steps"][0]["flops"] / 512  # pairs of a row and a key
        n = 40000000000
        self.assertAlmostEqual(flops(n, "--set", "causal=top_left") / (n * (n + 1) / 2), 1)
        near = flops(n, "--set", "causal=bottom_right", "--set", "window=[127,null]")
        self.assertAlmostEqual(near / (n * 128 - 127 * 128 / 2), 1, places=12)
        n = 4600000000000000
        self.assertAlmostEqual(flops(n) / n**2, 1)

    def test_attention_reads_bias_and_lengths(self):
        def step(*args):
            shapes = [a for n in "qkv" for a in ("--shape", f"{n}=bf16[8,32,4096,128]")]
            return self.cost("attention", *shapes, "--set", "scale=1", "--chip", "v5e", *args)["steps"][0]
        plain = step()
        token = 32 * 128 * 2  # bytes of q, k, v or o
        self.assertEqual(plain["hbm_bytes"], 4 * 8 * 4096 * token)
        bias = step("--shape", "bias=f32[8,32,4096,4096]")
        self.assertEqual(bias["hbm_bytes"] - plain["hbm_bytes"], 8 * 32 * 4096 * 4096 * 4)
        mask = step("--shape", "mask=bool[1,1,4096,4096]")
        self.assertEqual(mask["hbm_bytes"] - plain["hbm_bytes"], 4096 * 4096)
        # Lengths of which nothing is known are those without lengths.
        unknown = step("--shape", "kv_lengths=i32[8]", "--shape", "q_lengths=i32[8]")
        self.assertEqual(unknown["flops"], plain["flops"])
        lengths = [0, 1, 7, 100, 1000, 2048, 4095, 4096]
        keys = self.int32("keys", lengths)
        few = step("--in", f"kv_lengths={keys}")
        self.assertAlmostEqual(few["flops"] / (512 * 32 * 4096 * sum(lengths)), 1, places=12)
        self.assertAlmostEqual(few["hbm_bytes"], (2 * 8 * 4096 + 2 * sum(lengths)) * token + 32)
        # Positions are those of the arrays: row i < length sees keys up to i.
        causal = step("--in", f"kv_lengths={keys}", "--in", f"q_lengths={keys}", "--set", "causal=bottom_right")
        self.assertAlmostEqual(causal["flops"] / (512 * 32 * sum(n * (n + 1) // 2 for n in lengths)), 1, places=12)
        self.assertAlmostEqual(causal["hbm_bytes"], (8 * 4096 + 3 * sum(lengths)) * token + 64, places=3)

    def test_decode(self):
        c = self.cost("decode_attention", "--shape", "q=bf16[64,64,128]", "--shape", "k_cache=bf16[64,8192,8,128]",
                      "--shape", "v_cache=bf16[64,8192,8,128]", "--set", "scale=1", "--mesh", "X=4", "--chip", "v5e",
                      "--in-spec", "q=None,X", "--in-spec", "k_cache=X", "--in-spec", "v_cache=X",
                      "--out-spec", "o=None,X")
        self.assertEqual([s["bound_by"] for s in c["steps"]], ["link bandwidth", "hbm", "link bandwidth"])
        self.assertAlmostEqual(c["steps"][0]["seconds"], 2 * 64 * 64 * 128 / (4 * 4.5e10))
        cache = 2 * 2 * 16 * 8192 * 8 * 128
        self.assertAlmostEqual(c["steps"][1]["hbm_seconds"] * 8.1e11 / cache, 1, places=2)

    def test_decode_reads_what_it_sees(self):
        shapes = ["--shape", "q=bf16[8,32,128]", "--shape", "k_cache=bf16[8,4096,8,128]", "--shape",
                  "v_cache=bf16[8,4096,8,128]", "--set", "scale=1", "--chip", "v5e"]

        def keys(*args):
            return self.cost("decode_attention", *shapes, *args)["steps"][0]["flops"] / (32 * 512)
        self.assertEqual(keys(), 8 * 4096)
        self.assertEqual(keys("--shape", "lengths=i32[8]"), 8 * 4096)
        self.assertEqual(keys("--set", "window=[127,null]"), 8 * 128)
        self.assertEqual(keys("--set", "window=[null,0]"), 8 * 4096)
        given = [0, 1, 127, 128, 129, 1000, 4095, 4096]
        lengths = self.int32("lengths", given)
        self.assertEqual(keys("--in", f"lengths={lengths}"), sum(given))
        self.assertEqual(keys("--in", f"lengths={lengths}", "--set", "window=[127,0]"),
                         sum(min(n, 128) for n in given))
        # A new token, and what is refused of it.
        k_new, v_new = ["--shape", "k_new=bf16[8,8,128]"], ["--shape", "v_new=bf16[8,8,128]"]
        self.assertEqual(keys(*k_new, *v_new), 8 * 4096)
        decode = ["cost", "decode_attention", *shapes]
        self.refused(*decode, *k_new, mentions="v_new is missing")
        self.refused(*decode, *k_new, *v_new, "--in", f"lengths={lengths}", mentions="in.lengths[0] is 0, but in.k_new")
        mesh = ["--in-spec", "q=None,X", "--in-spec", "k_cache=X", "--in-spec", "v_cache=X", "--out-spec", "o=None,X"]
        new = ["--in-spec", "k_new=None,X", "--in-spec", "v_new=None,X"]
        self.cost(*decode[1:], *k_new, *v_new, *mesh, *new, "--mesh", "X=8")
        self.refused(*decode, *k_new, *v_new, *mesh, *new[2:], "--mesh", "X=8", mentions="in_specs.k_new is P()")
        four = [a.replace("4096,8,", "4096,4,").replace("[8,8,", "[8,4,") for a in [*decode, *k_new, *v_new]]
        self.refused(*four, *mesh, *new, "--mesh", "X=8", mentions="dimension 1 of size 4 is not divisible by the 8")

    def test_gradients(self):
        shapes = ["--shape", "q=bf16[4,4096,64,128]", "--shape", "k=bf16[4,4096,8,128]", "--shape",
                  "v=bf16[4,4096,8,128]", "--set", "scale=1", "--set", "layout=BTHD", "--chip", "v5e"]
        c = self.cost("attention.vjp", *shapes, "--set", "causal=top_left")
        self.assertEqual([s["step"] for s in c["steps"]], ["attend", "gradients"])
        pairs = 4 * 64 * 4096 * 4097 // 2
        self.assertAlmostEqual(c["steps"][0]["flops"] / pairs, 4 * 128, places=6)
        self.assertAlmostEqual(c["steps"][1]["flops"] / pairs, 10 * 128, places=6)
        self.assertAlmostEqual(c["steps"][1]["transcendentals"] / pairs, 1, places=6)
        self.assertAlmostEqual(c["clock"]["seconds"] / c["seconds"]["expected"], 1, places=6)
        self.refused("cost", "attention.vjp", *shapes, "--mesh", "X=4", mentions="runs attention on one device only")
        code, out, err = kref("describe", "attention.vjp")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("`cost` prices two steps", out)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
