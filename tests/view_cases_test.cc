// SPDX-License-Identifier: Apache-2.0
// Faults that people met with views, offsets and nested scopes of comparable systems, as small
// cases; the number in each name is the row of the collection they come from.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dsl/grid.h"
#include "tests/filled_blocks.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("L013: every other row or column of an odd extent") {
  // Columns 0 and 2 of (4, 3): the step past the end is never taken, so nothing is out of range.
  // The last dimension of a view is contiguous, hence columns are a view of (4, 2, 1).
  const Tensor<I32, 2> x = counted<2>({4, 3});
  const Ref<const I32, 3> columns(x.data(), {4, cdiv(3, 2), 1}, {3, 2, 1});
  const Ref<const I32, 2> rows(x.data(), {cdiv(4, 2), 3}, {2 * 3, 1});
  Tensor<I32, 2> c({4, 2}), r({2, 3});
  Grid grid("g");
  const Axis i = grid.sequential("i", 2);
  const auto cb = grid.in("columns", columns, {.block = {2, 2, 1}, .index = {i, 0, 0}});
  const auto rb = grid.in("rows", rows, {.block = {1, 3}, .index = {i, 0}});
  const auto cz = grid.out("c", c, {.block = {2, 2}, .index = {i, 0}});
  const auto rz = grid.out("r", r, {.block = {1, 3}, .index = {i, 0}});
  grid.check([&](const Step& s) {
    for (Index a = 0; a < 2; ++a) {
      for (Index b = 0; b < 2; ++b) s[cz](a, b) = s[cb](a, b, 0);
    }
    for (Index b = 0; b < 3; ++b) s[rz](0, b) = s[rb](0, b);
  });
  for (Index a = 0; a < 4; ++a) {
    for (Index b = 0; b < 2; ++b) CHECK(c(a, b) == 3 * a + 2 * b);
  }
  for (Index a = 0; a < 2; ++a) {
    for (Index b = 0; b < 3; ++b) CHECK(r(a, b) == 6 * a + b);
  }
  CHECK(refusal([&] {
          Ref<const I32, 2>(x.data(), {4, 2}, {3, 2});
        }) == "Ref: stride of the last dimension is 2, expected 1");
}

TEST_CASE("L014: a window at any element is a view of it, with padding a wider array") {
  // pl.Element is not offered: blocks start at multiples of their extent. Where the window does not
  // move, Ref::block cuts it; where it does, a view with overlapping rows has one a step.
  Tensor<I32, 2> x({4, 6});
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c < 6; ++c) x(r, c) = static_cast<I32>(10 * r + c);
  }
  Tensor<I32, 2> z({2, 3});
  Grid grid("g");
  const auto xb = grid.in("x", x.ref().block({1, 2}, {2, 3}));
  const auto zb = grid.out("z", z);
  grid.check([&](const Step& s) {
    for (Index r = 0; r < 2; ++r) {
      for (Index c = 0; c < 3; ++c) s[zb](r, c) = s[xb](r, c);
    }
  });
  const I32 expected[] = {12, 13, 14, 22, 23, 24};
  CHECK(std::equal(z.data(), z.data() + 6, expected));

  // Rows 0 and 1, 1 and 2, 2 and 3, a window a step.
  const Ref<const I32, 3> windows(x.data(), {3, 2, 6}, {6, 6, 1});
  Tensor<I32, 2> sums({3, 1});
  Grid sliding("sliding");
  const Axis i = sliding.parallel("i", 3);
  const auto wb = sliding.in("x", windows, {.block = {squeezed, 2, 6}, .index = {i, 0, 0}});
  const auto sb = sliding.out("sums", sums, {.block = {1, 1}, .index = {i, 0}});
  sliding.check([&](const Step& s) { s[sb](0, 0) = s[wb](0, 0, 5) + s[wb](0, 1, 5); });
  for (Index r = 0; r < 3; ++r) CHECK(sums(r, 0) == 20 * r + 10 + 5 + 5);

  // The padded window of the row: poison above, the array's first row below.
  Tensor<I32, 2> padded({2 + 1, 4});  // poison
  for (Index r = 0; r < 2; ++r) {
    for (Index c = 0; c < 4; ++c) padded(r + 1, c) = static_cast<I32>(10 * r + c);
  }
  Tensor<I32, 2> window({2, 4});
  Grid edge("edge");
  const auto pb = edge.in("padded", padded, {.block = {2, 4}, .index = {0, 0}});
  const auto ob = edge.out("window", window);
  edge.run([&](const Step& s) {
    for (Index r = 0; r < 2; ++r) {
      for (Index c = 0; c < 4; ++c) s[ob](r, c) = s[pb](r, c);
    }
  });
  for (Index c = 0; c < 4; ++c) {
    CHECK(window(0, c) == poison<I32>());
    CHECK(window(1, c) == c);
  }
}

TEST_CASE("L080: scratch of a grid within the body of another, indexed from its own start") {
  Tensor<I32, 1> out({1});
  Grid outer("outer");
  const auto ob = outer.out("out", out);
  const auto one = outer.scratch<I32>("one", {1});
  const auto outer_body = [&](const Step& s) {
    s[one](0) = 1;
    const Ref<I32, 1> from = s[one], to = s[ob];
    Grid inner("inner");
    const auto fb = inner.in("from", from);
    const auto tb = inner.out("to", to);
    const auto copy = inner.scratch<I32>("copy", {1, 1});
    inner.run([&](const Step& t) {
      t[copy](0, 0) = t[fb](0);
      t[tb](0) = t[copy](0, 0);
    });
  };
  outer.run(outer_body);
  CHECK(out(0) == 1);
  out(0) = 0;
  outer.check(outer_body);
  CHECK(out(0) == 1);

  // Rows of 6 in tiles of 2: the scratch of a tile has 2 elements, wherever the tile lies.
  const Tensor<I32, 2> x = counted<2>({3, 6});
  Tensor<I32, 2> sums({3, 3});
  Grid rows("rows");
  const Axis i = rows.parallel("i", 3);
  const auto xb = rows.in("x", x, {.block = {1, 6}, .index = {i, 0}});
  const auto sb = rows.out("sums", sums, {.block = {1, 3}, .index = {i, 0}});
  rows.run([&](const Step& s) {
    const Ref<const I32, 2> row = s[xb];
    const Ref<I32, 2> tiles = s[sb];
    Grid inner("tiles");
    const Axis j = inner.sequential("j", 3);
    const auto rb = inner.in("row", row, {.block = {1, 2}, .index = {0, j}});
    const auto tb = inner.out("tiles", tiles, {.block = {1, 1}, .index = {0, j}});
    const auto tile = inner.scratch<I32>("tile", {2});
    inner.run([&](const Step& t) {
      for (Index e = 0; e < 2; ++e) t[tile](e) = t[rb](0, e);
      t[tb](0, 0) = t[tile](0) + t[tile](1);
    });
  });
  for (Index r = 0; r < 3; ++r) {
    for (Index c = 0; c < 3; ++c) CHECK(sums(r, c) == 2 * (6 * r + 2 * c) + 1);
  }
}

// Address space without memory behind it but for the pages asked for.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(base_ != MAP_FAILED);
  }
  ~Reserved() { munmap(base_, bytes_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  float* page(std::size_t offset) {
    char* const at = static_cast<char*>(base_) + offset;
    REQUIRE(mprotect(at, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE) ==
            0);
    return reinterpret_cast<float*>(at);
  }

 private:
  void* base_;
  std::size_t bytes_;
};

TEST_CASE("L141: element 4 of a dimension with stride 2^30") {
  // 4 * 2^30 elements of 4 bytes: neither the index nor the offset fits 32 bits.
  constexpr Index kStride = Index{1} << 30;
  Reserved space((std::size_t{4} << 32) + (std::size_t{1} << 16));
  float* const first = space.page(0);
  *space.page(std::size_t{4} << 32) = 7;
  *first = 1;
  const Ref<float, 2> x(first, {5, 1}, {kStride, 1});
  CHECK(&x(4, 0) - first == 4294967296);
  CHECK(x(4, 0) == 7);
  CHECK(x.block({4, 0}, {1, 1})(0, 0) == 7);

  Tensor<float, 1> z({1});
  Grid grid("g");
  const Axis i = grid.sequential("i", 2);
  const auto xb = grid.in("x", x, {.block = {1, 1}, .index = {i * 4, 0}});
  const auto zb = grid.out("z", z);
  grid.run([&](const Step& s) {
    if (s.first(i)) s[zb](0) = 0;
    s[zb](0) += s[xb](0, 0);
  });
  CHECK(z(0) == 8);
  Grid store("store");
  const Axis j = store.sequential("j", 2);
  const auto yb = store.in_out("y", x, {.block = {1, 1}, .index = {j * 4, 0}});
  store.run([&](const Step& s) { s[yb](0, 0) += 2; });
  CHECK(x(0, 0) == 3);
  CHECK(x(4, 0) == 9);
}

}  // namespace
}  // namespace kref
