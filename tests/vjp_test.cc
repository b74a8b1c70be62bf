// SPDX-License-Identifier: Apache-2.0
// Reverse mode of typed bodies, checked and unchecked: exact on small integers.
#include "sharding/vjp.h"

#include <doctest/doctest.h>

#include <cmath>

#include "sharding/custom_vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Doubles = std::vector<double>;

ShardMapOptions options(const Placement& in, const Placement& out, bool checked = true) {
  return {.in_specs = {in}, .out_specs = {out}, .check_vma = checked};
}

Value identity(Tracer&, const Value& x) { return x; }
Value psum_i(Tracer&, const Value& x) { return psum(x, "i"); }

TEST_CASE("behaviour 31: fan-out of a replicated argument transposes to one psum") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto [y, back] = vjp(shard_map(mesh, options(P(), P{"i"}), identity), iota({2}, 1));
  CHECK(values(y) == Doubles{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(back.count("psum") == 1);
  CHECK(back.count("pvary") == 0);
  CHECK(values(back(iota({8}))[0]) == Doubles{0 + 2 + 4 + 6, 1 + 3 + 5 + 7});
}

TEST_CASE("behaviour 32: a psum to a replicated result transposes to one pvary") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto [y, back] = vjp(shard_map(mesh, options(P{"i"}, P()), psum_i), iota({8}));
  CHECK(values(y) == Doubles{12, 16});
  CHECK(back.count("psum") == 0);
  CHECK(back.count("pvary") == 1);
  CHECK(values(back(iota({2}, 5))[0]) == Doubles{5, 6, 5, 6, 5, 6, 5, 6});
}

TEST_CASE("behaviour 33: psum with a fan-out behind it transposes to itself") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto [y, back] = vjp(shard_map(mesh, options(P{"i"}, P{"i"}), psum_i), iota({4}));
  CHECK(values(y) == Doubles(4, 6));
  CHECK(back.count("psum") == 1);
  CHECK(back.count("pvary") == 1);
  CHECK(values(back(iota({4}, 1))[0]) == Doubles(4, 10));
}

TEST_CASE("behaviour 34: the identity on a replicated value transposes to nothing, twice too") {
  const Mesh mesh = Mesh::parse("i=4,j=2");
  const auto f = shard_map(mesh, options(P(), P()), identity);
  const auto [y, back] = vjp(f, iota({3}));
  CHECK(back.text().find("psum") == std::string::npos);
  CHECK(back.text().find("pvary") == std::string::npos);
  CHECK(values(back(iota({3}, 7))[0]) == Doubles{7, 8, 9});
  const auto twice = vjp_of(vjp_of(f, 1), 2);
  for (const char* name : {"psum", "pvary"}) {
    CHECK(twice.count(name, iota({3}), iota({3}), iota({3})) == 0);
  }
  const std::vector<Array> grads = twice(iota({3}), iota({3}, 4), iota({3}, 9));
  REQUIRE(grads.size() == 2);
  CHECK(values(grads[0]) == Doubles{0, 0, 0});
  CHECK(values(grads[1]) == Doubles{9, 10, 11});
}

TEST_CASE("unchecked: psum transposes to psum, results are divided, arguments summed") {
  const Mesh mesh = Mesh::parse("i=4");
  // The three shapes above, and the same numbers.
  const auto fan_out = vjp(shard_map(mesh, options(P(), P{"i"}, false), identity), iota({2}, 1));
  CHECK(values(fan_out.second(iota({8}))[0]) == Doubles{12, 16});
  CHECK(fan_out.second.count("psum") == 1);
  const auto fan_in = vjp(shard_map(mesh, options(P{"i"}, P(), false), psum_i), iota({8}));
  CHECK(values(fan_in.second(iota({2}, 5))[0]) == Doubles{5, 6, 5, 6, 5, 6, 5, 6});
  CHECK(fan_in.second.count("psum") == 1);
  CHECK(fan_in.second.count("divide") == 1);
  const auto self = vjp(shard_map(mesh, options(P{"i"}, P{"i"}, false), psum_i), iota({4}));
  CHECK(values(self.second(iota({4}, 1))[0]) == Doubles(4, 10));
  const auto same = vjp(shard_map(mesh, options(P(), P(), false), identity), iota({3}));
  CHECK(values(same.second(iota({3}, 7))[0]) == Doubles{7, 8, 9});
  CHECK(same.second.count("psum") == 1);
}

TEST_CASE("behaviour 35: a result without influence, an argument without influence") {
  const Mesh mesh = Mesh::parse("i=2");
  const auto body = [](Tracer&, const Value& x, const Value& unused) {
    return std::tuple(psum(x, "i"), unused, 2 * x);
  };
  for (const bool checked : {true, false}) {
    const auto f = shard_map(
        mesh, {.in_specs = {P{"i"}, P()}, .out_specs = {P(), P(), P{"i"}}, .check_vma = checked},
        body);
    const auto [y, back] = vjp(f, iota({4}), iota({3}));
    const std::vector<Array> grads = back(iota({2}, 1), full({3}, 0), full({4}, 0));
    CHECK(values(grads[0]) == Doubles{1, 2, 1, 2});
    CHECK(values(grads[1]) == Doubles{0, 0, 0});
  }
  const auto constant = [](Tracer& t, const Value&) { return t.constant(full({2}, 3)); };
  const auto [z, back] = vjp(shard_map(mesh, options(P{"i"}, P()), constant), iota({4}));
  CHECK(values(back(full({2}, 1))[0]) == Doubles(4, 0));
}

TEST_CASE("behaviour 36: gradients of a replicated factor are summed over the devices") {
  const Mesh mesh = Mesh::parse("h=4");
  const auto body = [](Tracer&, const Value& q, const Value& k, const Value& v) {
    return q * broadcast_to(k, {1, 3}) + broadcast_to(v, {1, 3});
  };
  const Array q = mixed({4, 3}, 1), k = mixed({3}, 2), v = mixed({3}, 3), ct = mixed({4, 3}, 4);
  for (const bool checked : {true, false}) {
    const auto f = shard_map(
        mesh, {.in_specs = {P{"h"}, P(), P()}, .out_specs = {P{"h"}}, .check_vma = checked}, body);
    const std::vector<Array> grads = vjp(f, q, k, v).second(ct);
    for (Index j = 0; j < 3; ++j) {
      double dk = 0, dv = 0;
      for (Index i = 0; i < 4; ++i) {
        dk += ct.at(i * 3 + j) * q.at(i * 3 + j);
        dv += ct.at(i * 3 + j);
        CHECK(grads[0].at(i * 3 + j) == ct.at(i * 3 + j) * k.at(j));
      }
      CHECK(grads[1].at(j) == dk);
      CHECK(grads[2].at(j) == dv);
    }
  }
}

TEST_CASE("behaviour 37: all_to_all and twice the sum") {
  const Mesh mesh = Mesh::parse("x=8");
  const auto body = [](Tracer&, const Value& x) {
    return 2 * all_to_all(x, "x", 1, 1, {.tiled = true});
  };
  const auto [y, back] = vjp(shard_map(mesh, options(P{"x"}, P{none, "x"}), body), iota({8, 8}));
  CHECK(shape_of(y) == std::vector<Index>{1, 64});
  CHECK(y.at(1) == 2 * 8);  // behaviour 19: the transposed array, flattened
  CHECK(values(back(full({1, 64}, 1))[0]) == Doubles(64, 2));
}

TEST_CASE("behaviour 38: a shift that is not a cycle leaves the last source without gradient") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto shift = [](bool cyclic) {
    return [cyclic](Tracer&, const Value& x) {
      std::vector<std::pair<Index, Index>> perm;
      for (Index i = 0; i + 1 < 4 || (cyclic && i < 4); ++i) perm.emplace_back(i, (i + 1) % 4);
      return ppermute(x, "i", perm);
    };
  };
  const auto straight = shift(false), cycle = shift(true);
  for (const bool checked : {true, false}) {
    const auto one = vjp(shard_map(mesh, options(P{"i"}, P{"i"}, checked), straight), iota({4}, 1));
    CHECK(values(one.first) == Doubles{0, 1, 2, 3});
    CHECK(values(one.second(iota({4}, 3))[0]) == Doubles{4, 5, 6, 0});
    const auto all = vjp(shard_map(mesh, options(P{"i"}, P{"i"}, checked), cycle), iota({4}, 1));
    CHECK(values(all.first) == Doubles{4, 1, 2, 3});
    CHECK(values(all.second(iota({4}, 3))[0]) == Doubles{4, 5, 6, 3});
  }
}

TEST_CASE("behaviour 39: the gradient of a broadcast gathers at its source") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto body = [](Tracer&, const Value& x) { return pbroadcast(x, "i", 0); };
  const auto [y, back] = vjp(shard_map(mesh, options(P{"i"}, P{"i"}), body), iota({4}, 5));
  CHECK(values(y) == Doubles(4, 5));
  CHECK(values(back(full({4}, 1))[0]) == Doubles{4, 0, 0, 0});
}

TEST_CASE("behaviour 40: an untiled all_gather sums what the members want of one's own slice") {
  const Mesh mesh = Mesh::parse("i=3");
  const auto gather = [](Tracer&, const Value& x) { return all_gather(x, "i"); };
  const auto [y, back] = vjp(shard_map(mesh, options(P{"i"}, P{"i"}), gather), iota({6}));
  CHECK(shape_of(y) == std::vector<Index>{9, 2});
  const Array ct = mixed({9, 2}, 1);
  const Array dx = back(ct)[0];
  for (Index i = 0; i < 6; ++i) {
    double sum = 0;
    for (Index member = 0; member < 3; ++member) sum += ct.at(member * 6 + i);
    CHECK(dx.at(i) == sum);
  }
  // Order two: the derivative of the derivative by its cotangent is the function.
  const auto scatter = [](Tracer&, const Value& x) {
    return psum_scatter(x * x, "i", {.tiled = true});
  };
  const auto f = shard_map(mesh, options(P{"i"}, P{"i"}), scatter);
  const auto second = vjp(vjp_of(f, 1), mixed({9}, 2), iota({3}, 1)).second(iota({9}, 1));
  const Array x = mixed({9}, 2);
  for (Index d = 0; d < 3; ++d) {
    for (Index c = 0; c < 3; ++c) {
      // dx[d][c] = 2 x[d][c] ct[c]; u is what multiplies it.
      const double u = static_cast<double>(3 * d + c + 1);
      CHECK(second[0].at(3 * d + c) == 2 * static_cast<double>(c + 1) * u);
    }
  }
  for (Index c = 0; c < 3; ++c) {
    double sum = 0;
    for (Index d = 0; d < 3; ++d) sum += 2 * x.at(3 * d + c) * static_cast<double>(3 * d + c + 1);
    CHECK(second[1].at(c) == sum);
  }
}

TEST_CASE("behaviour 41: first and second derivatives through sin, checked and not") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto body = [](Tracer&, const Value& a, const Value& b) {
    return sin(a) * broadcast_to(b, {2}) + broadcast_to(b, {2});
  };
  const Array a = array_of({4}, {0.5f, -1.25f, 2, 3}), b = array_of({1}, {1.5f});
  for (const bool checked : {true, false}) {
    const auto f = shard_map(
        mesh, {.in_specs = {P{"x"}, P()}, .out_specs = {P{"x"}}, .check_vma = checked}, body);
    const std::vector<Array> first = vjp(f, a, b).second(full({4}, 1));
    double db = 0;
    for (Index i = 0; i < 4; ++i) {
      CHECK(first[0].at(i) == doctest::Approx(std::cos(a.at(i)) * 1.5).epsilon(1e-6));
      db += std::sin(a.at(i)) + 1;
    }
    CHECK(first[1].at(0) == doctest::Approx(db).epsilon(1e-6));
    // d/da of sum(da): -sin(a) b; d/db of it: sum cos(a).
    const std::vector<Array> second =
        vjp(vjp_of(f, 2), a, b, full({4}, 1)).second(full({4}, 1), full({1}, 0));
    double dadb = 0;
    for (Index i = 0; i < 4; ++i) {
      CHECK(second[0].at(i) == doctest::Approx(-std::sin(a.at(i)) * 1.5).epsilon(1e-6));
      dadb += std::cos(a.at(i));
    }
    CHECK(second[1].at(0) == doctest::Approx(dadb).epsilon(1e-6));
  }
}

TEST_CASE("behaviour 43, backward: a fanned-out argument gets the sum over the devices") {
  const Mesh mesh = Mesh::parse("x=4");
  const auto body = [](Tracer&, const Value& x) { return pvary(x, "x"); };
  const auto [y, back] = vjp(shard_map(mesh, options(P(), P{"x"}), body), iota({8}));
  CHECK(shape_of(y) == std::vector<Index>{32});
  CHECK(values(back(full({32}, 1))[0]) == Doubles(8, 4));
}

TEST_CASE("extrema have no derivative, and say so") {
  const Mesh mesh = Mesh::parse("i=2");
  const auto body = [](Tracer&, const Value& x) { return pmax(x, "i"); };
  const auto f = shard_map(mesh, options(P{"i"}, P()), body);
  CHECK(refusal([&] { vjp(f, iota({2})); }).find("pmax has no derivative") == 0);
  const auto g = shard_map(mesh, options(P{"i"}, P{"i"}), identity);
  const auto back = vjp(g, iota({2})).second;
  CHECK(refusal([&] { back(iota({4})); }).find("cotangent 0: F32[2]") == 0);
  CHECK(refusal([&] { back(iota({3})); }).find("cotangent 0") == 0);
  CHECK(refusal([&] { back(iota({2}), iota({2})); }) ==
        "pullback: called with 2 cotangents, but the function has 1 results");
  CHECK(refusal([&] { back(); }) ==
        "pullback: called with 0 cotangents, but the function has 1 results");
}

TEST_CASE("vjp_of is told how many arguments there are, and there may be none") {
  const Mesh mesh = Mesh::parse("i=2");
  const auto f = shard_map(mesh, options(P{"i"}, P{"i"}), identity);
  for (const std::size_t n : {std::size_t{0}, std::size_t{2}, SIZE_MAX}) {
    CHECK(refusal([&] { vjp_of(f, n); }).find("vjp_of: called with ") == 0);
    CHECK(refusal([&] { vjp_of(f, n); }).find("but the body takes 1") != std::string::npos);
  }
  const auto any = [](Tracer& t, std::span<const Value> all) {
    return std::vector<Value>{all.empty() ? t.zeros(DType::kF32, {1}) : all[0]};
  };
  const auto g = shard_map(mesh, {.in_specs = {P{"i"}}, .out_specs = {P()}}, any);
  CHECK(refusal([&] { vjp_of(g, 2); }) ==
        "vjp_of: called with 2 arguments, but in_specs has 1 entries");
  const auto h = shard_map(mesh, {.in_specs = P{"i"}, .out_specs = {P()}}, any);
  CHECK(vjp_of(h, 0)(iota({1})).empty());
  const auto nothing = [](Tracer&) { return std::vector<Value>(); };
  const auto none_at_all =
      shard_map(mesh, {.in_specs = {}, .out_specs = std::vector<Placement>()}, nothing);
  CHECK(vjp_of(none_at_all, 0)().empty());
}

TEST_CASE("a pullback outlives the views that were the arguments, and may be called again") {
  const Mesh mesh = Mesh::parse("i=2");
  const auto squares = [](Tracer&, const Value& x) { return x * x; };
  const auto f = shard_map(mesh, options(P{"i"}, P{"i"}), squares);
  std::optional<Pullback> back;
  {
    Tensor<float, 1> x({4});
    for (Index i = 0; i < 4; ++i) x.data()[i] = static_cast<float>(i + 1);
    back = vjp(f, x).second;
    std::fill_n(x.data(), 4, -100.0f);
  }
  CHECK(values((*back)(full({4}, 1))[0]) == Doubles{2, 4, 6, 8});
  CHECK(values((*back)(full({4}, 3))[0]) == Doubles{6, 12, 18, 24});
}

}  // namespace
}  // namespace kref
