// SPDX-License-Identifier: Apache-2.0
// Reverse mode through unreduced and reduced values, and of whole layers.
#include <doctest/doctest.h>

#include "sharding/custom_vjp.h"
#include "sharding/vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Doubles = std::vector<double>;

Placement reduced(const char* axis, P spec = P()) { return Placement(spec, {.reduced = {axis}}); }
Placement unreduced(const char* axis, P spec = P()) {
  return Placement(spec, {.unreduced = {axis}});
}
ShardMapOptions options(const Placement& in, const Placement& out, bool checked = true) {
  return {.in_specs = {in}, .out_specs = {out}, .check_vma = checked};
}

TEST_CASE("behaviour 44: the four pairs of reduced and unreduced collectives") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto gather = [](Tracer&, const Value& v) {
    return all_gather(v, "x", {.tiled = true, .to = GatherTo::kReduced});
  };
  const auto [full_v, gather_back] =
      vjp(shard_map(mesh, options(P{"x"}, reduced("x")), gather), iota({4}));
  CHECK(values(full_v) == Doubles{0, 1, 2, 3});
  CHECK(gather_back.count("psum_scatter") == 1);
  CHECK(gather_back.count("psum") == 0);
  // Two terms of the cotangent, a device each: summed and scattered.
  CHECK(values(gather_back(iota({2, 4}))[0]) == Doubles{4, 6, 8, 10});

  const auto scatter = [](Tracer&, const Value& v) {
    return psum_scatter(v, "x", {.tiled = true});
  };
  const auto [part, scatter_back] =
      vjp(shard_map(mesh, options(unreduced("x"), P{"x"}), scatter), iota({2, 4}));
  CHECK(values(part) == Doubles{4, 6, 8, 10});
  CHECK(scatter_back.count("all_gather") == 1);
  CHECK(values(scatter_back(iota({4}, 1))[0]) == Doubles{1, 2, 3, 4});

  const auto sum_up = [](Tracer&, const Value& v) { return psum(v, "x"); };
  const auto [total, sum_back] =
      vjp(shard_map(mesh, options(unreduced("x"), P()), sum_up), iota({2, 2}));
  CHECK(values(total) == Doubles{2, 4});
  CHECK(sum_back.count("preduced") == 1);
  CHECK(sum_back.count("psum") == 0);
  CHECK(values(sum_back(iota({2}, 5))[0]) == Doubles{5, 6});

  const auto mark = [](Tracer&, const Value& v) { return pcast(v, "x", AxisState::kReduced); };
  const auto [same, mark_back] = vjp(shard_map(mesh, options(P(), reduced("x")), mark), iota({2}));
  CHECK(values(same) == Doubles{0, 1});
  CHECK(mark_back.count("psum") == 1);
  CHECK(values(mark_back(iota({2, 2}))[0]) == Doubles{2, 4});
}

TEST_CASE("behaviour 45: a gather to reduced beside a psum") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const auto body = [](Tracer&, const Value& v) {
    const Value whole = all_gather(v, "y", {.axis = 1, .tiled = true, .to = GatherTo::kReduced});
    return psum(sum(whole), "x");
  };
  const auto f = shard_map(mesh, options(P{"x", "y"}, reduced("y")), body);
  const auto [y, back] = vjp(f, iota({4, 4}));
  CHECK(y.at(0) == 120);
  // The one of a replicated result as an unreduced value: member 0 keeps it.
  CHECK(values(back(array_of({2}, {1, 0}))[0]) == Doubles(16, 1));
}

TEST_CASE("behaviour 46: the gradient of a reduced argument stays in terms") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto body = [](Tracer&, const Value& v) { return sum(reshape(v, {2, 4})); };
  const auto f = shard_map(mesh, options(reduced("x"), reduced("x")), body);
  const auto [y, back] = vjp(f, iota({8}));
  CHECK(y.at(0) == 28);
  const Array grad = back(array_of({2}, {1, 0}))[0];
  CHECK(shape_of(grad) == std::vector<Index>{2, 8});
  Doubles expected(16, 0);
  for (std::size_t i = 0; i < 8; ++i) expected[i] = 1;
  CHECK(values(grad) == expected);
  CHECK(back.count("psum") == 0);
}

TEST_CASE("behaviour 47: unchecked, a reduced argument needs no psum backward, an unreduced does") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto use = [](Tracer&, const Value& v) { return 3 * v; };
  const auto [y, back] = vjp(shard_map(mesh, options(reduced("x"), P{"x"}, false), use), iota({2}));
  CHECK(values(y) == Doubles{0, 3, 0, 3});
  CHECK(back.count("psum") == 0);
  CHECK(values(back(iota({4}, 1))[0]) == Doubles{3, 6, 9, 12});
  const auto sum_up = [](Tracer&, const Value& v) { return psum(v, "x"); };
  const auto [z, sum_back] =
      vjp(shard_map(mesh, options(unreduced("x"), P(), false), sum_up), iota({2, 2}));
  CHECK(values(z) == Doubles{2, 4});
  CHECK(sum_back.count("psum") == 1);
  CHECK(values(sum_back(iota({2}, 1))[0]) == Doubles{1, 2});
}

// The plain gradient of sum(ct * (x w)) by w, and by x.
Doubles weight_gradient(const Array& x, const Array& ct) {
  Doubles out;
  for (Index k = 0; k < x.extent(1); ++k) {
    for (Index j = 0; j < ct.extent(1); ++j) {
      double sum = 0;
      for (Index i = 0; i < x.extent(0); ++i) {
        sum += x.at(i * x.extent(1) + k) * ct.at(i * ct.extent(1) + j);
      }
      out.push_back(sum);
    }
  }
  return out;
}
Doubles input_gradient(const Array& w, const Array& ct) {
  Doubles out;
  for (Index i = 0; i < ct.extent(0); ++i) {
    for (Index k = 0; k < w.extent(0); ++k) {
      double sum = 0;
      for (Index j = 0; j < ct.extent(1); ++j) {
        sum += ct.at(i * ct.extent(1) + j) * w.at(k * w.extent(1) + j);
      }
      out.push_back(sum);
    }
  }
  return out;
}

TEST_CASE("behaviour 48: an FSDP layer gathers to reduced and scatters its gradient") {
  const Mesh mesh = Mesh::parse("x=4");
  const Array x = mixed({8, 4}, 1), w = mixed({4, 6}, 2), ct = mixed({8, 6}, 3);
  const ShardMapOptions specs{.in_specs = {P{"x"}, P{"x"}}, .out_specs = {P{"x"}}};
  const auto by_type = [](Tracer&, const Value& a, const Value& shard) {
    return dot(a, all_gather(shard, "x", {.tiled = true, .to = GatherTo::kReduced}));
  };
  // The same with its derivative written by hand.
  const auto fwd = [](const Value& shard) {
    return std::pair(all_gather(shard, "x", {.tiled = true}), 0);
  };
  const auto bwd = [](int, const Value& g) { return psum_scatter(g, "x", {.tiled = true}); };
  const auto gather = custom_vjp(fwd, bwd);
  const auto by_hand = [gather](Tracer&, const Value& a, const Value& shard) {
    return dot(a, gather(shard));
  };
  const auto check = [&](const auto& f) {
    const auto [y, back] = vjp(f, x, w);
    const std::vector<Array> grads = back(ct);
    CHECK(values(grads[0]) == input_gradient(w, ct));
    CHECK(values(grads[1]) == weight_gradient(x, ct));
    CHECK(back.count("psum_scatter") == 1);
    CHECK(back.count("psum") == 0);
    CHECK(back.count("all_gather") == 0);  // the gathered weight is kept
  };
  check(shard_map(mesh, specs, by_type));
  check(shard_map(mesh, specs, by_hand));
}

TEST_CASE("behaviour 65: an unreduced value times a reduced one") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto body = [](Tracer&, const Value& u, const Value& r) { return u * r; };
  const auto f = shard_map(
      mesh, {.in_specs = {unreduced("x"), reduced("x")}, .out_specs = {unreduced("x")}}, body);
  const auto [y, back] = vjp(f, iota({2, 2}, 1), iota({2}, 5));
  CHECK(values(y) == Doubles{5, 12, 15, 24});
  const std::vector<Array> grads = back(iota({2}, 1));
  CHECK(shape_of(grads[0]) == std::vector<Index>{2});  // reduced
  CHECK(values(grads[0]) == Doubles{5, 12});
  CHECK(shape_of(grads[1]) == std::vector<Index>{2, 2});  // unreduced
  CHECK(values(grads[1]) == Doubles{1, 4, 3, 8});
  CHECK(back.count("psum") == 0);
  const auto scaled = [](Tracer&, const Value& u) { return 2 * u; };
  CHECK(refusal([&] {
          shard_map(mesh, options(unreduced("x"), unreduced("x")), scaled)(iota({2, 2}));
        }) != "(not refused)");
  const auto doubled = vjp(shard_map(mesh, options(reduced("x"), reduced("x")), scaled), iota({2}));
  CHECK(values(doubled.second(iota({2, 2}))[0]) == Doubles{0, 2, 4, 6});
}

TEST_CASE(
    "behaviour 66: a reduced weight beside a split batch is cast, and its gradient unreduced") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto body = [](Tracer&, const Value& a, const Value& w) { return dot(a, w); };
  const auto f = shard_map(mesh, {.in_specs = {P{"x"}, reduced("x")}, .out_specs = {P{"x"}}}, body);
  const Array a = mixed({4, 2}, 1), w = mixed({2, 6}, 2), ct = mixed({4, 6}, 3);
  const auto [y, back] = vjp(f, a, w);
  const std::vector<Array> grads = back(ct);
  CHECK(f.count("reduced_vary_cast", a, w) == 1);
  CHECK(back.count("psum") == 0);
  CHECK(values(grads[0]) == input_gradient(w, ct));
  REQUIRE(shape_of(grads[1]) == std::vector<Index>{2, 2, 6});
  const Doubles whole = weight_gradient(a, ct);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(grads[1].at(static_cast<Index>(i)) + grads[1].at(static_cast<Index>(i) + 12) == whole[i]);
  }
}

TEST_CASE("a tensor-parallel layer of two products, checked and unchecked, against plain loops") {
  const Mesh mesh = Mesh::parse("d=2,m=2");
  const auto body = [](Tracer&, const Value& x, const Value& w1, const Value& w2) {
    return psum(dot(dot(x, w1), w2), "m");
  };
  const Array x = mixed({4, 3}, 1), w1 = mixed({3, 6}, 2), w2 = mixed({6, 5}, 3);
  const Array ct = mixed({4, 5}, 4);
  Array h = full({4, 6}, 0);
  for (Index i = 0; i < 4; ++i) {
    for (Index j = 0; j < 6; ++j) {
      for (Index k = 0; k < 3; ++k) {
        h.mutable_elements<float>()[static_cast<std::size_t>(i * 6 + j)] +=
            static_cast<float>(x.at(i * 3 + k) * w1.at(k * 6 + j));
      }
    }
  }
  const Doubles dh = input_gradient(w2, ct);
  const Array dh_array = array_of({4, 6}, std::vector<float>(dh.begin(), dh.end()));
  for (const bool checked : {true, false}) {
    const auto f = shard_map(
        mesh,
        {.in_specs = {P{"d"}, P{none, "m"}, P{"m"}}, .out_specs = {P{"d"}}, .check_vma = checked},
        body);
    const std::vector<Array> grads = vjp(f, x, w1, w2).second(ct);
    CHECK(values(grads[0]) == input_gradient(w1, dh_array));
    CHECK(values(grads[1]) == weight_gradient(x, dh_array));
    CHECK(values(grads[2]) == weight_gradient(h, ct));
  }
  // Megatron's pair says the same.
  const auto named = [](Tracer&, const Value& a, const Value& b, const Value& c) {
    return megatron_g(dot(dot(megatron_f(a, "m"), b), c), "m");
  };
  const auto g =
      shard_map(mesh, {.in_specs = {P{"d"}, P{none, "m"}, P{"m"}}, .out_specs = {P{"d"}}}, named);
  CHECK(values(vjp(g, x, w1, w2).second(ct)[0]) == input_gradient(w1, dh_array));
}

}  // namespace
}  // namespace kref
