#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each benchmark of small shapes once and holds its figures against what they must obey; the
numbers are rows of the collection of cases. Arguments: bench_matmul, bench_check, bench_collectives,
bench_attention, bench_grid.
"""
import json
import subprocess
import sys
import time
import unittest

MATMUL, CHECK, COLLECTIVES, ATTENTION, GRID, LAYERS = sys.argv[1:7]


def run(program, pattern, *more):
    """(benchmarks that are iterations, seconds the process took)"""
    start = time.monotonic()
    done = subprocess.run([program, f"--benchmark_filter={pattern}", "--benchmark_format=json", *more], capture_output=True,
                          text=True)
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    rows = [b for b in json.loads(done.stdout)["benchmarks"] if b["run_type"] == "iteration"]
    for b in rows:
        if b.get("error_occurred"):
            raise AssertionError(f"{b['name']}: {b['error_message']}")
    return rows, seconds


def operations(name):
    """2 M N K of TYPE/MxNxK/..."""
    m, n, k = (int(s) for s in next(p for p in name.split("/") if p.count("x") == 2).split("x"))
    return 2.0 * m * n * k


class BenchTest(unittest.TestCase):
    def check_rates(self, rows, seconds):
        """L146: a rate is operations by wall time, whatever the threads: within 2 percent."""
        for b in rows:
            self.assertEqual(b["time_unit"], "ns")
            if "flops" in b and not b["name"].startswith("peak"):
                work = operations(b["name"]) if "128-tiles" not in b["name"] else 2.0 * 1024**3
                self.assertAlmostEqual(b["flops"] * b["real_time"] * 1e-9 / work, 1, delta=0.02, msg=b["name"])
        self.assertLess(sum(b["iterations"] * b["real_time"] for b in rows) * 1e-9, seconds)

    def test_every_benchmark_runs(self):
        rows, seconds = run(MATMUL, "^(price|peak|[a-z0-9]+/(256x256x256|8x4096x4096))/", "--benchmark_min_time=0.001")
        self.check_rates(rows, seconds)
        self.assertGreaterEqual(len(rows), 5 + 3 * 2 * 2 * 2)

    def test_every_attention_runs(self):
        rows, _ = run(ATTENTION, "^(attention(_vjp)?/[a-z0-9]+/256x|decode/[a-z0-9]+/2x256x|matmul/f32/1T)",
                      "--benchmark_min_time=0.001")
        self.assertEqual(len(rows), 2 * 2 * 2 * 2 + 2 * 2 * 2 + 1)
        for b in rows:
            if b["name"].startswith("attention"):
                products = 5 if b["name"].startswith("attention_vjp") else 2
                work = products * 2.0 * 2 * 256 * 256 * 64
                self.assertAlmostEqual(b["flops"] * b["real_time"] * 1e-9 / work, 1, delta=0.02, msg=b["name"])

    def test_no_product_is_quicker_than_the_machine(self):
        """L147: work that a compiler took away, or did on constants, would be. Twice the peak, since another
        process may have had the core while the peak was measured."""
        rows, seconds = run(MATMUL, "^(peak/f32/1T|f32/256x256x256/[12]T/(kref|raw))/", "--benchmark_min_time=0.02",
                            "--benchmark_repetitions=3")
        self.check_rates(rows, seconds)
        peak = max(b["flops"] for b in rows if b["name"].startswith("peak"))
        products = [b for b in rows if not b["name"].startswith("peak")]
        self.assertEqual(len(products), 3 * 4)
        for b in products:
            threads = int(b["name"].split("/")[2].removesuffix("T"))
            self.assertLess(b["flops"], 2 * threads * peak, b["name"])

    def test_grids(self):
        """Each is checked before it is timed. A grid is its loops and the DSL's price, which no step of 4096 may hide
        behind; the machine may be busy, so that only ratios count, and generously."""
        rows, _ = run(GRID, "^grid/.*/1T/", "--benchmark_min_time=0.02", "--benchmark_repetitions=3",
                      "--benchmark_enable_random_interleaving=true")
        least = {}
        for b in rows:
            _, name, _, who = b["run_name"].removesuffix("/real_time").split("/")
            least[name, who] = min(least.get((name, who), 1e12), b["cpu_time"])
        self.assertEqual(len(least), 5 * 3)
        for name in {name for name, _ in least}:
            self.assertLess(least[name, "check"], 10 * least[name, "kref"], name)
            if name != "probe_4096":
                self.assertLess(least[name, "kref"], 4 * least[name, "raw"], name)

    def test_judgements(self):
        rows, seconds = run(CHECK, "^check/f32/256x256x256/", "--benchmark_min_time=0.001")
        self.check_rates(rows, seconds)
        self.assertEqual(len(rows), 2)

    def test_collectives(self):
        """Each is checked before it is timed; the rate is all devices' bytes by the time that counted."""
        rows, _ = run(COLLECTIVES, "^(launch|shard_map|rendezvous|[a-z_]+/(1024|65536))/.*[28]D/", "--benchmark_min_time=0.001")
        self.assertEqual(len(rows), 3 * 2 + 2 * 2 * 13)
        for b in rows:
            kind, size, devices = b["name"].split("/")[:3]
            if kind in ("launch", "shard_map", "rendezvous"):
                continue
            calls = min(500, max(2, (128 << 20) // int(size)))
            self.assertAlmostEqual(b["bytes"] * b["real_time"] * 1e-9 / (calls * int(size) * int(devices[:-1])), 1, delta=0.02,
                                   msg=b["name"])

    def test_layers(self):
        """Each strategy's results are compared with those of the layer alone before they are timed."""
        rows, _ = run(LAYERS, "/16x32x64/", "--benchmark_min_time=0.001")
        self.assertEqual(len(rows), 2 * 4 * 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
