// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "sharding/matmul_placement.h"

namespace kref {
namespace {

using Kind = MatmulStep::Kind;
using Ranges = std::vector<ContractionRange>;
using Indices = std::vector<Index>;

// Whole small integers: sums are exact, in any order.
std::vector<Index> integers(std::mt19937& random, Index size) {
  std::vector<Index> out(static_cast<std::size_t>(size));
  for (Index& v : out) v = static_cast<Index>(random() % 9) - 4;
  return out;
}

PartitionSpec random_spec(std::mt19937& random, const Mesh& mesh) {
  PartitionSpec spec;
  spec.entries.resize(2);
  for (const MeshAxis& axis : mesh.axes()) {
    const std::size_t d = random() % 3;
    if (d == 2) continue;
    std::vector<std::string>& entry = spec.entries[d];
    entry.insert(random() % 2 == 0 ? entry.begin() : entry.end(), axis.name);
  }
  return spec;
}

// Block of a matrix [rows, columns] that a device holds, as first and last+1 element a dimension.
ContractionRange held(const PartitionSpec& spec, std::size_t d, Index extent, const Mesh& mesh,
                      Index device) {
  const Index size = extent / block_count(spec[d], mesh);
  const Index block = block_index(spec[d], mesh, device);
  return {block * size, (block + 1) * size};
}

TEST_CASE("the parts of random legal placements add up to the whole product") {
  std::mt19937 random(7);
  const Mesh mesh = Mesh::parse("X=2,Y=3,Z=2");
  const Index m = 12, n = 12, k = 12;
  const MatmulShape shape{.m = m, .n = n, .k = k};
  const std::vector<Index> x = integers(random, m * k), y = integers(random, k * n);
  const auto sum = [&](Index i, Index j, ContractionRange range) {
    Index s = 0;
    for (Index l = range.begin; l < range.end; ++l) s += x[i * k + l] * y[l * n + j];
    return s;
  };
  int placed = 0, kept = 0, reduced = 0, sliced = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const PartitionSpec xs = random_spec(random, mesh), ys = random_spec(random, mesh);
    OutSpec zs{random_spec(random, mesh), {}};
    for (const MeshAxis& axis : mesh.axes()) {
      if (!zs.spec.names(axis.name) && random() % 2 == 0) zs.unreduced.push_back(axis.name);
    }
    MatmulPlacement p;
    const OneSidedK one_sided = random() % 2 == 0 ? OneSidedK::kGather : OneSidedK::kSlice;
    try {
      p = place_matmul(mesh, shape, xs, ys, zs, one_sided);
    } catch (const Error&) {
      continue;
    }
    ++placed;
    kept += zs.unreduced.empty() ? 0 : 1;
    reduced += p.contraction.empty() ? 0 : 1;
    const bool one_side = p.which == MatmulCase::kOneSide && !p.contraction.empty();
    sliced += one_side ? 1 : 0;
    CAPTURE(to_string(p));
    const std::vector<Ranges> parts = contraction_parts(p);
    const Indices out = p.output_shape();
    Index sums = 1;
    for (std::size_t u = 0; u < zs.unreduced.size(); ++u) sums *= out[u];
    REQUIRE(static_cast<Index>(parts.size()) == sums);

    // Over all partial sums the parts are every element of K once, and the values the product.
    std::vector<int> seen(static_cast<std::size_t>(k));
    for (const Ranges& ranges : parts) {
      CHECK(std::is_sorted(ranges.begin(), ranges.end(),
                           [](const auto& a, const auto& b) { return a.begin < b.begin; }));
      for (const ContractionRange& r : ranges) {
        for (Index l = r.begin; l < r.end; ++l) ++seen[static_cast<std::size_t>(l)];
      }
    }
    CHECK(seen == std::vector<int>(static_cast<std::size_t>(k), 1));
    bool right = true;
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        Index total = 0;
        for (const Ranges& ranges : parts) {
          for (const ContractionRange& r : ranges) total += sum(i, j, r);
        }
        right = right && total == sum(i, j, {0, k});
      }
    }
    CHECK(right);

    // What a device multiplies without having gathered K it must hold, on both sides; and its part
    // belongs to the partial sum that its place along the unreduced axes names.
    for (Index device = 0; device < mesh.device_count(); ++device) {
      const ContractionRange mine = p.contraction_range(device);
      if (p.which == MatmulCase::kBothSides) {
        CHECK(held(xs, 1, k, mesh, device) == mine);
        CHECK(held(ys, 0, k, mesh, device) == mine);
      } else if (one_side) {
        CHECK((xs[1].empty() ? held(ys, 0, k, mesh, device) : held(xs, 1, k, mesh, device)) ==
              mine);
      }
      const Indices at = mesh.coordinates(device);
      Index u = 0;
      for (const std::string& axis : zs.unreduced) u = u * mesh.size(axis) + at[mesh.index(axis)];
      const Ranges& ranges = parts[static_cast<std::size_t>(u)];
      CHECK(std::find(ranges.begin(), ranges.end(), mine) != ranges.end());
      // The block of z that it ends up with lies in the rows and columns that it multiplied: of its
      // operands' blocks, unless they were gathered.
      const ContractionRange rows = held(zs.spec, 0, m, mesh, device),
                             own = held(xs, 0, m, mesh, device);
      const bool gathered = std::any_of(p.steps.begin(), p.steps.end(), [](const MatmulStep& s) {
        return s.kind == Kind::kAllGather && s.dim.kind == MatmulDim::Kind::kRows;
      });
      if (!gathered) CHECK((own.begin <= rows.begin && rows.end <= own.end));
    }
  }
  CHECK(placed > 500);
  CHECK(kept > 20);
  CHECK(reduced > 100);
  CHECK(sliced > 50);
  MESSAGE(placed, " of 20000 placements legal, ", reduced, " with partial sums");
}

}  // namespace
}  // namespace kref
