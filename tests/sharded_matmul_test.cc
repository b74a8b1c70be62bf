// SPDX-License-Identifier: Apache-2.0
#include "sharding/sharded_matmul.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "sharding/reshard.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// Element (b, row, column) of a product, as a plain loop over k from `begin` to `end`.
struct Product {
  const Array &x, &y;
  MatmulShape shape;

  double operator()(Index b, Index i, Index j, Index begin, Index end) const {
    const Index m = shape.m, n = shape.n, depth = shape.k;
    double sum = 0;
    for (Index k = begin; k < end; ++k) {
      const Index xi = shape.trans_x ? (b * depth + k) * m + i : (b * m + i) * depth + k;
      const Index yb = shape.shared_y ? 0 : b;
      const Index yi = shape.trans_y ? (yb * n + j) * depth + k : (yb * depth + k) * n + j;
      sum += x.at(xi) * y.at(yi);
    }
    return sum;
  }
};

Index batch_size(const MatmulShape& shape) {
  Index size = 1;
  for (const Index b : shape.batch) size *= b;
  return size;
}

// Compares z with the plain product. Along unreduced axes each leading index is the sum over the
// blocks of K whose devices have that index: `parts` of them, each a list of blocks.
Index wrong_elements(const Array& z, const Array& x, const Array& y, const MatmulPlacement& p) {
  const Product product{x, y, p.shape};
  const auto parts = contraction_parts(p);
  const Index batch = batch_size(p.shape);
  Index wrong = 0, at = 0;
  for (const auto& ranges : parts) {
    for (Index b = 0; b < batch; ++b) {
      for (Index i = 0; i < p.shape.m; ++i) {
        for (Index j = 0; j < p.shape.n; ++j, ++at) {
          double sum = 0;
          for (const ContractionRange& r : ranges) sum += product(b, i, j, r.begin, r.end);
          wrong += z.at(at) != sum;
        }
      }
    }
  }
  return wrong + (at == z.size() ? 0 : 1);
}

// Every way to name each axis of the mesh in at most one of two dimensions, in either order.
std::vector<P> specs_of_two(const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> entries = {{}};
  for (const std::string& a : names) {
    entries.push_back({a});
    for (const std::string& b : names) {
      if (a != b) entries.push_back({a, b});
    }
  }
  std::vector<P> out;
  for (const auto& first : entries) {
    for (const auto& second : entries) {
      bool twice = false;
      for (const std::string& a : first) {
        twice = twice || std::find(second.begin(), second.end(), a) != second.end();
      }
      if (!twice) out.push_back(P{SpecEntry(first), SpecEntry(second)});
    }
  }
  return out;
}

TEST_CASE("every combination of specs gives the unsharded product, exactly") {
  int run = 0, refused = 0, sliced = 0;
  int cases[5] = {};
  for (const char* text : {"X=2,Y=2", "X=2,Y=3"}) {
    const Mesh mesh = Mesh::parse(text);
    const std::vector<P> specs = specs_of_two({"X", "Y"});
    const MatmulShape shape{.m = 6, .n = 12, .k = 6};
    const Array x = mixed({6, 6}, 1), y = mixed({6, 12}, 2);
    for (const P& xs : specs) {
      for (const P& ys : specs) {
        for (const P& zs : specs) {
          for (const OneSidedK one_sided : {OneSidedK::kGather, OneSidedK::kSlice}) {
            const bool slice = one_sided == OneSidedK::kSlice;
            if (slice && xs[1].empty() == ys[0].empty()) continue;  // not case 2
            MatmulPlacement placement;
            try {
              placement = place_matmul(mesh, shape, xs, ys, {zs, {}}, one_sided);
            } catch (const Error&) {
              ++refused;
              continue;
            }
            const Array z =
                sharded_matmul(mesh, {xs, ys, {zs, {}}}, x, y, {.one_sided = one_sided});
            ++run;
            sliced += slice ? 1 : 0;
            ++cases[static_cast<int>(placement.which)];
            CHECK_MESSAGE(wrong_elements(z, x, y, placement) == 0, text, ": ", to_string(xs),
                          " by ", to_string(ys), " to ", to_string(zs), "\n", to_string(placement));
          }
        }
      }
    }
  }
  MESSAGE(run, " placements run, ", refused, " refused");
  for (const int which : {1, 2, 3, 4}) CHECK(cases[which] > 10);
  CHECK(sliced > 50);
}

TEST_CASE("batches, transposed operands and unreduced results") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const struct {
    MatmulShape shape;
    MatmulSpecs specs;
  } cases[] = {
      {{.batch = {4}, .m = 2, .n = 4, .k = 6}, {P{"X", none, "Y"}, P{"X", "Y"}, {P{"X"}, {}}}},
      {{.batch = {4}, .m = 2, .n = 4, .k = 6}, {P{"X", none, "Y"}, P{"X", "Y"}, {P{"X", "Y"}, {}}}},
      {{.batch = {4}, .m = 2, .n = 4, .k = 6, .shared_y = true},
       {P{"X", none, "Y"}, P{"Y"}, {P{"X", none, "Y"}, {}}}},
      {{.m = 4, .n = 6, .k = 8, .trans_x = true}, {P{"X", "Y"}, P{"X"}, {P{"Y"}, {"X"}}}},
      {{.m = 4, .n = 6, .k = 8, .trans_y = true}, {P{none, "X"}, P{"Y", "X"}, {P{"X", "Y"}, {}}}},
      {{.m = 4, .n = 4, .k = 8, .trans_x = true, .trans_y = true},
       {P{axes("X", "Y")}, P{none, axes("X", "Y")}, {P{}, {"Y"}}}},
      {{.m = 4, .n = 4, .k = 8}, {P{none, axes("X", "Y")}, P{axes("X", "Y")}, {P{"X", "Y"}, {}}}},
      {{.m = 4, .n = 4, .k = 8}, {P{none, axes("Y", "X")}, P{axes("Y", "X")}, {P{"X", none}, {}}}},
      {{.m = 4, .n = 4, .k = 8}, {P{none, axes("X", "Y")}, P{axes("X", "Y")}, {P{}, {"Y", "X"}}}},
  };
  for (const auto& c : cases) {
    const MatmulPlacement placement = place_matmul(mesh, c.shape, c.specs.x, c.specs.y, c.specs.z);
    for (const DType type : {DType::kF32, DType::kI8, DType::kBF16, DType::kF64}) {
      const Array x = mixed(c.shape.x(), 3, type), y = mixed(c.shape.y(), 4, type);
      const Array z = sharded_matmul(mesh, c.specs, x, y,
                                     {.trans_x = c.shape.trans_x, .trans_y = c.shape.trans_y});
      CHECK(z.dtype() == (type == DType::kI8 ? DType::kI32 : type));
      CHECK(shape_of(z) == placement.output_shape());
      CHECK_MESSAGE(wrong_elements(z, x, y, placement) == 0, to_string(placement));
    }
  }
}

// Numbers whose sums depend on the order in which they are added.
Array rough(const std::vector<Index>& shape, unsigned seed) {
  Array out = mixed(shape, seed);
  unsigned state = seed;
  for (float& v : out.mutable_elements<float>()) {
    state = state * 1664525u + 1013904223u;
    v = (v + 0.5f) * (1.0f + static_cast<float>(state >> 8) * 0x1p-20f);
  }
  return out;
}

TEST_CASE("partial sums are added in ascending rank and rounded once") {
  const Mesh mesh = Mesh::parse("X=2,Y=3");
  const Index m = 6, n = 12, k = 30, blocks = 6, depth = k / blocks;
  const Array x = rough({m, k}, 5), y = rough({k, n}, 6);
  for (const bool x_major : {true, false}) {
    const SpecEntry both = x_major ? axes("X", "Y") : axes("Y", "X");
    // The chain of each element: a block's fused sum along k, blocks added in their order.
    std::vector<float> expected;
    std::vector<bf16> rounded;
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        float total = 0;
        for (Index b = 0; b < blocks; ++b) {
          float sum = 0;
          for (Index d = b * depth; d < (b + 1) * depth; ++d) {
            sum = std::fma(x.elements<float>()[static_cast<std::size_t>(i * k + d)],
                           y.elements<float>()[static_cast<std::size_t>(d * n + j)], sum);
          }
          total = b == 0 ? sum : total + sum;
        }
        expected.push_back(total);
        rounded.push_back(static_cast<bf16>(total));
      }
    }
    const P in_x{none, both}, in_y{both};
    for (const P& out : {P(), P{both}, P{none, "X"}, P{"Y", "X"}, P{"X"}, P{axes("Y", "X")}}) {
      const MatmulSpecs specs{in_x, in_y, {out, {}}};
      const Array z = sharded_matmul(mesh, specs, x, y);
      CHECK(std::ranges::equal(z.elements<float>(), expected));
      const Array narrow = sharded_matmul(mesh, specs, x, y, {.out_dtype = DType::kBF16});
      Index wrong = 0;
      for (std::size_t e = 0; e < rounded.size(); ++e) {
        wrong += static_cast<float>(narrow.elements<bf16>()[e]) != static_cast<float>(rounded[e]);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("behaviour 58: partial products of an unreduced matmul, and their sum") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const Array a = iota({2, 4}), b = iota({4, 2});
  const Array terms = sharded_matmul(mesh, {P{"x", "y"}, P{"y"}, {P{"x"}, {"y"}}}, a, b);
  CHECK(shape_of(terms) == std::vector<Index>{2, 2, 2});
  CHECK(values(terms) == std::vector<double>{2, 3, 10, 19, 26, 31, 66, 79});
  const Array sum = sharded_matmul(mesh, {P{"x", "y"}, P{"y"}, {P{"x"}, {}}}, a, b);
  CHECK(values(sum) == std::vector<double>{28, 34, 76, 98});
}

TEST_CASE("behaviour 59: an unreduced square") {
  const Mesh mesh = Mesh::parse("x=2");
  const Array a = iota({2, 2});
  const Array terms = sharded_matmul(mesh, {P{none, "x"}, P{"x"}, {P{}, {"x"}}}, a, a);
  CHECK(values(terms) == std::vector<double>{0, 0, 0, 2, 2, 3, 6, 9});
}

TEST_CASE("case L054: a column-split then a row-split layer sums to 64 on any number of devices") {
  for (const char* text : {"X=2", "X=4", "X=8", "X=16", "X=32"}) {
    const Mesh mesh = Mesh::parse(text);
    const Array h = sharded_matmul(mesh, {P(), P{none, "X"}, {P{none, "X"}, {}}}, full({4, 2}, 1),
                                   full({2, 32}, 1));
    const Array z = sharded_matmul(mesh, {P{none, "X"}, P{"X"}, {P(), {}}}, h, full({32, 8}, 1));
    CHECK(values(z) == std::vector<double>(32, 64));
  }
}

TEST_CASE("operands and products stay on the mesh") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const Array x = mixed({4, 6}, 1), w1 = mixed({6, 8}, 2), w2 = mixed({8, 2}, 3);
  const Sharded xs = shard(mesh, x, P{"X"}), w1s = shard(mesh, w1, P{none, "Y"});
  const Sharded w2s = shard(mesh, w2, P{"Y"});
  const Sharded h = sharded_matmul(xs, w1s, P{"X", "Y"});
  CHECK(h.type() == "f32[4@X,8@Y]");
  const Sharded terms = sharded_matmul(h, w2s, Placement(P{"X"}, {.unreduced = {"Y"}}));
  CHECK(terms.type() == "f32[4@X,2]{U:Y}");
  const Array z = unshard(reshard(terms, P{"X"}));
  const Array hidden = sharded_matmul(mesh, {}, x, w1),
              expected = sharded_matmul(mesh, {}, hidden, w2);
  CHECK(values(unshard(h)) == values(hidden));
  CHECK(values(z) == values(expected));
  CHECK(values(unshard(sharded_matmul(h, w2s, P{"X", "Y"}))) == values(expected));
  // Arrays and what lives on the mesh mix.
  CHECK(values(sharded_matmul(mesh, {P{"X"}, P{none, "Y"}, {P{"X", "Y"}, {}}}, x, w1s)) ==
        values(hidden));
  CHECK(refusal([&] { sharded_matmul(terms, w2s, P{}); }).find("which is unreduced") !=
        std::string::npos);
  CHECK(refusal([&] {
          sharded_matmul(shard(Mesh::parse("X=4"), x, P()), w1s, P{});
        }).find("x lives on the mesh X=4 and y on X=2,Y=2") != std::string::npos);
}

TEST_CASE("what does not fit is refused before a device starts") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const Array x = iota({4, 4}), y = iota({4, 4});
  const auto message = [&](const MatmulSpecs& specs, const Array& a, const Array& b) {
    return refusal([&] { sharded_matmul(mesh, specs, a, b); });
  };
  CHECK(message({P{none, "X"}, P{"Y"}, {}}, x, y).find("contracting dimensions sharded over") !=
        std::string::npos);
  CHECK(message({}, x, iota({3, 4})).find("has k = 3") != std::string::npos);
  CHECK(message({}, x, iota({4, 4}, 0, DType::kF64)).find("one element type") != std::string::npos);
  CHECK(message({P{"X"}, P(), {P{"X"}, {}}}, iota({3, 4}), y).find("not divisible") !=
        std::string::npos);
}

TEST_CASE("the work of a placement: flops and bytes of each device") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const MatmulShape shape{.m = 8, .n = 16, .k = 32};
  const auto work = [&](const P& x, const P& y, const OutSpec& z) {
    return matmul_work(place_matmul(mesh, shape, x, y, z), DType::kBF16);
  };
  // All 2 M N K over two row blocks.
  MatmulWork w = work(P{"X"}, P(), {P{"X"}, {}});
  CHECK(w.flops == 2.0 * 4 * 16 * 32);
  CHECK(w.transfers.empty());
  // y [8, 16] bf16 is gathered from four: three blocks leave each device.
  w = work(P(), P{"Y"}, {});
  CHECK(w.flops == 2.0 * 8 * 16 * 32);
  REQUIRE(w.transfers.size() == 1);
  CHECK(w.transfers[0].collective.find("all_gather") == 0);
  CHECK(w.bytes() == 3.0 * 8 * 16 * 2);
  // Partial sums are f32 [8, 16]: scattered, three quarters leave; summed everywhere, twice that.
  CHECK(work(P{none, "Y"}, P{"Y"}, {P{"Y"}, {}}).bytes() == 0.75 * 8 * 16 * 4);
  CHECK(work(P{none, "Y"}, P{"Y"}, {}).bytes() == 1.5 * 8 * 16 * 4);
  CHECK(work(P{none, "Y"}, P{"Y"}, {P{}, {"Y"}}).bytes() == 0);
  CHECK(to_string(work(P{none, "Y"}, P{"Y"}, {})).find("psum") != std::string::npos);
  // Case 2: the long rows of x travel, or the few sums of z.
  const auto bytes = [&](OneSidedK one_sided) {
    const MatmulShape deep{.m = 2, .n = 4, .k = 400};
    return matmul_work(place_matmul(mesh, deep, {none, "Y"}, {}, {}, one_sided), DType::kF32)
        .bytes();
  };
  CHECK(bytes(OneSidedK::kGather) == 3.0 * 2 * 100 * 4);
  CHECK(bytes(OneSidedK::kSlice) == 1.5 * 2 * 4 * 4);
}

}  // namespace
}  // namespace kref
