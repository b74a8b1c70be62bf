#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kref check on corrupted copies of every matmul run: exit 1 each, and the right tile named.

A copy is let off only when nothing in it is further from the original than the bounds allow, which
is asked of the command itself, element by element. Patterns: mutants_test.cc.
"""
import json
import math
import struct
import sys
import unittest

from command import ROOT, CommandTest, kref, read, write

FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I32": "i"}
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def decode(dtype, raw):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
    return list(struct.unpack(f"<{len(raw) // SIZES[dtype]}{FORMATS[dtype]}", raw))


def encode(dtype, values):
    def one(v):
        if dtype == "BF16":
            bits = struct.unpack("<I", one_float(v))[0]
            if v == v:
                bits += 0x7FFF + ((bits >> 16) & 1)
            return struct.pack("<H", (bits >> 16) & 0xFFFF)
        if dtype == "I32":
            return struct.pack("<i", (int(v) + 2**31) % 2**32 - 2**31)
        try:
            return struct.pack("<" + FORMATS[dtype], v)
        except OverflowError:
            return struct.pack("<" + FORMATS[dtype], math.copysign(math.inf, v))

    def one_float(v):
        try:
            return struct.pack("<f", v)
        except OverflowError:
            return struct.pack("<f", math.copysign(math.inf, v))

    return b"".join(map(one, values))


class Matrix:
    """The output of a run, cut into tiles of half its extents."""

    def __init__(self, path):
        self.meta, self.tensors = read(path)
        self.dtype, self.shape, raw = self.tensors["out.z"]
        self.z = decode(self.dtype, raw)
        self.m, self.n = self.shape[-2:]
        self.options = json.loads(self.meta.get("set", "{}"))
        self.k = self.tensors["in.x"][1][-2 if self.options.get("trans_x") else -1]
        self.tile = [max(1, -(-e // 2)) for e in (self.m, self.n, self.k)]
        self.options["tile"] = self.tile
        self.meta["set"] = json.dumps(self.options)

    def tile_of(self, e):
        """The index of an element's tile as the report gives it: batch, i, j."""
        index = []
        for extent in reversed(self.shape):
            index.insert(0, e % extent)
            e //= extent
        return index[:-2] + [index[-2] // self.tile[0], index[-1] // self.tile[1]]

    def tiles(self):
        """tile -> its elements, in order"""
        out = {}
        for e in range(len(self.z)):
            out.setdefault(tuple(self.tile_of(e)), []).append(e)
        return out


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


class CorruptedRunsTest(CommandTest):
    def check(self, r, outputs):
        """For each output in place of the run's: (exit status, the one output of the JSON answer)."""
        paths = []
        for i, z in enumerate(outputs):
            tensors = dict(r.tensors)
            tensors["out.z"] = (r.dtype, r.shape, encode(r.dtype, z))
            paths.append(self.tmp / f"{i}.safetensors")
            write(paths[-1], r.meta, tensors)
        code, out, err = kref("check", "--json", *paths)
        self.assertEqual(err, "")
        answers = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(answers), len(outputs))
        self.assertEqual(code, max(a["exit"] for a in answers))
        return [(a["exit"], a["outputs"][0]) for a in answers]

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
        print(f"{made} corrupted copies: {made - let_off} caught, {let_off} within the bounds")
        self.assertGreater(made, 350)
        self.assertLess(let_off, made / 8)


def names(corruption, answer):
    """What the guess may be."""
    pattern = {"tile of zeros": "tile missing", "two tiles swapped": "tiles swapped",
               "one row shifted": "rows shifted", "negated": "sign", "one NaN": "non-finite",
               "one element off by 50 bounds": "unknown"}.get(corruption, corruption)
    # One wrong element that is not finite is all there is to see.
    alone = {"non-finite"} if answer["wrong"] == 1 and answer["worst"]["fraction"] is None else set()
    return {pattern, "unknown"} | alone


def differ(a, b):
    return a != b and (a == a or b == b)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
