#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks and prints them as ratios: `./run bench [FILTER] [--repetitions N]`.

The filter `check` (check/f32/4096) prints how long it takes to judge runs, instead; `collectives`
(collectives/psum, collectives/4194304/2D) prints the collectives beside one thread's memcpy and Open MPI;
`attention`, `attention_vjp` and `decode` print attention as a share of kref's matmul rate, a decode as a share of
what reading its caches takes, both beside PyTorch where it is installed; `grid` prints kernels written as grids beside raw
loops and beside plain jnp where JAX is installed, and what Grid::check takes.

Each shape runs in a process of its own, everybody's repetitions in random order, so that a change of
the machine's speed meets all alike. A figure is the median of the repetitions. Ratios above 1 mean
that kref is quicker; peaks are one thread's, so two threads have twice as much. Where the machine
has instructions for bf16 products, bf16 rows run again with oneDNN held to those that keep kref's sums.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys


def plain(name):
    return name.removesuffix("/real_time").removesuffix("/manual_time")


# f32 fused multiply-adds only. With vdpbf16ps and AMX, oneDNN adds the terms in another order and flushes subnormals,
# which the contract of kref's sums forbids; kref uses vdpbf16ps in its own order, where nothing can be flushed.
SAME_SUMS = "AVX512_CORE"


def has_bf16_products():
    """Whether this machine multiplies bf16 with instructions of its own."""
    try:
        return bool({"avx512_bf16", "amx_bf16"} & set(pathlib.Path("/proc/cpuinfo").read_text().split()))
    except OSError:
        return False


def run(program, pattern, repetitions, seconds, onednn_isa=None):
    """name -> list of rates (operations or steps a second), one a repetition; and the context."""
    command = [program, f"--benchmark_filter={pattern}", f"--benchmark_repetitions={repetitions}",
               f"--benchmark_min_time={seconds}", "--benchmark_enable_random_interleaving=true", "--benchmark_format=json"]
    held = dict(os.environ, ONEDNN_MAX_CPU_ISA=onednn_isa) if onednn_isa else None
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=held)
    report = json.loads(done.stdout)
    rates = {}
    for b in report["benchmarks"]:
        if b.get("error_occurred"):
            sys.exit(f"{b['name']}: {b['error_message']}")
        if b["run_type"] == "iteration":
            rates.setdefault(plain(b["run_name"]), []).append(b.get("flops", b.get("steps", b.get("bytes", b.get("calls")))))
    return rates, report["context"]


def names(program):
    out = subprocess.run([program, "--benchmark_list_tests"], capture_output=True, text=True, check=True).stdout.split("\n")
    return [plain(n) for n in out if n]


def judgements(a):
    """Seconds that the judgement of a run takes, its file once read."""
    program = f"{a.build}/bench/bench_check"
    for name in names(program):
        if a.filter not in name:
            continue
        rates, _ = run(program, f"^{name}/", 1, a.seconds)
        m, n, k = (int(s) for s in name.split("/")[2].split("x"))
        print(f"{name:<32}{2.0 * m * n * k / statistics.median(rates[name]):>9.3f} s", flush=True)


def mpi_rate(build, collective, size, devices, a):
    """Calls a second of Open MPI with a rank a device; None where it is not there or does not start."""
    program = pathlib.Path(build) / "bench" / "mpi_collectives"
    if not program.exists() or shutil.which("mpirun") is None:
        return None
    allowed = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "--oversubscribe", "-n", devices, str(program), collective, size, str(a.seconds), str(a.repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, env=allowed)
    return statistics.median(float(line) for line in done.stdout.split()) if done.returncode == 0 and done.stdout else None


# Rows of collectives that move nothing.
CALLS = ("launch", "shard_map")


def collectives(a):
    """Bytes a second of all devices together, over those of one thread's memcpy of as many bytes."""
    program = f"{a.build}/bench/bench_collectives"
    wanted = a.filter.split("/", 1)[1] if "/" in a.filter else ""
    groups = dict.fromkeys(n.rsplit("/", 1)[0] for n in names(program))
    print("bytes a device: the larger of operand and result; of memcpy: rate of all devices together over that of one "
          "thread which copies as many bytes; vs MPI: Open MPI's time over ours, as many ranks as devices")
    print(f"{'case':<32}{'GB/s':>9}{'of memcpy':>11}{'time':>12}{'vs MPI':>8}")
    memcpy = {}
    for group in groups:
        collective, size, devices = group.split("/")
        if wanted not in group or collective == "memcpy":
            continue
        rates, _ = run(program, f"^{group}/", a.repetitions, a.seconds)
        rate = statistics.median(rates[f"{group}/kref"])
        moved = int(size) * int(devices.removesuffix("D"))
        seconds = moved / rate if collective not in CALLS else 1 / rate
        theirs = mpi_rate(a.build, collective, size, devices.removesuffix("D"), a) if collective not in CALLS else None
        ratio = f"{1 / theirs / seconds:.2f}" if theirs else "-"
        speed, share = "", ""
        if collective not in (*CALLS, "rendezvous"):
            copied = f"memcpy/{size}/{devices}"
            if copied not in memcpy:
                memcpy[copied] = statistics.median(run(program, f"^{copied}/", a.repetitions, a.seconds)[0][f"{copied}/kref"])
            speed, share = f"{rate / 1e9:.2f}", f"{rate / memcpy[copied]:.2f}"
        print(f"{group:<32}{speed:>9}{share:>11}{seconds * 1e6:>9.1f} us{ratio:>8}", flush=True)


class Partner:
    """A script of this directory that times a module's own, in a process of that; where a python that has the module is
    found: $KREF_PYTHON or python3."""

    def __init__(self, module, script, cores=None):
        python = os.environ.get("KREF_PYTHON", "python3")
        found = subprocess.run([python, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True)
        self.version = found.stdout.strip() if found.returncode == 0 else None
        self.title = f"{module}: {self.version or 'not found (python3, or KREF_PYTHON=PYTHON)'}"
        if not self.version:
            return
        hold = (lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])) if cores else None
        path = pathlib.Path(__file__).with_name(script)
        self.process = subprocess.Popen([python, "-B", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=hold)

    def seconds(self, *row):
        print(*row, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def seconds_of(program, pattern, seconds):
    """name -> (seconds of one call, counters), each of one repetition."""
    command = [program, f"--benchmark_filter={pattern}", f"--benchmark_min_time={seconds}", "--benchmark_format=json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["benchmarks"]
    return {plain(b["name"]): (b["real_time"] / 1e9, b) for b in rows}


def torch_ratio(torch, program, group, a):
    """PyTorch's time over kref's, repetition by repetition in turn; the median."""
    ours, theirs = [], []
    for _ in range(a.repetitions):
        (taken, row), = seconds_of(program, f"^{group}/kref", a.seconds).values()
        ours.append(taken)
        theirs.append(torch.seconds(group, int(row["heads"]), a.seconds))
    return statistics.median(theirs) / statistics.median(ours)


# How jnp_grid.py calls a program: as one compiled function, and operation by operation.
WAYS = ("compiled", "eager")


def grids(a):
    """Programs as grids beside raw loops, what a check takes, and jnp under jax.jit and without; all of them in turn."""
    program = f"{a.build}/bench/bench_grid"
    groups = dict.fromkeys(n.rsplit("/", 1)[0] for n in names(program))
    partners = {}
    for group in groups:
        if a.filter not in group:
            continue
        threads = int(group.split("/")[2].removesuffix("T"))
        if threads not in partners:
            partners[threads] = Partner("jax", "jnp_grid.py", threads)
            if len(partners) == 1:
                print(partners[threads].title)
                print(f"{'case':<32}{'kref':>12}{'vs raw':>8}{'vs jit':>8}{'vs jnp':>8}{'check':>12}{'of a run':>10}")
        jnp = partners[threads]
        times = {}
        for _ in range(a.repetitions):
            for name, (taken, _) in seconds_of(program, f"^{group}/", a.seconds).items():
                times.setdefault(name.rsplit("/", 1)[1], []).append(taken)
            for way in WAYS if jnp.version else ():
                times.setdefault(way, []).append(jnp.seconds(group, way, a.seconds))
        median = {who: statistics.median(t) for who, t in times.items()}
        theirs = "".join(f"{median[way] / median['kref']:>8.2f}" if jnp.version else f"{'-':>8}" for way in WAYS)
        # A probe is its steps: the name says how many.
        kind, _, count = group.split("/")[1].rpartition("_")
        step = f"{1e9 * median['kref'] / int(count):>7.0f} ns a step" if kind == "probe" else ""
        print(f"{group:<32}{1e6 * median['kref']:>9.1f} us{median['raw'] / median['kref']:>8.2f}{theirs}"
              f"{1e6 * median['check']:>9.1f} us{median['check'] / median['kref']:>10.2f}{step}", flush=True)


def attention(a):
    """Rates of attention beside matmul's, of decode beside a plain read."""
    program = f"{a.build}/bench/bench_attention"
    median = lambda rates, name: statistics.median(rates[name])
    groups = dict.fromkeys(n.rsplit("/", 1)[0] for n in names(program) if not n.startswith("matmul"))
    torch = Partner("torch", "torch_attention.py")
    print(torch.title)
    print(f"{'case':<42}{'kref':>9}{'share':>8}{'vs raw':>8}{'vs torch':>10}")
    for group in groups:
        if a.filter not in group:
            continue
        decode, threads = group.startswith("decode"), group.rsplit("/", 1)[1]
        rates, _ = run(program, f"^({group}|matmul/f32/{threads})/" if not decode else f"^{group}/", a.repetitions, a.seconds)
        kref = median(rates, f"{group}/kref")
        whole = median(rates, f"{group}/read" if decode else f"matmul/f32/{threads}/kref")
        raw = f"{kref / median(rates, f'{group}/raw'):.2f}" if f"{group}/raw" in rates else "-"
        theirs = f"{torch_ratio(torch, program, group, a):.2f}" if torch.version else "-"
        print(f"{group:<42}{kref / 1e9:>9.1f}{100 * kref / whole:>7.0f}%{raw:>8}{theirs:>10}", flush=True)


def layers(a):
    """Time of a layer on eight devices over that of the layer alone, whose kernels have every core."""
    program = f"{a.build}/bench/bench_layers"
    print(f"{'case':<44}{'8 devices':>12}{'alone':>12}{'ratio':>8}")
    for group in dict.fromkeys(n.rsplit("/", 1)[0] for n in names(program)):
        if a.filter.removeprefix("layers").strip("/") not in group:
            continue
        rates, _ = run(program, f"^{group}/", a.repetitions, a.seconds)
        ours, alone = (1 / statistics.median(rates[f"{group}/{who}"]) for who in ("kref", "alone"))
        print(f"{group:<44}{1e3 * ours:>9.2f} ms{1e3 * alone:>9.2f} ms{ours / alone:>8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("filter", nargs="?", default="", help="only groups whose TYPE/SHAPE/THREADS contains this")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="least time of one repetition")
    a = parser.parse_args()
    if a.filter.split("/")[0] == "check":
        return judgements(a)
    if a.filter.split("/")[0] == "layers":
        return layers(a)
    if a.filter.split("/")[0] == "collectives":
        return collectives(a)
    if a.filter.split("/")[0] in ("attention", "attention_vjp", "decode"):
        return attention(a)
    if a.filter.split("/")[0] == "grid":
        return grids(a)
    program = f"{a.build}/bench/bench_matmul"
    groups = dict.fromkeys(n.rsplit("/", 1)[0] for n in names(program) if n.split("/")[0] not in ("price", "peak"))
    median = lambda rates, name: statistics.median(rates[name])

    rates, context = run(program, "^(price|peak)/", a.repetitions, a.seconds)
    peak = {"f32": median(rates, "peak/f32/1T") / 1e9, "int8": median(rates, "peak/int8/1T") / 1e9}
    peak["bf16"] = peak["f32"]
    print(f"SIMD target {context['simd_target']}; peak of one thread: f32 FMA {peak['f32']:.0f} GFLOP/s, "
          f"exact int8 (pmaddwd + paddd) {peak['int8']:.0f} GOP/s; vpdpbusd, where there is AVX512_VNNI, has about twice that")
    dsl, raw = median(rates, "price/128-tiles/1T/kref"), median(rates, "price/128-tiles/1T/raw")
    print(f"price of the DSL: {100 * (raw / dsl - 1):+.1f} % at tiles of 128 (matmul 1024 cubed against raw loops round "
          f"the same verb); {1e9 / median(rates, 'price/step/1T/kref'):.0f} ns a grid step of three operands\n")
    bf16_twice = has_bf16_products()
    if bf16_twice:
        print(f"onednn@{SAME_SUMS}: oneDNN held to the instructions that keep kref's sums; plain onednn adds bf16 products in "
              f"another order and flushes subnormals. Of peak, for bf16: of f32 FMA; vdpbf16ps has twice that\n")
    print(f"{'case':<28}{'kref':>9}{'of peak':>9}{'vs raw':>8}  kref / peer")
    for group in groups:
        if a.filter not in group:
            continue
        rates, _ = run(program, f"^{group}/", a.repetitions, a.seconds)
        kind, threads = group.split("/")[0], int(group.split("/")[2].removesuffix("T"))
        kref = median(rates, f"{group}/kref")
        peers = {n.rsplit("/", 1)[1]: kref / median(rates, n) for n in rates if n.rsplit("/", 1)[1] not in ("kref", "raw")}
        if bf16_twice and kind == "bf16" and "onednn" in peers:
            held, _ = run(program, f"^{group}/(kref|onednn@.*)/", a.repetitions, a.seconds, SAME_SUMS)
            peers[f"onednn@{SAME_SUMS}"] = median(held, f"{group}/kref") / median(held, f"{group}/onednn@{SAME_SUMS}")
        text = "  ".join(f"{who} {ratio:.2f}" for who, ratio in sorted(peers.items(), key=lambda p: p[1]))
        print(f"{group:<28}{kref / 1e9:>9.1f}{100 * kref / 1e9 / peak[kind] / threads:>8.0f}%"
              f"{kref / median(rates, f'{group}/raw'):>8.2f}  {text or '-'}", flush=True)


if __name__ == "__main__":
    main()
