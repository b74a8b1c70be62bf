// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "sharding/collective_calls.h"
#include "sharding/shard_map.h"
#include "sharding/value_collectives.h"
#include "sharding/vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

Array same(Device&, const Array& x) { return x; }

TEST_CASE("behaviour 3: a spec longer than its array names length and rank, and P() for scalars") {
  const Mesh mesh = Mesh::parse("x=2");
  std::atomic<int> started{0};
  const auto scalar = [&](Device&, const Array&) {
    ++started;
    return iota({});
  };
  const auto out = shard_map(mesh, {.in_specs = {P{"x"}}, .out_specs = {P{"x"}}}, scalar);
  const std::string late = refusal([&] { out(iota({4})); });
  CHECK(says(late, "which has length 1"));
  CHECK(says(late, "which has rank 0"));
  CHECK(says(late, "P()"));
  started = 0;
  const std::string early = refusal([&] { out(iota({})); });
  CHECK(says(early, "argument 0"));
  CHECK(says(early, "has rank 0"));
  CHECK(says(early, "P()"));
  CHECK(started == 0);
}

TEST_CASE("behaviours 4 and 5: a dimension that the devices do not divide") {
  const Mesh mesh = Mesh::parse("i=4,j=2");
  const auto f =
      shard_map(mesh, {.in_specs = {P{"i"}}, .out_specs = {P{"i"}}, .names = {"weights"}}, same);
  const std::string message = refusal([&] { f(iota({2, 2})); });
  CHECK(says(message, "weights: dimension 0 of size 2 is not divisible by the 4 devices"));
  const auto g = shard_map(mesh, {.in_specs = {P{"i", "j"}}, .out_specs = {P{"i"}}}, same);
  CHECK(says(refusal([&] { g(iota({4})); }), "rank 1"));
  CHECK(says(refusal([&] { g(iota({8, 5})); }), "dimension 1 of size 5 is not divisible by the 2"));
}

TEST_CASE("counts that do not fit are refused before a device starts") {
  const Mesh mesh = Mesh::parse("X=2");
  std::atomic<int> started{0};
  const auto two = [&](Device&, const Array& x, const Array&) {
    ++started;
    return std::pair(x, x);
  };
  CHECK(says(refusal([&] {
               shard_map(mesh, {.in_specs = {P()}, .out_specs = {P(), P()}}, two);
             }),
             "the body has 2 arguments, but in_specs has 1 entry"));
  CHECK(says(refusal([&] {
               shard_map(mesh, {.in_specs = {P(), P()}, .out_specs = {P()}}, two);
             }),
             "the body has 2 results, but out_specs has 1 entry"));
  const auto f = shard_map(mesh, {.in_specs = {P(), P()}, .out_specs = {P(), P()}}, two);
  CHECK(says(refusal([&] { f(iota({2})); }), "called with 1 arguments, but the body takes 2"));
  CHECK(started == 0);

  const auto list = [](Device&, std::span<const Array> all) {
    return std::vector<Array>(all.begin(), all.end());
  };
  const auto g = shard_map(mesh, {.in_specs = P(), .out_specs = {P(), P()}}, list);
  CHECK(says(refusal([&] { g(iota({2})); }), "the body returned 1 results, but out_specs has 2"));
}

TEST_CASE("specs that no array could have are refused where shard_map is called") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const auto in = [&](const Placement& spec) {
    return refusal([&] { shard_map(mesh, {.in_specs = {spec}, .out_specs = {P()}}, same); });
  };
  CHECK(says(in(P{"Z"}), "argument 0: spec P('Z') names axis 'Z'"));
  CHECK(says(in(P{"Z"}), "not in the mesh X=2,Y=2"));
  CHECK(says(in(P{"X", "X"}), "at most one positional dimension"));
  CHECK(says(in(P{axes("X", "X")}), "dimension 0 twice"));
  CHECK(says(in(Placement(P{"X"}, {.unreduced = {"X"}})), "'X'"));
  CHECK(says(refusal([&] { shard_map(mesh, {.in_specs = {P()}, .out_specs = {P{"Q"}}}, same); }),
             "result 0: spec P('Q')"));
}

TEST_CASE("an argument of another type than the body takes is refused by name") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto body = [](Device&, Ref<const float, 2> x) { return Tensor<float, 2>(x.extents(), 1); };
  const auto f = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, body);
  CHECK(says(refusal([&] {
               f(iota({2, 2}, 0, DType::kI32));
             }),
             "argument 0 is I32[2,2], but the body takes F32 of rank 2"));
  CHECK(says(refusal([&] { f(iota({2, 2, 2})); }), "but the body takes F32 of rank 2"));
  CHECK(values(f(iota({2, 2}))) == std::vector<double>{1, 1, 1, 1});
}

TEST_CASE("devices that return different shapes are named, and the mesh works afterwards") {
  const Mesh mesh = Mesh::parse("X=4");
  const auto body = [](Device& device, const Array& x) {
    return device.index() == 2 ? iota({3}) : x;
  };
  const auto f = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, body);
  const std::string message = refusal([&] { f(iota({8})); });
  CHECK(says(message, "result 0"));
  CHECK(says(message, "F32[3]"));
  CHECK(says(message, "X=2"));
  CHECK(says(message, "every device returns the same shape"));
  const auto good = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, same);
  CHECK(values(good(iota({8}))) == values(iota({8})));
}

TEST_CASE("blocks without elements that make an extent no Index counts are refused") {
  const Mesh mesh = Mesh::parse("X=4");
  const auto body = [](Device&, const Array&) {
    return Array(DType::kI8, std::vector<Index>{0, Index{1} << 62});
  };
  const auto f = shard_map(mesh, {.in_specs = {P()}, .out_specs = {P{none, "X"}}}, body);
  for (const std::string& text :
       {refusal([&] { f(iota({1})); }), refusal([&] { f.sharded(iota({1})); })}) {
    CHECK(text.find("result 0: ") != std::string::npos);
    CHECK(text.find("more than 2^63 - 1 elements") != std::string::npos);
  }
}

TEST_CASE("an array that lives elsewhere than its spec says is refused, naming both") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const Sharded x = shard(mesh, iota({4, 4}), P{"X"});
  const auto f = shard_map(mesh, {.in_specs = {P{none, "Y"}}, .out_specs = {P()}}, same);
  const std::string message = refusal([&] { f(x); });
  CHECK(says(message, "argument 0: f32[4@X,4] lives as P('X'), but in_specs say P(None, 'Y')"));
  const Mesh other = Mesh::parse("X=2");
  const auto g = shard_map(other, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, same);
  CHECK(says(refusal([&] { g(x); }), "lives on the mesh X=2,Y=2"));
}

TEST_CASE("the options of the launch reach the devices") {
  const Mesh mesh = Mesh::parse("X=3");
  const auto absent = [](Device& device, const Array& x) {
    if (device.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return psum(device, x, "X");
  };
  const ShardMapOptions options{.in_specs = {P{"X"}}, .out_specs = {P()}};
  ShardMapOptions hasty = options;
  hasty.launch.time_limit = std::chrono::milliseconds(40);
  const std::string message = refusal([&] { shard_map(mesh, hasty, absent)(iota({3})); });
  CHECK(says(message, "psum"));
  CHECK(says(message, "X=1"));
  // Any schedule gives the same bits.
  const auto several = [](Device& device, const Array& x) {
    const Array all = all_gather(device, x, "X", {.tiled = true});
    const Array next = ppermute(device, all, "X", {{0, 1}, {1, 2}, {2, 0}});
    return psum_scatter(device, psum(device, next, "X"), "X", {.tiled = true});
  };
  ShardMapOptions delayed = options;
  delayed.out_specs = {P{"X"}};
  const Array x = mixed({3}, 7);
  const std::vector<double> expected = values(shard_map(mesh, delayed, several)(x));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    delayed.launch.delay_seed = seed;
    CHECK(values(shard_map(mesh, delayed, several)(x)) == expected);
  }
}

TEST_CASE("results that ought to be replicas are compared when that is asked for") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const auto body = [](Device& device, const Array& x) {
    return device.index() == 3 ? full({2}, 9) : x;
  };
  ShardMapOptions options{.in_specs = {P{"X"}}, .out_specs = {P{"X"}}};
  CHECK(values(shard_map(mesh, options, body)(iota({4}))) == values(iota({4})));
  setenv("KREF_CHECKS", "full", 1);
  CHECK(says(refusal([&] { shard_map(mesh, options, body)(iota({4})); }), "replicas differ"));
  unsetenv("KREF_CHECKS");
  options.check_replicas = true;
  const std::string message = refusal([&] { shard_map(mesh, options, body)(iota({4})); });
  CHECK(says(message, "result 0"));
  CHECK(says(message, "replicas differ at element [2]"));
  CHECK(says(message, "(X=1, Y=1)"));
  const auto f = shard_map(mesh, options, same);
  CHECK(values(f(iota({4}))) == values(iota({4})));
}

TEST_CASE("a result that cannot be made ends every device with the error") {
  const Mesh mesh = Mesh::parse("X=2");
  const std::vector<Index> six(6, 1);
  const Placement terms(P{}, {.unreduced = {"X"}});
  const auto untyped = [&](Device&, const Array&) { return iota(six); };
  const char* rank7 = "result 0: F32[1,1,1,1,1,1] on each device and 1 leading for the unreduced";
  ShardMapOptions options{.in_specs = {P{"X"}}, .out_specs = {terms}};
  const std::string late = refusal([&] { shard_map(mesh, options, untyped)(iota({2})); });
  CHECK(says(late, rank7));
  CHECK(says(late, "make rank 7, expected at most 6"));
  options.check_replicas = true;
  CHECK(says(refusal([&] { shard_map(mesh, options, untyped)(iota({2})); }), rank7));

  // Of a typed body, before a device starts.
  const auto apart = [](Tracer&, const Value& x) {
    return pcast(pvary(x, "X"), "X", AxisState::kUnreduced);
  };
  const auto typed = shard_map(mesh, {.in_specs = {P{}}, .out_specs = {terms}}, apart);
  const std::string early = refusal([&] { typed(iota(six)); });
  CHECK(says(early, rank7));
  CHECK(!says(early, "device (X="));
  CHECK(typed.sharded(iota(six)).size() == 1);
  const auto copies = [](Tracer&, const Value& x) { return pcast(x, "X", AxisState::kVarying); };
  const auto f = shard_map(
      mesh, {.in_specs = {Placement(P{}, {.reduced = {"X"}})}, .out_specs = {P{"X"}}}, copies);
  const std::string gradient = refusal([&] { vjp(f, iota(six)); });
  CHECK(says(gradient, "the cotangent of argument 0: F32[1,1,1,1,1,1] on each device"));

  // Blocks that are views of next to nothing, of which the whole would take 2^47 bytes.
  const Array little = iota({1});
  const auto huge = [&](Device&, const Array&) {
    const std::vector<Index> shape{Index{1} << 44};
    return Array(DType::kF32, shape, little.owner(), little.data());
  };
  const auto much = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, huge);
  CHECK_THROWS_AS(much(iota({2})), std::bad_alloc);
}

}  // namespace
}  // namespace kref
