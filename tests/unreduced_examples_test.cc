// SPDX-License-Identifier: Apache-2.0
// JAX's own examples of unreduced and reduced arrays, with their numbers, which are those of
// sharding_semantics section 9.
#include <doctest/doctest.h>

#include <algorithm>

#include "sharding/arithmetic_rules.h"
#include "sharding/reshard.h"

namespace kref {
namespace {

using Indices = std::vector<Index>;
using Numbers = std::vector<std::int32_t>;

Array array(const Indices& shape, const Numbers& numbers) {
  Array out(DType::kI32, shape);
  std::copy(numbers.begin(), numbers.end(), out.mutable_elements<std::int32_t>().begin());
  return out;
}
Array arange(const Indices& shape) {
  Array out(DType::kI32, shape);
  std::int32_t next = 0;
  for (auto& each : out.mutable_elements<std::int32_t>()) each = next++;
  return out;
}
Array filled(const Indices& shape, std::int32_t number) {
  Array out(DType::kI32, shape);
  for (auto& each : out.mutable_elements<std::int32_t>()) each = number;
  return out;
}
Numbers numbers(const Array& a) {
  const auto all = a.elements<std::int32_t>();
  return {all.begin(), all.end()};
}

Array product(const Array& a, const Array& b) {
  const auto x = a.ref().ref<const std::int32_t, 2>(), y = b.ref().ref<const std::int32_t, 2>();
  Array out(DType::kI32, Indices{a.extent(0), b.extent(1)});
  const auto z = out.mutable_ref().ref<std::int32_t, 2>();
  for (Index i = 0; i < a.extent(0); ++i) {
    for (Index j = 0; j < b.extent(1); ++j) {
      for (Index l = 0; l < a.extent(1); ++l) z(i, j) += x(i, l) * y(l, j);
    }
  }
  return out;
}

// f of every device's blocks, typed as the rules say.
template <class F>
Sharded each_device(const Sharded& a, const Sharded& b, const GlobalType& type, F f) {
  std::vector<Array> blocks;
  for (Index d = 0; d < a.mesh().device_count(); ++d) blocks.push_back(f(a.block(d), b.block(d)));
  return Sharded(a.mesh(), type.shape, type.placement, std::move(blocks));
}

GlobalType type_of(const Sharded& x) {
  return {x.dtype(), {x.shape().begin(), x.shape().end()}, x.placement()};
}

Sharded matmul_of(const Sharded& a, const Sharded& b, const std::optional<Placement>& out = {}) {
  const GlobalType type = dot_general_type(type_of(a), type_of(b), {{1}, {0}}, a.mesh(), out);
  return each_device(a, b, type, product);
}

TEST_CASE("58: an unreduced matmul, and its scatter") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const Sharded z =
      matmul_of(shard(mesh, arange({2, 4}), P{"x", "y"}), shard(mesh, arange({4, 2}), P{"y", none}),
                Placement(P{"x"}, {.unreduced = {"y"}}));
  CHECK(z.type() == "i32[2@x,2]{U:y}");
  const Numbers shards[] = {{2, 3}, {26, 31}, {10, 19}, {66, 79}};
  for (Index d = 0; d < 4; ++d) CHECK(numbers(z.block(d)) == shards[d]);
  CHECK(numbers(unshard(reshard(z, P{"x"}))) == Numbers{28, 34, 76, 98});
  const Sharded scattered = reshard(z, P{"x", "y"});
  CHECK(numbers(scattered.block(2)) == Numbers{76});
  CHECK(numbers(scattered.block(3)) == Numbers{98});
}

TEST_CASE("59: a matrix times itself, the contraction split") {
  const Mesh mesh = Mesh::parse("x=2");
  const Array a = arange({2, 2});
  const Sharded z = matmul_of(shard(mesh, a, P{none, "x"}), shard(mesh, a, P{"x", none}),
                              Placement(P{}, {.unreduced = {"x"}}));
  CHECK(numbers(z.block(0)) == Numbers{0, 0, 0, 2});
  CHECK(numbers(z.block(1)) == Numbers{2, 3, 6, 9});
  CHECK(numbers(unshard(z)) == Numbers{2, 3, 6, 11});
}

TEST_CASE("61 and 46: a replicated value as an unreduced one") {
  const Mesh mesh = Mesh::parse("x=2");
  const Placement terms(P{}, {.unreduced = {"x"}});
  const Sharded one = reshard(shard(mesh, array({}, {1}), P{}), terms);
  CHECK(numbers(one.block(0)) == Numbers{1});
  CHECK(numbers(one.block(1)) == Numbers{0});
  CHECK(numbers(unshard(one)) == Numbers{1});
  const Sharded ones = shard(mesh, filled({8}, 1), terms);
  CHECK(numbers(ones.block(0)) == Numbers(8, 1));
  CHECK(numbers(ones.block(1)) == Numbers(8, 0));
}

TEST_CASE("61: the transpose of a reshard goes to the cotangent's placement") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const Placement primal(P{}, {.reduced = {"x"}});
  const Sharded ct = reshard(shard(mesh, filled({4}, 1), P{"x"}), cotangent(primal));
  CHECK(ct.type() == "i32[4]{U:x}");
  for (Index d = 0; d < 2; ++d) CHECK(numbers(ct.block(d)) == Numbers{1, 1, 0, 0});
  for (Index d = 2; d < 4; ++d) CHECK(numbers(ct.block(d)) == Numbers{0, 0, 1, 1});
}

// A reduction over all of dimension 0 on every device, typed with its unreduced out_sharding.
Sharded reduced(Arithmetic rule, const Sharded& x, const Placement& out) {
  const std::size_t rows[] = {0};
  const GlobalType type = reduce_type(rule, type_of(x), rows, x.mesh(), out);
  return each_device(x, x, type, [&](const Array& a, const Array&) {
    const auto row = static_cast<std::size_t>(a.rank() > 1 ? a.extent(1) : 1);
    const Numbers all = numbers(a);
    Numbers best(all.begin(), all.begin() + static_cast<Index>(row));
    for (std::size_t i = row; i < all.size(); ++i) {
      std::int32_t& so_far = best[i % row];
      const std::int32_t next = all[i];
      if (rule == Arithmetic::kReduceSum) so_far += next;
      if (rule == Arithmetic::kReduceMax) so_far = std::max(so_far, next);
      if (rule == Arithmetic::kReduceMin) so_far = std::min(so_far, next);
    }
    return array(a.rank() > 1 ? Indices{a.extent(1)} : Indices{}, best);
  });
}

TEST_CASE("62: an unreduced sum") {
  const Mesh mesh = Mesh::parse("x=2");
  const Sharded s = reduced(Arithmetic::kReduceSum, shard(mesh, arange({8}), P{"x"}),
                            Placement(P{}, {.unreduced = {"x"}}));
  CHECK(numbers(s.block(0)) == Numbers{6});
  CHECK(numbers(s.block(1)) == Numbers{22});
  CHECK(numbers(unshard(s)) == Numbers{28});
}

TEST_CASE("63: unreduced extrema") {
  const Mesh mesh = Mesh::parse("x=2");
  const Sharded x = shard(mesh, arange({4, 2}), P{"x"});
  const Sharded top = reduced(Arithmetic::kReduceMax, x,
                              Placement(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMax}));
  CHECK(numbers(top.block(0)) == Numbers{2, 3});
  CHECK(numbers(top.block(1)) == Numbers{6, 7});
  CHECK(numbers(unshard(top)) == Numbers{6, 7});
  const Sharded bottom = reduced(Arithmetic::kReduceMin, x,
                                 Placement(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMin}));
  CHECK(numbers(bottom.block(0)) == Numbers{0, 1});
  CHECK(numbers(bottom.block(1)) == Numbers{4, 5});
  CHECK(numbers(unshard(bottom)) == Numbers{0, 1});
  CHECK(numbers(reshard(bottom, P{"x"}).block(1)) == Numbers{1});
}

TEST_CASE("65: an unreduced array times a reduced one") {
  const Mesh mesh = Mesh::parse("x=3");
  const Sharded u = shard_terms(mesh, arange({3, 2}), Placement(P{}, {.unreduced = {"x"}}));
  const Sharded r = shard(mesh, array({2}, {5, 7}), Placement(P{}, {.reduced = {"x"}}));
  const GlobalType operands[] = {type_of(u), type_of(r)};
  const GlobalType type = elementwise_type(Arithmetic::kMul, "mul", operands, mesh);
  const Sharded z = each_device(u, r, type, [](const Array& a, const Array& b) {
    return array({2}, {numbers(a)[0] * numbers(b)[0], numbers(a)[1] * numbers(b)[1]});
  });
  CHECK(z.type() == "i32[2]{U:x}");
  CHECK(numbers(unshard(z)) == Numbers{30, 63});  // (0 + 2 + 4) * 5, (1 + 3 + 5) * 7
  CHECK(cotangent(u.placement()) == r.placement());
}

TEST_CASE("67: unreduced arrays joined") {
  const Mesh mesh = Mesh::parse("x=2");
  const Placement terms(P{}, {.unreduced = {"x"}});
  const Sharded a = shard(mesh, arange({8}), terms);
  const ValueState state =
      arithmetic_state(Arithmetic::kMove, "concatenate",
                       std::vector<ArithmeticOperand>(2, input_state(a.placement(), mesh)), mesh);
  const Sharded z = each_device(
      a, a,
      {DType::kI32, {16}, Placement(P{}, {.unreduced = state.in(AxisState::kUnreduced, mesh)})},
      [](const Array& left, const Array& right) {
        Numbers both = numbers(left);
        for (const std::int32_t each : numbers(right)) both.push_back(each);
        return array({16}, both);
      });
  CHECK(numbers(z.block(0)) == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(numbers(z.block(1)) == Numbers(16, 0));
  CHECK(cotangent(z.placement()) == Placement(P{}, {.reduced = {"x"}}));
}

TEST_CASE("L054: a product split by columns, then one split by rows, keeps its sum") {
  for (const Index n : {2, 4, 8, 16, 32}) {
    const Mesh mesh({{"y", n}});
    const Sharded x = shard(mesh, filled({4, 2}, 1), P{});
    const Sharded hidden = matmul_of(x, shard(mesh, filled({2, 32}, 1), P{none, "y"}));
    CHECK(hidden.placement() == Placement(P{none, "y"}));
    const Sharded z = matmul_of(hidden, shard(mesh, filled({32, 8}, 1), P{"y"}),
                                Placement(P{}, {.unreduced = {"y"}}));
    CHECK(numbers(z.block(n - 1)) == Numbers(32, static_cast<std::int32_t>(64 / n)));
    CHECK(numbers(unshard(z)) == Numbers(32, 64));
    CHECK(numbers(unshard(reshard(z, P{none, n <= 8 ? "y" : ""}))) == Numbers(32, 64));
  }
}

}  // namespace
}  // namespace kref
