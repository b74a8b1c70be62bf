// SPDX-License-Identifier: Apache-2.0
// Faults that people reported of sharded programs elsewhere, with the small inputs that show them;
// the numbers are rows of the collection of cases. L139 is in device_process_test.cc.
#include <doctest/doctest.h>

#include <atomic>

#include "sharding/custom_vjp.h"
#include "sharding/launch.h"
#include "sharding/local_math.h"
#include "sharding/ragged.h"
#include "sharding/reshard.h"
#include "sharding/sharded_matmul.h"
#include "sharding/vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Doubles = std::vector<double>;
using Indices = std::vector<Index>;

const Mesh kTwo = Mesh::parse("x=2");

TEST_CASE("case L113: rows become columns, whole and in order") {
  const Sharded rows = shard(kTwo, iota({4, 4}), P{"x"});
  const Sharded columns = reshard(rows, P{none, "x"});
  CHECK(values(columns.block(0)) == Doubles{0, 1, 4, 5, 8, 9, 12, 13});
  CHECK(values(columns.block(1)) == Doubles{2, 3, 6, 7, 10, 11, 14, 15});
  CHECK(values(unshard(columns)) == values(iota({4, 4})));
  // Nine rows are not halved; six columns are.
  const Sharded uneven = reshard(shard(kTwo, iota({9, 6}), P{none, "x"}), P{});
  CHECK(values(uneven.block(1)) == values(iota({9, 6})));
  CHECK(refusal([&] { reshard(uneven, P{"x"}); }).find("not divisible") != std::string::npos);
}

TEST_CASE("cases L114 and L115: all_to_all along negative axes, and the shape of its result") {
  for (const Index split : {Index{-1}, Index{2}}) {
    const auto body = [&](Device& device, const Array& x) {
      return AllToAll{"x", split, 0, true}(device, x);
    };
    const Array in = iota({14, 4, 8});
    const Array out = shard_map(kTwo, {.in_specs = {P{"x"}}, .out_specs = {P{"x"}}}, body)(in);
    REQUIRE(shape_of(out) == Indices{28, 4, 4});
    Index wrong = 0;
    for (Index e = 0; e < out.size(); ++e) {
      const Indices at = unravel(e, {2, 14, 4, 4});  // device, row of in, ..
      wrong += out.at(e) != in.at(ravel({at[1], at[2], at[0] * 4 + at[3]}, {14, 4, 8}));
    }
    CHECK(wrong == 0);
  }
  const Indices in{8, 4, 8};
  CHECK(AllToAll{"x", 1, 0, false}.result_shape(in, 4) == Indices{4, 8, 8});
  CHECK(AllToAll{"x", 1, 0, true}.result_shape(in, 4) == Indices{32, 1, 8});
}

// A row for each id, with a one at its place.
Array one_hot(const Indices& ids) {
  Array out = full({static_cast<Index>(ids.size()), 8}, 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    out.mutable_elements<float>()[i * 8 + static_cast<std::size_t>(ids[i])] = 1;
  }
  return out;
}

TEST_CASE("case L116: the gradient of an embedding is summed before it is cut by vocabulary") {
  const auto body = [](Tracer&, const Value& ids, const Value& table) {
    return dot(ids, all_gather(table, "x", {.tiled = true}));
  };
  const auto f = shard_map(kTwo, {.in_specs = {P{"x"}, P{"x"}}, .out_specs = {P{"x"}}}, body);
  const auto [y, back] = vjp(f, one_hot({1, 5, 5, 6}), iota({8, 1}));
  CHECK(values(y) == Doubles{1, 5, 5, 6});
  CHECK(values(back(full({4, 1}, 1))[1]) == Doubles{0, 1, 0, 0, 0, 2, 1, 0});
}

TEST_CASE("case L119: gradients accumulated over micro-batches are those of one scatter-add") {
  const auto body = [](Tracer&, const Value& first, const Value& second, const Value& table) {
    std::vector<Value> out;
    for (const Value& ids : {first, second}) {
      out.push_back(dot(ids, all_gather(table, "x", {.tiled = true})));
    }
    return out[0] + out[1] * 3;
  };
  const auto f =
      shard_map(kTwo, {.in_specs = {P{"x"}, P{"x"}, P{"x"}}, .out_specs = {P{"x"}}}, body);
  const auto [y, back] = vjp(f, one_hot({1, 5}), one_hot({1, 6}), iota({8, 1}));
  CHECK(values(y) == Doubles{1 + 3, 5 + 18});
  CHECK(values(back(full({2, 1}, 1))[2]) == Doubles{0, 1 + 3, 0, 0, 0, 1, 3, 0});
}

TEST_CASE("cases L117 and L118: partial sums over two axes are summed once, when they have to be") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const PartitionSpec k{none, axes("x", "y")}, rows{axes("x", "y")};
  const Sharded product =
      sharded_matmul(shard(mesh, full({4, 4}, 1), k), shard(mesh, full({4, 4}, 1), rows), P{"x"});
  for (Index device = 0; device < 4; ++device) {
    CHECK(values(product.block(device)) == Doubles(8, 4));
  }
  const OutSpec kept{P{}, {"x", "y"}};
  const Array terms = sharded_matmul(mesh, {k, rows, kept}, full({1, 4}, 1), full({4, 3}, 1));
  CHECK(shape_of(terms) == Indices{2, 2, 1, 3});
  CHECK(values(terms) == Doubles(12, 1));
  const MatmulShape shape{.m = 1, .n = 3, .k = 4};
  CHECK(matmul_work(place_matmul(mesh, shape, k, rows, kept), DType::kF32).bytes() == 0);
  const Sharded unreduced =
      sharded_matmul(shard(mesh, full({1, 4}, 1), k), shard(mesh, full({4, 3}, 1), rows),
                     Placement(P{}, {.unreduced = {"x", "y"}}));
  CHECK(values(unshard(unreduced)) == Doubles(3, 4));
}

TEST_CASE("case L120: the gradient of a replicated weight is summed over the batch's devices") {
  const auto body = [](Tracer&, const Value& x, const Value& w) {
    return x * broadcast_to(w, {1, 4, 8});
  };
  const auto f =
      shard_map(Mesh::parse("x=4"), {.in_specs = {P{"x"}, P()}, .out_specs = {P{"x"}}}, body);
  const Array x = mixed({4, 4, 8}, 3);
  const auto [y, back] = vjp(f, x, full({4, 8}, 2));
  const Array ct_w = back(full({4, 4, 8}, 1))[1];
  for (Index e = 0; e < 32; ++e) {
    CHECK(ct_w.at(e) == x.at(e) + x.at(32 + e) + x.at(64 + e) + x.at(96 + e));
  }
  CHECK(back.count("psum") == 1);
}

TEST_CASE("case L122: a sharded difference keeps the order of its operands") {
  const auto body = [](Tracer&, const Value& a, const Value& b) { return a - b; };
  const auto f = shard_map(kTwo, {.in_specs = {P{"x"}, P{"x"}}, .out_specs = {P{"x"}}}, body);
  CHECK(values(f(full({64, 32}, 5), full({64, 32}, 3))) == Doubles(64 * 32, 2));
}

TEST_CASE("case L123: what is replicated is read once") {
  const Sharded x = shard(Mesh::parse("x=2,y=4"), full({8}, 1e4f), P{"x"});
  CHECK(values(unshard(x)) == Doubles(8, 1e4));
}

TEST_CASE("case L125: slices of a ragged exchange lie where the sender says, in the receiver") {
  const auto ints = [](const std::vector<float>& v) {
    return converted(array_of({static_cast<Index>(v.size())}, v), DType::kI32);
  };
  std::vector<Doubles> got(2);
  launch(kTwo, [&](Device& device) {
    const bool first = device.index() == 0;
    const Array operand = first ? ints({1, 2, 3}) : ints({4, 5, 6});
    const RaggedSlices slices =
        first ? RaggedSlices{ints({0, 1}), ints({1, 2}), ints({0, 0}), ints({1, 2})}
              : RaggedSlices{ints({0, 2}), ints({2, 1}), ints({1, 2}), ints({2, 1})};
    got[static_cast<std::size_t>(device.index())] =
        values(ragged_all_to_all(device, operand, ints({-1, -1, -1, -1}), slices, "x"));
  });
  CHECK(got[0] == Doubles{1, 4, 5, -1});
  CHECK(got[1] == Doubles{2, 3, 6, -1});
}

TEST_CASE("case L126: a derivative that sums by itself is not summed again") {
  const auto times =
      custom_vjp([](const Value& a, const Value& w) { return std::pair(a * w, std::pair(a, w)); },
                 [](const std::pair<Value, Value>& saved, const Value& ct) {
                   return std::pair(ct * saved.second, psum(ct * saved.first, "x"));
                 });
  const auto body = [times](Tracer&, const Value& a, const Value& w) { return times(a, w); };
  const auto f = shard_map(kTwo, {.in_specs = {P{"x"}, P()}, .out_specs = {P{"x"}}}, body);
  const auto [y, back] = vjp(f, iota({4}), full({2}, 3));
  CHECK(values(y) == Doubles{0, 3, 6, 9});
  CHECK(values(back(full({4}, 1))[1]) == Doubles{2, 4});
  CHECK(back.count("psum") == 1);
}

TEST_CASE("case L137: products within devices") {
  std::atomic<int> right{0};
  const Array ones = full({20, 20}, 1);
  launch(Mesh::parse("x=4"), [&](Device&) {
    for (int i = 0; i < 25; ++i) {
      Tensor<float, 2> z({20, 20});
      matmul(ones, ones, MutableArrayRef(z.ref()), {});
      Index wrong = 0;
      for (Index e = 0; e < z.size(); ++e) wrong += z.data()[e] != 20;
      right += wrong == 0 ? 1 : 0;
    }
  });
  CHECK(right == 100);
}

TEST_CASE("case L143: what is gathered may leave as replicated, once that is said") {
  const ShardMapOptions out{.in_specs = {P{"x"}}, .out_specs = {P()}};
  const auto said = [](Tracer&, const Value& x) {
    return all_gather(x, "x", {.tiled = true, .to = GatherTo::kInvarying});
  };
  CHECK(values(shard_map(kTwo, out, said)(iota({4}))) == values(iota({4})));
  const auto unsaid = [](Tracer&, const Value& x) { return all_gather(x, "x", {.tiled = true}); };
  CHECK(refusal([&] { shard_map(kTwo, out, unsaid)(iota({4})); }).find("all_gather to invarying") !=
        std::string::npos);
  ShardMapOptions unchecked = out;
  unchecked.check_vma = false;
  CHECK(values(shard_map(kTwo, unchecked, unsaid)(iota({4}))) == values(iota({4})));
  // The place of an extreme is the same on every device, too.
  const auto place = [](Tracer&, const Value& x) { return pargmax(x, "x"); };
  CHECK(values(shard_map(kTwo, out, place)(array_of({4}, {1, 5, 2, 4}))) == Doubles{1, 0});
}

}  // namespace
}  // namespace kref
