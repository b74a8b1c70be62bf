#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's scaled_dot_product_attention on the rows of bench_attention, for bench/table.py: reads one row's name
a line (attention/TYPE/TxSxD/MASK/THREADS, attention_vjp/..., decode/TYPE/BxSxHxGxD/THREADS) followed by the number of
heads and the least seconds, and answers with the seconds that one call took, the mean of a repetition.
"""
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa


def case(name, heads):
    """The call that a row times."""
    kind, dtype, shape, *rest = name.split("/")
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    torch.set_num_threads(int(rest[-1].removesuffix("T")))
    random = lambda *s: torch.randn(*s, dtype=torch.float32).to(dtype)
    sizes = [int(n) for n in shape.split("x")]
    if kind == "decode":
        b, s, h, g, d = sizes
        q, k, v = random(b, h, 1, d), random(b, g, s, d), random(b, g, s, d)
        return lambda: sdpa(q, k, v, enable_gqa=h != g)
    t, s, d = sizes
    q, k, v = random(1, heads, t, d), random(1, heads, s, d), random(1, heads, s, d)
    causal = rest[0] == "causal"
    if kind == "attention":
        return lambda: sdpa(q, k, v, is_causal=causal)
    operands = [x.requires_grad_() for x in (q, k, v)]
    o = sdpa(*operands, is_causal=causal)
    ct = random(*o.shape)
    return lambda: torch.autograd.grad(o, operands, ct, retain_graph=True)


def seconds(call, least):
    """Of one call, over as many as `least` seconds hold."""
    calls, taken = 0, 0.0
    start = time.perf_counter()
    while taken < least or calls < 1:
        call()
        calls += 1
        taken = time.perf_counter() - start
    return taken / calls


def main():
    torch.manual_seed(1)
    known = {}
    for line in sys.stdin:
        name, heads, least = line.split()
        if name not in known:
            known = {name: case(name, int(heads))}
            known[name]()  # chooses its kernels
        with torch.set_grad_enabled(name.startswith("attention_vjp")):
            print(seconds(known[name], float(least)), flush=True)


if __name__ == "__main__":
    main()
