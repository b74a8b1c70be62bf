# SPDX-License-Identifier: Apache-2.0
"""Matmul runs with changed outputs, for the tests of what kref check says of them."""
import json
import math
import struct

from command import CommandTest, kref, read, write

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
        """The index of an element's tile as the report gives it: the batch as one, i, j."""
        row, column, batch = e // self.n % self.m, e % self.n, e // self.n // self.m
        return [batch] * (len(self.shape) > 2) + [row // self.tile[0], column // self.tile[1]]

    def tiles(self):
        """tile -> its elements, in order"""
        out = {}
        for e in range(len(self.z)):
            out.setdefault(tuple(self.tile_of(e)), []).append(e)
        return out


class CorruptedTest(CommandTest):
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
