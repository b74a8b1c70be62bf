#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kref cost --trace`: what it writes is Trace Event format, as Perfetto reads it, and says what the table says."""
import json
import os
import sys
import unittest

from command import CommandTest, kref

PRODUCT = ["--shape", "x=f32[1024,2048]", "--shape", "y=f32[2048,8192]", "--mesh", "X=2,Y=4", "--in-spec", "x=X,Y",
           "--in-spec", "y=None,Y", "--out-spec", "z=X,Y", "--chip", "v5e"]
LAYER = ["mlp.vjp", "--shape", "x=bf16[65536,4096]", "--shape", "w_in=bf16[4096,16384]", "--chip", "v5e"]
NANOSECOND = 1e-3  # times are in microseconds


def ns(microseconds):
    return round(microseconds * 1000)


class Trace(CommandTest):
    def trace(self, *args):
        path = str(self.tmp / "trace.json")
        code, out, err = kref("cost", *args, "--trace", path, "--json")
        self.assertEqual((code, err), (0, ""))
        with open(path, encoding="utf-8") as file:
            return json.load(file), json.loads(out)["clock"]

    def check_format(self, trace):
        """The JSON object form of the Trace Event format; gives slices by (process, thread)."""
        self.assertIsInstance(trace["traceEvents"], list)
        self.assertIn(trace["displayTimeUnit"], ("ms", "ns"))
        rows, named, flows, last = {}, set(), {}, 0
        for event in trace["traceEvents"]:
            for key, kind in (("name", str), ("ph", str), ("pid", int), ("tid", int), ("ts", (int, float))):
                self.assertIsInstance(event[key], kind, event)
            self.assertIn(event["ph"], ("X", "M", "s", "f"), event)
            self.assertGreaterEqual(event["ts"], 0)
            row = event["pid"], event["tid"]
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "process_sort_index", "thread_name"))
                self.assertIsInstance(event["args"], dict)
                if event["name"] == "thread_name":
                    named.add(row)
                continue
            self.assertGreaterEqual(event["ts"], last, "events are ordered by time")
            last = event["ts"]
            if event["ph"] == "X":
                self.assertGreater(event["dur"], 0, event)
                rows.setdefault(row, []).append(event)
            else:
                self.assertEqual(event["cat"], "transfer")
                self.assertEqual(event.get("bp"), "e" if event["ph"] == "f" else None)
                flows.setdefault(event["id"], {})[event["ph"]] = event
        for slices in rows.values():
            for before, after in zip(slices, slices[1:]):
                self.assertLessEqual(ns(before["ts"] + before["dur"]), ns(after["ts"]), (before, after))
        self.assertLessEqual(set(rows), named, "every row has a name")
        for flow in flows.values():
            self.assertEqual(set(flow), {"s", "f"})
            self.assertLessEqual(flow["s"]["ts"], flow["f"]["ts"])
            self.assertNotEqual(flow["s"]["pid"], flow["f"]["pid"])
            for end in flow.values():  # binds to the slice round it
                inside = [s for s in rows[end["pid"], end["tid"]]
                          if ns(s["ts"]) <= ns(end["ts"]) < ns(s["ts"] + s["dur"])]
                self.assertEqual([s["name"] for s in inside], [end["name"]])
        return rows, flows

    def test_gather_then_multiply(self):
        trace, clock = self.trace("matmul", *PRODUCT)
        rows, flows = self.check_format(trace)
        self.assertEqual({pid for pid, _ in rows}, set(range(8)))
        for device in range(8):
            names = [s["name"] for s in rows[device, 0]]
            self.assertEqual(names, ["wait for all_gather(Y) of F32[512,512]", "F32[512,2048] x F32[2048,2048]"])
            self.assertEqual([s["cat"] for s in rows[device, 0]], ["wait", "compute"])
            self.assertEqual([s["cat"] for s in rows[device, 1]], ["link"])
        self.assertEqual(len(flows), 2 * 3)  # in each row of the mesh from one device to the others
        end = max(s["ts"] + s["dur"] for s in sum(rows.values(), []))
        self.assertAlmostEqual(end, clock["seconds"] * 1e6, delta=NANOSECOND)
        self.assertAlmostEqual(sum(clock["bound"].values()), clock["seconds"])

    def test_blocks_that_go_round(self):
        for direction in "one", "both":
            trace, clock = self.trace("collective_matmul", *PRODUCT, "--set", "axis_name=Y", "--set",
                                      "direction=" + direction)
            rows, flows = self.check_format(trace)
            lanes = 1 if direction == "one" else 2
            self.assertEqual(len(flows), 8 * 3 * lanes)
            self.assertEqual(len([s for s in rows[3, 0] if s["cat"] == "compute"]), 4 * lanes)
            first_hop = rows[3, 1][0]
            self.assertEqual(first_hop["ts"], 0)  # it travels while the first block is multiplied
            self.assertEqual([s["ts"] for s in rows[3, 0]][0], 0)
            self.assertEqual(clock["critical_path"][0]["begin"], 0)
            for before, after in zip(clock["critical_path"], clock["critical_path"][1:]):
                self.assertEqual(before["end"], after["begin"])
            self.assertEqual(clock["critical_path"][-1]["end"], clock["seconds"])

    def test_layers(self):
        for strategy, mesh in (("dp", "X=8"), ("fsdp", "X=8"), ("tp", "Y=8"), ("fsdp_tp", "X=2,Y=4")):
            trace, clock = self.trace(*LAYER, "--mesh", mesh, "--set", "strategy=" + strategy)
            rows, _ = self.check_format(trace)
            computed = sum(s["dur"] for s in rows[0, 0] if s["cat"] == "compute")
            self.assertAlmostEqual(computed / (clock["compute"] * 1e6), 1, places=6)
            self.assertTrue(any(tid >= 1 for _, tid in rows), strategy)

    def test_steps_of_operations_that_no_device_runs(self):
        trace, clock = self.trace("decode_attention", "--shape", "q=bf16[64,64,128]", "--shape",
                                  "k_cache=bf16[64,4096,8,128]", "--shape", "v_cache=bf16[64,4096,8,128]", "--set",
                                  "scale=0.1", "--mesh", "X=4", "--in-spec", "q=None,X", "--in-spec", "k_cache=X",
                                  "--in-spec", "v_cache=X", "--out-spec", "o=None,X", "--chip", "v5e")
        rows, _ = self.check_format(trace)
        self.assertEqual(len(rows[0, 1]), 2)
        self.assertEqual(clock["bound_by"], "hbm")

    def test_what_is_refused(self):
        path = str(self.tmp / "t.json")
        for args, part in ((["matmul", *PRODUCT, "--sweep"], "--trace writes one run"),
                           (["psum", "--shape", "x=f32[4096]", "--mesh", "X=2048", "--in-spec", "x=X", "--set",
                             "axis_name=X", "--chip", "v5p", "--slice", "8x16x16"], "1024")):
            code, out, err = kref("cost", *args, "--trace", path)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(part, err)
            self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
