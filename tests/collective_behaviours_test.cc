// SPDX-License-Identifier: Apache-2.0
// Behaviours 9 to 12 and 16 to 22 of sharding_semantics section 9, by number, and the cases L044,
// L047, L049, L059. Global arrays go in and out by shard_map, as in JAX's own tests. 30 is in
// ragged_test.cc.
#include <doctest/doctest.h>

#include "tests/global_arrays.h"
#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("behaviour 9: all_gather tiled, one axis and two") {
  const Array a = arange({8, 8});
  const PartitionSpec spec{"z", axes("x", "y")};
  const Array columns =
      mapped(kCube, spec, {none, axes("x", "y")}, a, [](Device& d, const Array& x) {
        CHECK(shape_string(x.shape()) == "[4,2]");
        const Array out = all_gather(d, x, "z", {.axis = 0, .tiled = true});
        CHECK(shape_string(out.shape()) == "[8,2]");
        return out;
      });
  const Array rows = mapped(kCube, spec, {"z", none}, a, [](Device& d, const Array& x) {
    const Array out = all_gather(d, x, axes("x", "y"), {.axis = -1, .tiled = true});
    CHECK(shape_string(out.shape()) == "[4,8]");
    return out;
  });
  CHECK(values_of(columns) == values_of(a));
  CHECK(values_of(rows) == values_of(a));
}

TEST_CASE("behaviour 10: all_gather with groups over two axes") {
  const PartitionSpec spec{"x", axes("y", "z")};
  const Array a = arange({8, 8});
  const Array out = mapped(kCube, spec, spec, a, [](Device& d, const Array& x) {
    return all_gather(d, x, axes("y", "z"),
                      {.axis = -1, .tiled = true, .axis_index_groups = {{0, 1}, {2, 3}}});
  });
  REQUIRE(shape_string(out.shape()) == "[8,16]");
  for (Index r = 0; r < 8; ++r) {
    for (Index c = 0; c < 16; ++c) CHECK(out.at(r * 16 + c) == a.at(r * 8 + c / 8 * 4 + c % 4));
  }
}

TEST_CASE("behaviour 11: all_gather in interleaved groups") {
  const Array out = mapped(kEight, {"x"}, {"x"}, arange({8}), [](Device& d, const Array& x) {
    return all_gather(d, x, "x", {.tiled = true, .axis_index_groups = kParity});
  });
  for (Index member = 0; member < 8; ++member) {
    for (Index j = 0; j < 4; ++j)
      CHECK(out.at(member * 4 + j) == static_cast<double>(2 * j + member % 2));
  }
}

TEST_CASE("behaviour 12: all_gather to invarying, and its transpose moves nothing") {
  const AllGather gather{"x", 0, true, {}, GatherTo::kInvarying};
  const Array out = mapped(kFour, {"x"}, P(), arange({8}),
                           [&](Device& d, const Array& x) { return gather(d, x); });
  CHECK(values_of(out) == values_of(arange({8})));
  const auto back = std::get<OwnSlice>(gather.transpose());
  CHECK(back.sent_bytes(Extents{8}, DType::kF32, 4) == 0);
  const Array ct =
      mapped(kFour, P(), {"x"}, arange({8}), [&](Device& d, const Array& y) { return back(d, y); });
  CHECK(values_of(ct) == values_of(arange({8})));
}

// Rows of a, columns of b: the partial product of one device.
TEST_CASE("behaviours 16 and 17: ppermute rotates") {
  const Array a = arange({8, 8});
  const Array out = mapped(kEight, {"x", none}, {"x", none}, a, [](Device& d, const Array& x) {
    return ppermute(d, x, "x", ring(8, 1));
  });
  for (Index i = 0; i < 64; ++i) CHECK(out.at((i + 8) % 64) == a.at(i));
  const Array rolled = mapped(kFour, {"x"}, {"x"}, arange({8}), [](Device& d, const Array& x) {
    return ppermute(d, x, "x", ring(4, 1));
  });
  CHECK(values_of(rolled) == Values{6, 7, 0, 1, 2, 3, 4, 5});
}

TEST_CASE("behaviour 18: pshuffle is the inverse of ppermute's convention") {
  const Array out = mapped(kFour, {"x"}, {"x"}, arange({4}), [](Device& d, const Array& x) {
    return pshuffle(d, x, "x", {3, 0, 1, 2});
  });
  CHECK(values_of(out) == Values{3, 0, 1, 2});
  CHECK(refusal([] {
          mapped(kFour, {"x"}, {"x"}, arange({4}), [](Device& d, const Array& x) {
            return pshuffle(d, x, "x", {0, 0, 1, 2});
          });
        }) != "(not refused)");
}

TEST_CASE("behaviour 19: all_to_all transposes, over one axis and two") {
  const Array a = arange({8, 8});
  Values transposed;
  for (Index i = 0; i < 64; ++i) transposed.push_back(a.at(i % 8 * 8 + i / 8));
  const Body one = [](Device& d, const Array& x) {
    return all_to_all(d, x, "x", 1, 1, {.tiled = true});
  };
  const Body two = [](Device& d, const Array& x) {
    return all_to_all(d, x, axes("x", "y"), 1, 1, {.tiled = true});
  };
  const Array line = mapped(kEight, {"x", none}, {none, "x"}, a, one);
  const Array grid =
      mapped(Mesh::parse("x=4,y=2"), {axes("x", "y"), none}, {none, axes("x", "y")}, a, two);
  CHECK(shape_string(line.shape()) == "[1,64]");
  CHECK(values_of(line) == transposed);
  CHECK(values_of(grid) == transposed);
}

TEST_CASE("behaviour 20: all_to_all in groups, device 2 i + j holds quadrant (i, j)") {
  const Array out =
      mapped(kFour, {"x", none}, {"x", none}, arange({4, 4}), [](Device& d, const Array& x) {
        return all_to_all(d, x, "x", 1, 0, {.tiled = true, .axis_index_groups = {{0, 1}, {2, 3}}});
      });
  CHECK(values_of(out) == Values{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
}

TEST_CASE("behaviour 21: all_to_all in interleaved groups") {
  const Array out = mapped(kFour, {"x"}, {"x"}, arange({8}), [](Device& d, const Array& x) {
    return all_to_all(d, x, "x", 0, 0, {.axis_index_groups = {{0, 2}, {1, 3}}});
  });
  CHECK(values_of(out) == Values{0, 4, 2, 6, 1, 5, 3, 7});
}

// numpy.moveaxis(x, (0, from), (to, 0)) of a [n, n, n, n] array.
Values moved(const Array& x, std::size_t from, std::size_t to, Index n) {
  std::vector<std::size_t> order(4, 9);  // dimension of x that becomes dimension d
  order[0] = from, order[to] = 0;
  std::size_t next = 1;
  for (std::size_t& o : order) {
    if (o != 9) continue;
    if (next == from) ++next;
    o = next++;
  }
  Values out;
  for (Index i = 0; i < n * n * n * n; ++i) {
    const Index c[] = {i / (n * n * n), i / (n * n) % n, i / n % n, i % n};
    Index source[4];
    for (std::size_t d = 0; d < 4; ++d) source[order[d]] = c[d];
    out.push_back(x.at(((source[0] * n + source[1]) * n + source[2]) * n + source[3]));
  }
  return out;
}

TEST_CASE("behaviour 22: all_to_all is moveaxis, pswapaxes swapaxes; negative axes") {
  const Mesh mesh = Mesh::parse("x=3");
  const Array x = arange({9, 3, 3});  // [3, 3, 3, 3] by device
  const Array by_device = arange({3, 3, 3, 3});
  for (Index split = 0; split < 3; ++split) {
    for (Index concat = 0; concat < 3; ++concat) {
      for (const Index back : {0, 3}) {
        const Array out = mapped(mesh, {"x"}, {"x"}, x, [&](Device& d, const Array& mine) {
          return all_to_all(d, mine, "x", split - back, concat - back);
        });
        CHECK(values_of(out) == moved(by_device, static_cast<std::size_t>(split + 1),
                                      static_cast<std::size_t>(concat + 1), 3));
      }
    }
    const Array swapped = mapped(mesh, {"x"}, {"x"}, x, [&](Device& d, const Array& mine) {
      return pswapaxes(d, mine, "x", split);
    });
    CHECK(values_of(swapped) == moved(by_device, static_cast<std::size_t>(split + 1),
                                      static_cast<std::size_t>(split + 1), 3));
  }
}

TEST_CASE("L044, L047, L049, L059") {
  const AllToAll swap{"x", 1, 0, true};
  const Array a = arange({8, 8});
  const Array columns = mapped(kFour, {"x", none}, {none, "x"}, a,
                               [&](Device& d, const Array& x) { return swap(d, x); });
  CHECK(values_of(columns) == values_of(a));
  const Array gradient =
      mapped(kFour, {none, "x"}, {"x", none}, array_of({8, 8}, Values(64, 1)),
             [&](Device& d, const Array& ct) { return apply(swap.transpose(), d, ct); });
  CHECK(values_of(gradient) == Values(64, 1));
  // The permutation is gone before the transfer is done.
  const Array shuffled = mapped(kEight, {"x"}, {"x"}, arange({8}), [](Device& d, const Array& x) {
    Pending started = [&] {
      std::vector<Index> once = {1, 0, 2, 3, 4, 5, 6, 7};
      Pending out = pshuffle_start(d, x, "x", once);
      once.assign(8, 0);
      return out;
    }();
    return started.done();
  });
  CHECK(values_of(shuffled) == Values{1, 0, 2, 3, 4, 5, 6, 7});
  for (const Permutation& perm : {Permutation{{0, 1}, {2, 1}}, Permutation{{0, 1}, {0, 2}}}) {
    CHECK(refusal([&] {
            mapped(kFour, {"x"}, {"x"}, arange({4}),
                   [&](Device& d, const Array& x) { return ppermute(d, x, "x", perm); });
          }).find("must be unique") != std::string::npos);
  }
  const Array total = mapped(kEight, {"x"}, {"x"}, arange({8}),
                             [](Device& d, const Array& x) { return psum(d, x, "x"); });
  CHECK(values_of(total) == Values(8, 28));
}

}  // namespace
}  // namespace kref
