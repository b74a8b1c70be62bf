#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kref check on corrupted copies of every matmul run: exit 1 each, and the right tile, device and
kind of fault named.

A copy is let off only when nothing in it is further from the original than the bounds allow, which
is asked of the command itself, element by element. More patterns: mutants_test.cc.
"""
import collections
import math
import sys
import unittest

from command import ROOT, kref, read, write
from corrupted import SIZES, CorruptedTest, Matrix, decode, encode


def corruptions(r):
    """name -> changed output"""
    n, z = r.n, r.z
    tiles = r.tiles()
    (_, first), (_, last) = next(iter(tiles.items())), list(tiles.items())[-1]
    out = {}

    def change(name, moves):
        out[name] = list(z)
        for e, v in moves:
            out[name][e] = v

    change("tile of zeros", [(e, 0) for e in last])
    # A neighbour along one axis.
    other = next((e for t, e in tiles.items() if sum(t) == 1 and len(e) == len(first)), None)
    if other and [e - first[0] for e in first] == [e - other[0] for e in other]:
        change("two tiles swapped", [*zip(first, (z[e] for e in other)), *zip(other, (z[e] for e in first))])
    if r.m > 1:
        change("one row shifted", [(e, z[e + n]) for e in range(n)])
    if r.m == r.n > 1:
        size = n * n
        out["transposed"] = [z[e - e % size + e % n * n + e % size // n] for e in range(len(z))]
    out["negated"] = [-v for v in z]
    if r.dtype != "I32":
        change("one NaN", [(len(z) // 2, math.nan)])
    return out


class CorruptedRunsTest(CorruptedTest):
    def bounds(self, r, elements):
        """The bounds of elements: what the answer says when one is NaN (0 of integers)."""
        if r.dtype == "I32":
            return [0] * len(elements)
        copies = []
        for e in elements:
            copies.append(list(r.z))
            copies[-1][e] = math.nan
        worst = [answer["worst"] for _, answer in self.check(r, copies)]
        # An element that ought to be NaN is not the worst then, and has no bound.
        return [w["bound"] if w["element"] == e else 0 for e, w in zip(elements, worst)]

    def within_bounds(self, r, z):
        stored = decode(r.dtype, encode(r.dtype, z))
        changed = [e for e in range(len(z)) if differ(r.z[e], stored[e])]
        if not all(math.isfinite(r.z[e]) and math.isfinite(stored[e]) for e in changed):
            return False
        if not changed:
            return True
        return all(abs(r.z[e] - stored[e]) <= 2 * b for e, b in zip(changed, self.bounds(r, changed)))

    def short_sums(self, r):
        """The output of sums that stop before the last k block."""
        stop = (-(-r.k // r.tile[2]) - 1) * r.tile[2]
        if stop <= 0:
            return None
        inputs, meta = {}, dict(r.meta)
        for name, inner in (("in.x", not r.options.get("trans_x")), ("in.y", bool(r.options.get("trans_y")))):
            dtype, shape, raw = r.tensors[name]
            axis = len(shape) - (1 if inner else 2)
            row = math.prod(shape[axis + 1:]) * SIZES[dtype]
            cut = b"".join(raw[o:o + stop * row] for o in range(0, len(raw), shape[axis] * row))
            inputs[name] = (dtype, shape[:axis] + [stop] + shape[axis + 1:], cut)
        short, result = self.tmp / "short.safetensors", self.tmp / "result.safetensors"
        write(short, meta, inputs)
        code, _, err = kref("run", short, "--out", result)
        self.assertEqual((code, err), (0, ""))
        return decode(r.dtype, read(result)[1]["out.z"][2])

    def off_by_50_bounds(self, r):
        z, e = list(r.z), len(r.z) // 3
        z[e] += 50 * self.bounds(r, [e])[0] or 50
        stored = decode(r.dtype, encode(r.dtype, z))[e]
        return z if math.isfinite(r.z[e]) and math.isfinite(stored) else None

    def test_every_run(self):
        made = let_off = 0
        caught, named = collections.Counter(), collections.Counter()
        for path in sorted((ROOT / "tests" / "runs").glob("m*.safetensors")):
            r = Matrix(path)
            if not r.z:
                continue
            copies = corruptions(r)
            copies["last k block dropped"] = self.short_sums(r)
            copies["one element off by 50 bounds"] = self.off_by_50_bounds(r)
            copies = {name: z for name, z in copies.items() if z is not None}
            answers = self.check(r, [r.z, *copies.values()])
            self.assertEqual(answers[0][0], 0, path)
            for (name, z), (code, answer) in zip(copies.items(), answers[1:]):
                made += 1
                with self.subTest(run=path.name, corruption=name):
                    if code == 0:
                        let_off += 1
                        self.assertTrue(self.within_bounds(r, z))
                        continue
                    self.assertEqual(code, 1)
                    worst = answer["worst"]
                    e = worst["element"]
                    self.assertTrue(differ(r.z[e], z[e]), e)
                    self.assertEqual(worst["tile"], r.tile_of(e))
                    self.assertIn("i={}, j={}".format(*worst["tile"][-2:]), worst["step"])
                    self.assertIn(answer["pattern"], names(name, answer))
                    caught[name] += 1
                    named[name] += answer["pattern"] == PATTERNS[name]
        for name, least in NAMED.items():
            print(f"{name}: named in {named[name]} of {caught[name]} copies")
            self.assertGreaterEqual(caught[name], 7, name)
            self.assertGreaterEqual(named[name], least * caught[name], name)
        print(f"{made} corrupted copies: {made - let_off} caught, {let_off} within the bounds")
        self.assertGreater(made, 350)
        self.assertLess(let_off, made / 8)


# What each fault is called.
PATTERNS = {"tile of zeros": "tile missing", "two tiles swapped": "tiles swapped",
            "one row shifted": "rows shifted", "transposed": "transposed", "negated": "sign",
            "one NaN": "non-finite", "last k block dropped": "last k block dropped",
            "one element off by 50 bounds": "unknown"}
# In what share of the copies at least; the others are too small, or two faults would explain them.
NAMED = {"tile of zeros": 0.8, "two tiles swapped": 0.8, "one row shifted": 0.7, "transposed": 0.8, "negated": 0.8,
         "one NaN": 0.9, "last k block dropped": 0.8, "one element off by 50 bounds": 0.95}


def names(corruption, answer):
    """What the guess may be."""
    # One wrong element that is not finite is all there is to see.
    alone = {"non-finite"} if answer["wrong"] == 1 and answer["worst"]["actual"] in ("nan", "inf", "-inf") else set()
    return {PATTERNS[corruption], "unknown"} | alone


def differ(a, b):
    return a != b and (a == a or b == b)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
