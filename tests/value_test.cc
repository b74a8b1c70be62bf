// SPDX-License-Identifier: Apache-2.0
// Typed bodies: what they compute, and what is refused before a device starts.
#include "sharding/value.h"

#include <doctest/doctest.h>

#include "sharding/value_collectives.h"
#include "tests/typed_runs.h"

namespace kref {
namespace {

TEST_CASE("arithmetic and changes of shape compute what they say") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto body = [](Tracer& t, const Value& x) {
    const Value two = t.constant(full({}, 2));
    const Value a = reshape(transpose(slice(x, {0, 1}, {2, 3}), {1, 0}), {4});  // x01 x11 x02 x12
    const Value b = concatenate({a * two, -a}, 0);
    const Value c = pad(b, {1}, {0}) - broadcast_to(reshape(two, {1}), {9});
    return std::tuple(c, sum(x, {1}), convert(x / (x + two), DType::kBF16), 3 * sum(x));
  };
  const P cut{"X"};
  const auto f = shard_map(
      mesh, {.in_specs = {cut}, .out_specs = {cut, cut, cut, Placement(P())}, .check_vma = false},
      body);
  const auto [c, rows, quotients, total] = f(iota({4, 3}));
  CHECK(values(c) == std::vector<double>{-2, 0, 6, 2, 8, -3, -6, -4, -7,  //
                                         -2, 12, 18, 14, 20, -9, -12, -10, -13});
  CHECK(values(rows) == std::vector<double>{3, 12, 21, 30});
  CHECK(quotients.dtype() == DType::kBF16);
  CHECK(quotients.at(2) == 0.5);
  CHECK(total.at(0) == 45);
}

TEST_CASE("products of values, batched, transposed, shared") {
  const Mesh mesh = Mesh::parse("X=2");
  const Array x = mixed({2, 3, 4}, 1), y = mixed({2, 4, 5}, 2), w = mixed({5, 4}, 3);
  const auto body = [](Tracer&, const Value& a, const Value& b, const Value& c) {
    return std::pair(dot(a, b), dot(a, c, {.trans_y = true}));
  };
  const auto f =
      shard_map(mesh, {.in_specs = {P{"X"}, P{"X"}, P()}, .out_specs = {P{"X"}, P{"X"}}}, body);
  const auto [batched, shared] = f(x, y, w);
  Index wrong = 0;
  for (Index b = 0; b < 2; ++b) {
    for (Index i = 0; i < 3; ++i) {
      for (Index j = 0; j < 5; ++j) {
        double z = 0, s = 0;
        for (Index k = 0; k < 4; ++k) {
          z += x.at((b * 3 + i) * 4 + k) * y.at((b * 4 + k) * 5 + j);
          s += x.at((b * 3 + i) * 4 + k) * w.at(j * 4 + k);
        }
        wrong += batched.at((b * 3 + i) * 5 + j) != z;
        wrong += shared.at((b * 3 + i) * 5 + j) != s;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("behaviour 50: an out_spec that claims replication needs it proved") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const auto twice = [](Tracer&, const Value& x) { return 2 * x; };
  const auto summed = [](Tracer&, const Value& x) { return psum(x, "x"); };
  const P in{"x", "y"}, out{none, "y"};
  const std::string text = message(mesh, in, out, iota({4, 4}), twice);
  CHECK(says(text, "statically inferred"));
  CHECK(says(text, "require replication"));
  CHECK(run(mesh, in, out, iota({4, 4}), summed) ==
        std::vector<double>{8, 10, 12, 14, 16, 18, 20, 22});
  // Unchecked, the first device's part stands.
  const auto unchecked =
      shard_map(mesh, {.in_specs = {in}, .out_specs = {out}, .check_vma = false}, twice);
  CHECK(values(unchecked(iota({4, 4}))) == std::vector<double>{0, 2, 4, 6, 8, 10, 12, 14});
}

TEST_CASE("behaviour 51: the message lists what varies, what the spec names, what is missing") {
  const Mesh mesh = Mesh::parse("x=2,y=2,z=2");
  const auto same = [](Tracer&, const Value& x) { return x; };
  const std::string text = message(mesh, P{axes("x", "y", "z")}, P{"x"}, iota({8}), same);
  CHECK(says(text, "{x,y,z}"));
  CHECK(says(text, "{x}"));
  CHECK(says(text, "{y,z}"));
}

TEST_CASE("behaviour 52, unrolled: carries that change places vary by the union of their axes") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const auto body = [](Tracer&, const Value& a, const Value& b) {
    Value one = a, two = b;
    for (int step = 0; step < 3; ++step) {
      const Value next = one + two;
      one = two;
      two = next;
    }
    return std::pair(one, two);
  };
  const auto with = [&](const P& out) {
    return shard_map(mesh, {.in_specs = {P{"x"}, P{"y"}}, .out_specs = {out, out}}, body);
  };
  // a + 2 b, 2 a + 3 b of device (x, y).
  const auto [one, two] = with(P{axes("x", "y")})(iota({2}, 1), iota({2}, 10));
  CHECK(values(one) == std::vector<double>{21, 23, 22, 24});
  CHECK(values(two) == std::vector<double>{32, 35, 34, 37});
  for (const P& out : {P{"x"}, P{"y"}, P()}) {
    CHECK(says(refusal([&] { with(out)(iota({2}), iota({2})); }), "require replication"));
  }
}

TEST_CASE("behaviour 53: operands of different states are brought to one, or refused") {
  const Mesh mesh = Mesh::parse("i=2,j=2");
  const auto scaled = [](Tracer&, const Value& x, const Value& y) { return x * y; };
  const ShardMapOptions options{.in_specs = {P{"i"}, P{"j"}}, .out_specs = {P{axes("i", "j")}}};
  const auto f = shard_map(mesh, options, scaled);
  CHECK(values(f(iota({4}, 1), iota({4}, 1))) == std::vector<double>{1, 4, 3, 8, 3, 8, 9, 16});
  CHECK(f.count("pvary", iota({4}), iota({4})) == 2);
  ShardMapOptions strict = options;
  strict.auto_pcast = false;
  const auto g = shard_map(mesh, strict, scaled);
  CHECK(says(refusal([&] { g(iota({4}), iota({4})); }), "requires varying manual axes to match"));
  // all_gather and pmax lift an operand that does not vary.
  const auto gathered = [](Tracer&, const Value& x) { return all_gather(x, "i", {.tiled = true}); };
  CHECK(run(mesh, P(), P{"i"}, iota({2}), gathered) == std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1});
  const auto largest = [](Tracer&, const Value& x) { return pmax(x, "i"); };
  CHECK(run(mesh, P{"i"}, P(), iota({4}), largest) == std::vector<double>{2, 3});
}

TEST_CASE("behaviour 43: pvary of a replicated argument gives a copy a device") {
  const Mesh mesh = Mesh::parse("x=4");
  const auto copies = [](Tracer&, const Value& x) { return pvary(x, "x"); };
  CHECK(run(mesh, P(), P{"x"}, iota({2}), copies) == std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(says(message(mesh, P{"x"}, P{"x"}, iota({4}), copies), "pcast"));
}

TEST_CASE("behaviour 28 and case L057: a sum of what is replicated counts every device") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto twice = [](Tracer&, const Value& x) { return psum(psum(x, "i"), "i"); };
  CHECK(run(mesh, P{"i"}, P(), iota({4}), twice) == std::vector<double>{24});
  const auto both = [](Tracer&, const Value& x) {
    const Value once = psum(x, "i");
    return std::pair(once, psum(once, "i"));
  };
  const auto f = shard_map(mesh, {.in_specs = {P{"i"}}, .out_specs = {P(), P()}}, both);
  const auto [first, second] = f(full({4}, 1));
  CHECK(values(first) == std::vector<double>{4});
  CHECK(values(second) == std::vector<double>{16});
}

TEST_CASE("behaviour 26: the sum of a constant is not communicated") {
  const Mesh mesh = Mesh::parse("i=4");
  const auto body = [](Tracer& t, const Value& x) {
    return x + psum(t.constant(full({}, 2)), "i");
  };
  const auto f = shard_map(mesh, {.in_specs = {P{"i"}}, .out_specs = {P{"i"}}}, body);
  CHECK(values(f(full({4}, 0))) == std::vector<double>(4, 8));
  CHECK(f.count("psum", full({4}, 0)) == 0);
  const auto groups = [](Tracer& t, const Value& x) {
    return x + psum(t.constant(full({}, 2)), "i", {{0, 1}, {2, 3}});
  };
  const auto g = shard_map(mesh, {.in_specs = {P{"i"}}, .out_specs = {P{"i"}}}, groups);
  CHECK(values(g(full({4}, 0))) == std::vector<double>(4, 4));
}

TEST_CASE("behaviours 6 and 8, typed: axis_index varies") {
  const Mesh mesh = Mesh::parse("i=4,j=2");
  const auto body = [](Tracer& t) { return reshape(t.axis_index(axes("i", "j")), {1, 1}); };
  const auto f = shard_map(mesh, {.out_specs = {P{"i", "j"}}}, body);
  CHECK(values(f()) == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(
      says(refusal([&] { shard_map(mesh, {.out_specs = {P()}}, body)(); }), "require replication"));
}

TEST_CASE("behaviour 3, typed: ranks are checked before a device starts") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto scalar = [](Tracer&, const Value& x) { return sum(x); };
  const std::string text = message(mesh, P{"x"}, P{"x"}, iota({4}), scalar);
  CHECK(says(text, "which has length 1"));
  CHECK(says(text, "which has rank 0"));
  CHECK(says(text, "P()"));
}

TEST_CASE("behaviour 54: casts and collectives of axes in different states, unbound names") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const auto mixed_cast = [](Tracer&, const Value& x) {
    return pcast(pcast(x, "y", AxisState::kUnreduced), axes("x", "y"), AxisState::kUnreduced);
  };
  CHECK(says(message(mesh, P{"x", "y"}, P{"x"}, iota({4, 4}), mixed_cast),
             "can only accept axis_name which corresponds to one of"));
  const auto mixed_sum = [](Tracer&, const Value& x) { return psum(x, axes("x", "y")); };
  CHECK(says(message(mesh, P{"x"}, P(), iota({4}), mixed_sum), "can only accept axis_name"));
  const auto unbound = [](Tracer&, const Value& x) { return psum(x, "q"); };
  CHECK(says(message(mesh, P{"x"}, P(), iota({4}), unbound), "unbound axis name"));
}

TEST_CASE("behaviour 56: sin of an unreduced value; a result that is not what its spec says") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto sine = [](Tracer&, const Value& x) {
    return sin(pcast(x, "x", AxisState::kUnreduced));
  };
  CHECK(says(message(mesh, P{"x"}, P(), iota({4}), sine),
             "unreduced rule for sin is not implemented"));
  const auto same = [](Tracer&, const Value& x) { return x; };
  CHECK(message(mesh, P{"x"}, Placement(P(), {.unreduced = {"x"}}), iota({4}), same) !=
        "(not refused)");
}

TEST_CASE("behaviour 60: unreduced values are stored as varying ones, and psum adds their terms") {
  const Mesh mesh = Mesh::parse("x=2");
  const Placement terms(P(), {.unreduced = {"x"}});
  const auto relabel = [](Tracer&, const Value& x) { return pcast(x, "x", AxisState::kUnreduced); };
  const auto f = shard_map(mesh, {.in_specs = {P{"x"}}, .out_specs = {terms}}, relabel);
  const Array y = f(iota({4}));
  CHECK(shape_of(y) == std::vector<Index>{2, 2});
  CHECK(values(y) == std::vector<double>{0, 1, 2, 3});
  const auto add_up = [](Tracer&, const Value& x) { return psum(x, "x"); };
  CHECK(run(mesh, terms, P(), y, add_up) == std::vector<double>{2, 4});
  // Without proof a spec may say something else of the same blocks, there and back.
  const auto same = [](Tracer&, const Value& x) { return x; };
  const auto there =
      shard_map(mesh, {.in_specs = {P{"x"}}, .out_specs = {terms}, .check_vma = false}, same);
  const auto back =
      shard_map(mesh, {.in_specs = {terms}, .out_specs = {P{"x"}}, .check_vma = false}, same);
  CHECK(shape_of(there(iota({4}))) == std::vector<Index>{2, 2});
  CHECK(values(back(there(iota({4})))) == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("behaviour 63, typed: terms of a maximum are neither summed nor negated") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto added = [](Tracer&, const Value& x) { return sum(x, std::vector<Index>{0}); };
  const auto negated = [](Tracer&, const Value& x) { return -x; };
  for (const UnreducedKind kind : {UnreducedKind::kMax, UnreducedKind::kMin}) {
    const Placement terms(P(), {.unreduced = {"x"}, .kind = kind});
    const std::string found = std::string("expected unreduced_kind=sum, found ") + to_string(kind);
    CHECK(says(message(mesh, terms, terms, iota({2, 3}), added), ("sum: " + found).c_str()));
    CHECK(says(message(mesh, terms, terms, iota({2, 3}), negated), ("neg: " + found).c_str()));
  }
  const Placement terms(P(), {.unreduced = {"x"}});
  CHECK(run(mesh, terms, terms, iota({2, 3}), added) == std::vector<double>{3, 12});
  CHECK(run(mesh, terms, terms, iota({2, 2}), negated) == std::vector<double>{0, -1, -2, -3});
}

TEST_CASE("a body that breaks a rule of its operations is refused with the types") {
  const Mesh mesh = Mesh::parse("x=2");
  const Array x = iota({4, 4});
  const auto reshaped = [](Tracer&, const Value& v) { return reshape(v, {3}); };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, x, reshaped), "f32[2,4]{V:x} to [3]"));
  const auto multiplied = [](Tracer&, const Value& v) { return dot(v, v); };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, x, multiplied), "dot: "));
  const auto added = [](Tracer& t, const Value& v) { return v + t.zeros(DType::kF64, {2, 4}); };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, x, added), "the element types differ"));
  const auto scattered = [](Tracer&, const Value& v) {
    return psum_scatter(v, "x", {.scatter_dimension = 1, .tiled = false});
  };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, x, scattered), "must match"));
  CHECK(says(message(mesh, P{"x"}, P{"x"}, x, scattered), "(called at value_test.cc:"));
}

TEST_CASE("values that no operation gave, or of another call, are refused") {
  const Mesh mesh = Mesh::parse("x=2");
  Value kept;
  const auto keep = [&kept](Tracer&, const Value& v) {
    kept = v;
    return v;
  };
  CHECK(run(mesh, P{"x"}, P{"x"}, iota({2}), keep) == std::vector<double>{0, 1});
  const auto stale = [&kept](Tracer&, const Value&) { return kept; };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, iota({2}), stale), "another call of a body"));
  const auto none_at_all = [](Tracer&, const Value&) { return Value(); };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, iota({2}), none_at_all), "call of a body"));
  const auto used = [](Tracer&, const Value& v) { return v + Value(); };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, iota({2}), used), "no operation gave"));
  const auto reused = [&kept](Tracer&, const Value& v) { return v + kept; };
  CHECK(says(message(mesh, P{"x"}, P{"x"}, iota({2}), reused), "a call that has ended"));
}

}  // namespace
}  // namespace kref
