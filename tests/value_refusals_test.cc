// SPDX-License-Identifier: Apache-2.0
// Typed bodies: extents, numbers and handles that are refused before a device starts.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>

#include "sharding/custom_vjp.h"
#include "sharding/value.h"
#include "sharding/value_collectives.h"
#include "tests/typed_runs.h"

namespace kref {
namespace {

TEST_CASE("dimensions count from the end, and extents that no Index counts are refused") {
  const Mesh mesh = Mesh::parse("x=2");
  const P cut{"x"};
  const auto flipped = [](Tracer&, const Value& v) { return transpose(v, {-1, -2}); };
  CHECK(run(mesh, cut, cut, iota({4, 2}), flipped) == std::vector<double>{0, 2, 1, 3, 4, 6, 5, 7});
  const auto twice = [](Tracer&, const Value& v) { return transpose(v, {-1, 1}); };
  CHECK(says(message(mesh, cut, cut, iota({4, 2}), twice), "transpose: [-1,1] is not a perm"));
  const auto beyond = [](Tracer&, const Value& v) { return transpose(v, {-3, 1}); };
  CHECK(says(message(mesh, cut, cut, iota({4, 2}), beyond), "transpose: dimension -3 of f32[2,2]"));
  for (const auto& [low, high] : {std::pair(INT64_MAX, INT64_MAX), std::pair(INT64_MAX, Index{0}),
                                  std::pair(Index{1}, INT64_MAX - 2)}) {
    const std::vector<Index> before{low, 0}, after{high, 0};
    const auto padded = [&](Tracer&, const Value& v) { return pad(v, before, after); };
    const std::string text = message(mesh, cut, cut, iota({4, 2}), padded);
    CHECK(says(text, "pad: dimension 0 of f32[2,2]{V:x} by "));
    CHECK(says(text, "gets more than 2^63 - 1 elements"));
  }
}

TEST_CASE("an Array that nothing was assigned to is refused by name wherever it comes in") {
  const Mesh mesh = Mesh::parse("x=2");
  const Array x = iota({2});
  const auto untyped = [&](const std::function<Array(Device&)>& f) {
    const auto body = [&](Device& device, const Array&) { return f(device); };
    return refusal([&] { shard_map(mesh, {.in_specs = {P{"x"}}, .out_specs = {P()}}, body)(x); });
  };
  CHECK(says(untyped([](Device&) { return Array(); }), "result 0 is an F32[] without memory"));
  const auto summed = [](Device& device) { return psum(device, Array(), "x"); };
  CHECK(says(untyped(summed), "psum: the operand is an F32[] without memory"));
  const auto moved = [](Device& device) { return ppermute(device, Array(), "x", {{0, 1}}); };
  CHECK(says(untyped(moved), "ppermute: the operand is an F32[] without memory"));
  const auto same = [](Device&, const Array& v) { return v; };
  const auto f = shard_map(mesh, {.in_specs = {P()}, .out_specs = {P()}}, same);
  CHECK(says(refusal([&] { f(Array()); }), "argument 0 is an F32[] without memory"));
  CHECK(says(refusal([&] { shard(mesh, Array(), P()); }), "holds is an F32[] without memory"));
  const auto constant = [](Tracer& t, const Value&) { return t.constant(Array()); };
  CHECK(says(message(mesh, P{"x"}, P(), x, constant), "constant: the array is an F32[] without"));
  const auto called = [](Tracer&, const Value& v) {
    const auto run = [](Device&, std::span<const Array>) { return Array(); };
    return device_call("mine", {v}, DType::kF32, {}, run);
  };
  CHECK(says(message(mesh, P{"x"}, P(), x, called), "statically inferred"));
  const auto summed_call = [&](Tracer& t, const Value& v) { return psum(called(t, v), "x"); };
  CHECK(says(message(mesh, P{"x"}, P(), x, summed_call), "mine: the result is an F32[] without"));
}

TEST_CASE("a factor that integers do not have, and a body that is not there") {
  const Mesh mesh = Mesh::parse("x=2");
  const P cut{"x"};
  for (const double factor : {0.5, std::nan(""), HUGE_VAL, 0x1p63}) {
    const auto scaled = [&](Tracer&, const Value& v) { return scale(v, factor); };
    const std::string text = message(mesh, cut, cut, iota({2}, 0, DType::kI32), scaled);
    CHECK(says(text, "scale: I32 by "));
    CHECK(says(text, "(called at value_refusals_test.cc:"));
    CHECK(text.find("device (x=") == std::string::npos);
  }
  const auto tripled = [](Tracer&, const Value& v) { return scale(v, -3); };
  CHECK(run(mesh, cut, cut, iota({2}, 1, DType::kI32), tripled) == std::vector<double>{-3, -6});

  const ShardMapOptions options{.in_specs = {cut}, .out_specs = {cut}};
  const std::function<Array(Device&, const Array&)> untyped;
  const std::function<Value(Tracer&, const Value&)> typed;
  Array (*const pointer)(Device&, const Array&) = nullptr;
  CHECK(refusal([&] { shard_map(mesh, options, untyped); }) == "shard_map: there is no body");
  CHECK(refusal([&] { shard_map(mesh, options, typed); }) == "shard_map: there is no body");
  CHECK(refusal([&] { shard_map(mesh, options, pointer); }) == "shard_map: there is no body");
  const auto called = [](Tracer&, const Value& v) {
    return device_call("mine", {v}, DType::kF32, {1}, DeviceFunction());
  };
  CHECK(says(message(mesh, cut, cut, iota({2}), called), "mine: device_call without a function"));
}

TEST_CASE("a Tracer that outlives its call is refused") {
  const Mesh mesh = Mesh::parse("x=2");
  std::optional<Tracer> tracer;
  const auto keep_it = [&tracer](Tracer& t, const Value& v) {
    tracer = t;
    return v;
  };
  CHECK(run(mesh, P{"x"}, P{"x"}, iota({2}), keep_it) == std::vector<double>{0, 1});
  CHECK(says(refusal([&] { tracer->zeros(DType::kF32, {2}); }), "a Tracer of a call that has"));
  CHECK(says(refusal([&] { tracer->axis_index("x"); }), "a Tracer of a call that has ended"));
  CHECK(says(refusal([&] { tracer->mesh(); }), "a Tracer of a call that has ended"));
}

}  // namespace
}  // namespace kref
