# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: running kref, run files, .npy files.

A test is called as TEST.py KREF SOURCE_ROOT.
"""
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

KREF = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(sys.argv[2]).resolve()
RUNS = ROOT / "tests" / "runs"
GOOD = RUNS / "m02-primes.safetensors"


def kref(*args, **options):
    """(exit status, standard output, standard error)"""
    p = subprocess.run([str(KREF), *map(str, args)], capture_output=True, text=True, timeout=120,
                       stdin=subprocess.DEVNULL, **options)
    return p.returncode, p.stdout, p.stderr


def read(path):
    """(metadata, name -> (dtype, shape, bytes)) of a safetensors file"""
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    meta = head.pop("__metadata__", {})
    return meta, {k: (t["dtype"], t["shape"], raw[8 + n:][slice(*t["data_offsets"])]) for k, t in head.items()}


def write(path, meta, tensors):
    head, data = {"__metadata__": meta}, b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_npy(path, descr, shape, raw):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + raw)


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.tmp = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def refused(self, *args, mentions, status=2, **options):
        code, out, err = kref(*args, **options)
        self.assertEqual(code, status, err)
        self.assertTrue(err.startswith("kref: "), err)
        self.assertIn(mentions, err.split("\n")[0])
        self.assertEqual(out, "")

    def mutant(self, path=GOOD, add=1000.0):
        """A copy of an F32 run with one element off; its path."""
        meta, tensors = read(path)
        dtype, shape, raw = tensors["out.z"]
        z = array.array("f", raw)
        z[3] += add
        tensors["out.z"] = (dtype, shape, z.tobytes())
        bad = self.tmp / "bad.safetensors"
        write(bad, meta, tensors)
        return bad

    def arrays(self):
        """x.npy, y.npy, z.npy of GOOD, as arguments of check and run."""
        _, tensors = read(GOOD)
        for name, (_, shape, raw) in tensors.items():
            write_npy(self.tmp / f"{name.split('.')[1]}.npy", "<f4", shape, raw)
        return ["--in", f"x={self.tmp}/x.npy", "--in", f"y={self.tmp}/y.npy"]


class CostTest(CommandTest):
    def cost(self, *args):
        code, out, err = kref("cost", *args, "--json")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def int32(self, name, values):
        path = self.tmp / f"{name}.npy"
        write_npy(path, "<i4", (len(values),), struct.pack(f"<{len(values)}i", *values))
        return path
