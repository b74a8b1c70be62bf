// SPDX-License-Identifier: Apache-2.0
// What the collectives refuse (sharding_semantics 2.5), with collective, dimension, expected and
// found, device and call site in the message.
#include <doctest/doctest.h>

#include "sharding/collective_calls.h"
#include "tests/collective_oracle.h"
#include "tests/refusal.h"

namespace kref {
namespace {

// The message of what every device of X=4 does with an array of a shape.
std::string refused(const oracle::Coordinates& shape,
                    const std::function<void(Device&, const Array&)>& body,
                    DType type = DType::kF32) {
  return refusal(
      [&] { launch(Mesh::parse("X=4,Y=2"), [&](Device& d) { body(d, Array(type, shape)); }); });
}

void expect(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    CAPTURE(message);
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("psum_scatter: the extent must match or be divisible by the shard count") {
  expect(refused({2, 6}, [](Device& d,
                            const Array& x) { psum_scatter(d, x, "X", {.scatter_dimension = 1}); }),
         {"psum_scatter: scatter_dimension=1 of operand [2,6] has 6 elements",
          "must match shard count 4", "device (X=0, Y=0)", "collective_errors_test.cc:"});
  expect(refused({2, 6},
                 [](Device& d, const Array& x) {
                   psum_scatter(d, x, "X", {.scatter_dimension = -1, .tiled = true});
                 }),
         {"psum_scatter: scatter_dimension=-1 of operand [2,6] has 6 elements",
          "must be divisible by shard_count 4"});
}

TEST_CASE("all_to_all: the split extent must equal or be divisible by the size of the axes") {
  expect(refused({6, 4},
                 [](Device& d, const Array& x) { all_to_all(d, x, "X", 0, 1, {.tiled = true}); }),
         {"all_to_all: split_axis=0 of operand [6,4] has 6 elements",
          "has to be divisible by the size of the named axis X, 4"});
  expect(refused({4, 4}, [](Device& d, const Array& x) { all_to_all(d, x, axes("X", "Y"), 1, 0); }),
         {"all_to_all: split_axis=1 of operand [4,4] has 4 elements",
          "requires the size of the mapped axis (X,Y), 8, to equal x.shape[split_axis]"});
}

TEST_CASE("ppermute: sources and destinations must be unique, modulo n") {
  for (const Permutation& perm : {Permutation{{0, 1}, {2, 1}}, Permutation{{2, 3}, {0, 1}, {2, 5}},
                                  Permutation{{0, 1}, {0, 2}}, Permutation{{0, 1}, {4, 2}}}) {
    expect(refused({3}, [&](Device& d, const Array& x) { ppermute(d, x, "X", perm); }),
           {"ppermute: ", "is named twice in perm of a group of 4",
            "sources and destinations must be unique"});
  }
  expect(refused({3},
                 [](Device& d, const Array& x) {
                   ppermute(d, x, "X", {{0, 1}, {4, 2}});
                 }),
         {"source 4 (0 modulo 4) "});
  expect(refused({3},
                 [](Device& d, const Array& x) {
                   ppermute(d, x, "X", {{0, -3}, {2, 1}});
                 }),
         {"destination 1 "});
}

TEST_CASE("pshuffle: a permutation of 0 .. n - 1") {
  for (const std::vector<Index>& perm :
       {std::vector<Index>{0, 1, 2}, std::vector<Index>{1, 0}, std::vector<Index>{0, 1, 2, 4},
        std::vector<Index>{0, 1, 2, -1}, std::vector<Index>{0, 1, 2, 3, 4}, std::vector<Index>{}}) {
    CHECK(refused({3}, [&](Device& d, const Array& x) { pshuffle(d, x, "X", perm); }) !=
          "(not refused)");
  }
  expect(refused({3},
                 [](Device& d, const Array& x) {
                   pshuffle(d, x, "X", {1, 0, 2, 7});
                 }),
         {"does not represent a permutation"});
  expect(refused({3},
                 [](Device& d, const Array& x) {
                   pshuffle(d, x, "X", {1, 0});
                 }),
         {"pshuffle: `perm` of 2 entries does not represent a permutation of 0 .. 3"});
}

TEST_CASE("groups: each index once, of one size where shapes depend on it") {
  const AxisIndexGroups missing = {{0, 1}, {2}}, twice = {{0, 1}, {1, 2, 3}},
                        outside = {{0, 1}, {2, 4}}, uneven = {{0}, {1, 2, 3}};
  for (const AxisIndexGroups& groups : {missing, twice, outside}) {
    expect(refused({4}, [&](Device& d,
                            const Array& x) { psum(d, x, "X", {.axis_index_groups = groups}); }),
           {"psum", "must cover all indices exactly once"});
  }
  const auto gather = [&](Device& d, const Array& x) {
    all_gather(d, x, "X", {.axis_index_groups = uneven});
  };
  const auto scatter = [&](Device& d, const Array& x) {
    psum_scatter(d, x, "X", {.axis_index_groups = uneven});
  };
  const auto swap = [&](Device& d, const Array& x) {
    all_to_all(d, x, "X", 0, 0, {.axis_index_groups = uneven});
  };
  const auto mean = [&](Device& d, const Array& x) {
    pmean(d, x, "X", {.axis_index_groups = uneven});
  };
  expect(refused({4}, gather), {"all_gather", "must be equally sized"});
  expect(refused({4}, scatter), {"psum_scatter", "must be equally sized"});
  expect(refused({4}, swap), {"all_to_all", "must be equally sized"});
  expect(refused({4}, mean), {"pmean", "must be equally sized"});
  CHECK(refused({4}, [&](Device& d, const Array& x) {
          psum(d, x, "X", {.axis_index_groups = uneven});
          pmax(d, x, "X", uneven);
          pmin(d, x, "X", uneven);
        }) == "(not refused)");
}

TEST_CASE("axes that the mesh lacks, that come twice, and one too many") {
  expect(refused({4}, [](Device& d, const Array& x) { psum(d, x, "Q"); }),
         {"psum", "unbound axis name", "'Q'", "X=4,Y=2"});
  expect(refused({4}, [](Device& d, const Array& x) { pmin(d, x, axes("X", "Q")); }),
         {"pmin", "unbound axis name"});
  expect(refused({4}, [](Device& d, const Array& x) { all_gather(d, x, axes("X", "X")); }),
         {"all_gather", "twice"});
  expect(refused({4}, [](Device& d, const Array& x) { pargmin(d, x, axes("X", "Y")); }),
         {"pargmin: axis_name is (X,Y), expected one mesh axis"});
}

TEST_CASE("dimensions that an array has not, and one too many") {
  expect(refused({4, 4}, [](Device& d, const Array& x) { all_gather(d, x, "X", {.axis = 3}); }),
         {"all_gather: axis=3 is not a dimension, expected at least -3 and less than 3"});
  expect(refused({4, 4}, [](Device& d,
                            const Array& x) { all_gather(d, x, "X", {.axis = 2, .tiled = true}); }),
         {"all_gather: axis=2 is not a dimension, expected at least -2 and less than 2"});
  expect(refused({}, [](Device& d, const Array& x) { psum_scatter(d, x, "X"); }),
         {"psum_scatter: scatter_dimension=0 is not a dimension"});
  expect(refused({4}, [](Device& d, const Array& x) { all_to_all(d, x, "X", -2, 0); }),
         {"all_to_all: split_axis=-2 is not a dimension"});
  expect(refused({4}, [](Device& d, const Array& x) { all_to_all(d, x, "X", 0, 1); }),
         {"all_to_all: concat_axis=1 is not a dimension"});
  expect(
      refused({1, 1, 1, 1, 1, 1}, [](Device& d, const Array& x) { all_gather(d, x, "X"); }),
      {"all_gather: operand [1,1,1,1,1,1] of rank 6 gets one more dimension, expected at most 6"});
  expect(
      refused({0, Index{1} << 62},
              [](Device& d, const Array& x) { all_gather(d, x, "X", {.axis = 1, .tiled = true}); }),
      {"all_gather"});
}

TEST_CASE("members that a group has not") {
  expect(refused({4}, [](Device& d, const Array& x) { pbroadcast(d, x, "X", 4); }),
         {"pbroadcast: source=4 is not a member of a group of 4"});
  expect(refused({4}, [](Device& d, const Array& x) { pbroadcast(d, x, "X", -1); }), {"source=-1"});
  expect(refused({4},
                 [](Device& d, const Array& x) {
                   PsumTo{"Y", 2}(d, x);
                 }),
         {"psum_to: target=2 is not a member of a group of 2"});
}

TEST_CASE("wire and accumulation types that do not go with the terms") {
  expect(refused({4},
                 [](Device& d, const Array& x) { psum(d, x, "X", {.sum = {.wire = DType::kI8}}); }),
         {"psum: wire type is I8, expected a float type as the terms, F32", "called at"});
  expect(refused({4},
                 [](Device& d, const Array& x) {
                   psum(d, x, "X", {.sum = {.accumulate = DType::kF8E4M3}});
                 }),
         {"psum: accumulation type is F8_E4M3, expected a float type of at least 16 bits"});
  expect(refused(
             {4},
             [](Device& d, const Array& x) {
               psum_scatter(d, x, "X", {.sum = {.accumulate = DType::kF32}});
             },
             DType::kI32),
         {"psum_scatter: accumulation type is F32, expected an integer type"});
  expect(refused({4}, [](Device& d,
                         const Array& x) { pmean(d, x, "X", {.sum = {.wire = DType::kBool}}); }),
         {"pmean: wire type is BOOL"});
}

// Shape, type and options are compared when devices meet.
TEST_CASE("devices that bring different things are told what each brought") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto differ = [&](const std::function<void(Device&)>& body) {
    return refusal([&] { launch(mesh, body); });
  };
  const Array x(DType::kF32, std::vector<Index>{4, 2}), y(DType::kF32, std::vector<Index>{2, 4}),
      z(DType::kI32, std::vector<Index>{4, 2});
  expect(differ([&](Device& d) { d.index() == 0 ? psum(d, x, "X") : pmax(d, x, "X"); }),
         {"psum", "pmax"});
  expect(differ([&](Device& d) { psum(d, d.index() == 0 ? x : y, "X"); }), {"[4,2]", "[2,4]"});
  expect(differ([&](Device& d) { psum(d, d.index() == 0 ? x : z, "X"); }), {"f32", "i32"});
  expect(differ([&](Device& d) { all_gather(d, x, "X", {.axis = d.index()}); }),
         {"axis=0", "axis=1"});
  expect(differ([&](Device& d) { d.index() == 0 ? pmax(d, x, "X") : pmin(d, x, "X"); }),
         {"pmax", "pmin"});
  expect(differ([&](Device& d) { ppermute(d, x, "X", ring(2, d.index())); }), {"perm="});
  expect(differ([&](Device& d) {
           psum(d, x, "X", {.sum = {.order = d.index() == 0 ? SumOrder::kRank : SumOrder::kRing}});
         }),
         {"order=ring"});
  expect(differ([&](Device& d) {
           const auto wire = d.index() == 0 ? std::nullopt : std::optional(DType::kBF16);
           psum(d, x, "X", {.sum = {.wire = wire}});
         }),
         {"the option is wire=BF16, expected none"});
  // The mesh serves again.
  CHECK(differ([&](Device& d) { psum(d, x, "X"); }) == "(not refused)");
}

TEST_CASE("a result is taken once") {
  const std::string message = refusal([] {
    launch(Mesh::parse("X=2"), [](Device& d) {
      Pending started = psum_start(d, Array(DType::kF32, std::vector<Index>{4}), "X");
      started.done();
      started.done();
    });
  });
  expect(message, {"done() of a collective whose result was taken already"});
}

TEST_CASE("sent bytes are those of the ring algorithms") {
  const std::vector<Index> in = {6, 4};  // 24 elements
  CHECK(AllGather{"X"}.sent_bytes(in, DType::kF32, 4) == 3 * 96);
  CHECK(PsumScatter{"X"}.sent_bytes(in, DType::kF32, 4) == 72);
  CHECK(Psum{"X"}.sent_bytes(in, DType::kBF16, 4) == 72);
  CHECK(Psum{"X"}.sent_bytes(in, DType::kBool, 4) == 144);
  CHECK(Psum{"X", {}, {.wire = DType::kBF16}}.sent_bytes(in, DType::kF32, 4) == 72);
  CHECK(Pmean{"X"}.sent_bytes(in, DType::kI8, 2) == 24);
  CHECK(Pmean{"X"}.sent_bytes(in, DType::kBool, 2) == 96);
  CHECK(Pmax{"X"}.sent_bytes(in, DType::kI8, 2) == 24);
  CHECK(AllToAll{"X"}.sent_bytes(in, DType::kF32, 4) == 72);
  CHECK(Ppermute{"X", {{0, 1}}}.sent_bytes(in, DType::kF32, 4) == 96);
  CHECK(Ppermute{"X", {{1, 5}}}.sent_bytes(in, DType::kF32, 4) == 0);
  CHECK(Pbroadcast{"X"}.sent_bytes(in, DType::kF32, 4) == 96);
  CHECK(Pvary{"X"}.sent_bytes(in, DType::kF32, 4) == 0);
  CHECK(Psum{"X"}.sent_bytes(in, DType::kF32, 1) == 0);
}

}  // namespace
}  // namespace kref
