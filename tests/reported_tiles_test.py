#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where kref check says a wrong element is: the tile that the run gives, and the device, grid step and tile of a
sharded run."""
import json
import math
import sys
import unittest

from command import GOOD, ROOT
from corrupted import CorruptedTest, Matrix


class ReportedTilesTest(CorruptedTest):
    def test_a_given_tile_is_kept(self):
        """Also one that divides nothing, and one that is larger than the output."""
        for tile in ([2, 3, 5], [7, 13, 11], [100, 5, 1000]):
            r = Matrix(GOOD)
            r.tile = r.options["tile"] = tile
            r.meta["set"] = json.dumps(r.options)
            bad = list(r.z)
            bad[-1] += 1000
            (_, answer), = self.check(r, [bad])
            self.assertEqual(answer["worst"]["tile"], [(r.m - 1) // tile[0], (r.n - 1) // tile[1]])
            self.assertEqual(answer["tiles"], -(-r.m // tile[0]) * -(-r.n // tile[1]))
            last = -(-r.k // tile[2]) - 1
            self.assertTrue(answer["worst"]["step"].endswith("k=0" + (f"..{last}" if last else "")), answer)

    def test_sharded_runs(self):
        """One element off: the device that has it, and the tile and step of that device's own grid."""
        named = 0
        for path in sorted((ROOT / "tests" / "runs" / "sharded").glob("matmul*.safetensors")):
            r = Matrix(path)
            mesh = {axis: int(size) for axis, size in (part.split("=") for part in r.meta["mesh"].split(","))}
            spec = json.loads(r.meta.get("out_specs", "{}")).get("z", [])
            unreduced = spec.get("unreduced", []) if isinstance(spec, dict) else []
            spec = spec["spec"] if isinstance(spec, dict) else spec
            axes = [[a] if isinstance(a, str) else a or [] for a in spec] + [[]] * len(r.shape)
            grids = self.local_grid(r, mesh)
            for e in {0, len(r.z) // 3, len(r.z) - 1}:
                z = list(r.z)
                z[e] = z[e] + 1 if r.dtype == "I32" else 1e30 if abs(z[e]) < 1e29 else 0
                for tile in (r.tile, [3, 5, 7]):
                    r.options["tile"] = tile
                    r.meta["set"] = json.dumps(r.options)
                    (code, answer), = self.check(r, [z])
                    worst = answer["worst"]
                    with self.subTest(run=path.name, element=e, tile=tile):
                        self.assertEqual((code, answer["wrong"], worst["element"]), (1, 1, e))
                        index, rest = [], e
                        for extent in reversed(r.shape):
                            index.insert(0, rest % extent)
                            rest //= extent
                        # The device: the block of each dimension, and the index along unreduced axes.
                        at = dict(zip(unreduced, index))
                        index, shape = index[len(unreduced):], r.shape[len(unreduced):]
                        for d, names in enumerate(axes[:len(shape)]):
                            block = index[d] * math.prod(mesh[a] for a in names) // shape[d]
                            for a in reversed(names):
                                at[a], block = block % mesh[a], block // mesh[a]
                        whole = {a: f"0..{n - 1}" if n > 1 else "0" for a, n in mesh.items()}
                        expected = ", ".join(f"{a}={at.get(a, whole[a])}" for a in mesh)
                        self.assertEqual(worst["device"], f"({expected})")
                        # The step: inside the rows and columns that one device multiplies.
                        rows, columns, depth = grids
                        step = [index[-2] % rows // tile[0], index[-1] % columns // tile[1]]
                        self.assertEqual(worst["tile"][-2:], step)
                        self.assertEqual(answer["tile_axes"][-2:], ["i", "j"])
                        last = -(-depth // tile[2]) - 1
                        self.assertTrue(worst["step"].endswith(
                            "i={}, j={}, k=0".format(*step) + (f"..{last}" if last else "")), worst["step"])
                        named += 1
        self.assertGreater(named, 80)

    def local_grid(self, r, mesh):
        """Rows, columns and depth of what one device multiplies: the sizes divided by the axes that shard them in
        both the operand and the output, or (of the depth) in both operands."""
        def entry(text, name, d, rank):
            spec = json.loads(r.meta.get(text, "{}")).get(name, [])
            spec = spec["spec"] if isinstance(spec, dict) else spec
            spec = list(spec) + [None] * (rank - len(spec))
            return [spec[d]] if isinstance(spec[d], str) else spec[d] or []

        rank = {n: len(r.tensors[n][1]) for n in ("in.x", "in.y")}
        swapped = {"x": bool(r.options.get("trans_x")), "y": bool(r.options.get("trans_y"))}
        x = [entry("in_specs", "x", d, rank["in.x"]) for d in ((-1, -2) if swapped["x"] else (-2, -1))]
        y = [entry("in_specs", "y", d, rank["in.y"]) for d in ((-1, -2) if swapped["y"] else (-2, -1))]
        z_rank = rank["in.x"]
        z = [entry("out_specs", "z", d, z_rank) for d in (-2, -1)]
        contracted = x[1] if x[1] == y[0] else []

        def kept(own, wanted):
            # Axes in both are kept, those that only z names are sliced, unless partial sums are scattered over them.
            n, same = 1, True
            for i, a in enumerate(wanted):
                same = same and i < len(own) and own[i] == a
                if same:
                    n *= mesh[a]
                elif a in contracted:
                    break
                else:
                    n *= mesh[a]
            return n

        depth = r.k // math.prod(mesh[a] for a in contracted)
        return r.m // kept(x[0], z[0]), r.n // kept(y[1], z[1]), depth


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
