#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of bench_grid in plain jnp for bench/table.py: reads a row's name a line (grid/PROGRAM/THREADS), how it is
called (compiled: as one jax.jit; eager: operation by operation, as plain jnp is) and the least seconds, and answers with the
seconds that one call took, the mean of a repetition. XLA takes the cores that the process is given: the caller sets its affinity.
"""
import sys
import time

import jax
import jax.numpy as jnp


def attention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def layer_norm(x, gamma, beta):
    mean = jnp.mean(x, axis=1, keepdims=True)
    var = jnp.mean((x - mean) ** 2, axis=1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * gamma + beta


def programs():
    """name -> (function, operands)"""
    keys = iter(jax.random.split(jax.random.key(1), 16))
    random = lambda *shape: jax.random.uniform(next(keys), shape, jnp.float32, -1, 1)
    return {
        "matmul_512": (jnp.matmul, [random(512, 512), random(512, 512)]),
        "flash_1x4x512x64": (attention, [random(1, 4, 512, 64) for _ in range(3)]),
        "add_1M": (jnp.add, [random(1 << 20), random(1 << 20)]),
        "layer_norm_1024": (layer_norm, [random(1024, 1024), random(1, 1024), random(1, 1024)]),
        # What its steps leave, in one fused loop: jnp has no steps. The call itself is a third of the time, and the same
        # numbers stored one at a time by lax.fori_loop take little longer.
        "probe_4096": (lambda z: z + jnp.arange(4096, dtype=jnp.int32).reshape(64, 64), [jnp.zeros((64, 64), jnp.int32)]),
    }


def main():
    calls_of = {}
    for name, (f, operands) in programs().items():
        for way, g in (("compiled", jax.jit(f)), ("eager", f)):
            g(*operands).block_until_ready()
            calls_of[name, way] = (g, operands)
    for line in sys.stdin:
        name, way, least = line.split()
        g, operands = calls_of[name.split("/")[1], way]
        calls, taken, start = 0, 0.0, time.perf_counter()
        while taken < float(least):
            g(*operands).block_until_ready()
            calls += 1
            taken = time.perf_counter() - start
        print(taken / calls, flush=True)


if __name__ == "__main__":
    main()
