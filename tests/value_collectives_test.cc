// SPDX-License-Identifier: Apache-2.0
// The collectives on Values do what they do on arrays.
#include "sharding/value_collectives.h"

#include <doctest/doctest.h>

#include "sharding/typed_shard_map.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Doubles = std::vector<double>;

const Mesh kFour = Mesh::parse("i=4");
const AxisIndexGroups kUneven = {{0}, {1, 2, 3}}, kPairs = {{0, 1}, {2, 3}};

// A body of one argument, split along i, as is its result; nothing proved.
template <class Body>
auto unchecked(Body body) {
  return shard_map(kFour, {.in_specs = {P{"i"}}, .out_specs = {P{"i"}}, .check_vma = false}, body);
}

TEST_CASE("behaviours 25 and 26: the sum of constant bools counts them") {
  const auto body = [](Tracer& t) { return psum(t.constant(iota({2}, 0, DType::kBool)), "i"); };
  const auto f = shard_map(kFour, {.out_specs = {P()}}, body);
  CHECK(f.count("psum") == 0);
  CHECK(f().dtype() == DType::kI32);
  CHECK(values(f()) == Doubles{0, 4});
}

TEST_CASE("the sum of a constant over groups of several sizes is that of each group") {
  const auto f = unchecked(
      [](Tracer& t, const Value& x) { return x + psum(t.constant(full({}, 2)), "i", kUneven); });
  CHECK(values(f(full({4}, 0))) == Doubles{2, 6, 6, 6});
}

TEST_CASE("which groups may differ in size is known before a device starts") {
  const Array x = iota({4}, 1);
  const auto traced = [&](const LinearCollective& op) {
    const auto f = unchecked([op](Tracer&, const Value& v) { return apply(op, v); });
    return refusal([&] { f.text(x); });
  };
  const auto run = [&](const LinearCollective& op) {
    return values(unchecked([op](Tracer&, const Value& v) { return apply(op, v); })(x));
  };
  for (const LinearCollective& op : std::vector<LinearCollective>{
           Pmean{"i", kUneven}, Pvary{"i", kUneven, true}, AllGather{"i", 0, true, kUneven}}) {
    CHECK(traced(op).find("must be equally sized") != std::string::npos);
  }
  CHECK(run(Psum{"i", kUneven}) == Doubles{1, 9, 9, 9});
  CHECK(run(Pbroadcast{"i", 0, kUneven}) == Doubles{1, 2, 2, 2});
  CHECK(run(PsumTo{"i", 0, kUneven}) == Doubles{1, 9, 0, 0});
  CHECK(traced(Pbroadcast{"i", 1, kUneven}).find("not a member of a group of 1") !=
        std::string::npos);
}

TEST_CASE("groups and options of the collectives on Values are those on arrays") {
  // Two elements a device: 0 1, 2 3, 4 5, 6 7.
  const auto run = [](auto body) {
    return values(unchecked([body](Tracer&, const Value& x) { return body(x); })(iota({8})));
  };
  const PsumScatterOptions scatter = {.tiled = true, .axis_index_groups = kPairs};
  CHECK(run([&](const Value& x) { return psum_scatter(x, "i", scatter); }) ==
        Doubles{2, 4, 10, 12});
  const AllToAllOptions tiled = {.tiled = true, .axis_index_groups = kPairs};
  CHECK(run([&](const Value& x) { return all_to_all(x, "i", 0, 0, tiled); }) ==
        Doubles{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(run([](const Value& x) { return pswapaxes(x, "i", 0, kPairs); }) ==
        Doubles{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(run([](const Value& x) { return pbroadcast(x, "i", 1, kPairs); }) ==
        Doubles{2, 3, 2, 3, 6, 7, 6, 7});
  CHECK(run([](const Value& x) { return pmax(x, "i", kPairs); }) ==
        Doubles{2, 3, 2, 3, 6, 7, 6, 7});
  CHECK(run([](const Value& x) { return pmin(x, "i", kPairs); }) ==
        Doubles{0, 1, 0, 1, 4, 5, 4, 5});
  CHECK(run([](const Value& x) { return pmean(x, "i", kPairs); }) ==
        Doubles{1, 2, 1, 2, 5, 6, 5, 6});
}

TEST_CASE("without an axis a collective is the identity: on arrays, on Values, in the type too") {
  const Array x = iota({4, 1}, 0, DType::kBool);
  const AxisNames nothing;
  const auto check = [&](const auto& op) {
    const auto body = [&](Device& device, const Array& v) { return op(device, v); };
    const Array y = shard_map(kFour, {.in_specs = {P{"i"}}, .out_specs = {P{"i"}}}, body)(x);
    const auto typed = unchecked([op](Tracer&, const Value& v) { return apply(op, v); });
    for (const Array& found : {y, typed(x)}) {
      CHECK(found.dtype() == DType::kBool);
      CHECK(shape_of(found) == std::vector<Index>{4, 1});
      CHECK(values(found) == values(x));
    }
  };
  check(Psum{nothing});
  check(Pmean{nothing});
  check(Pvary{nothing, {}, true});
  check(PsumTo{nothing, 5});
  check(AllGather{nothing, 1, false});
  check(OwnSlice{nothing, 0, false});
  check(PsumScatter{nothing, 0, false});
  check(AllToAll{nothing, 0, 1, false});
  check(Ppermute{nothing, {{0, 1}}});
  check(Pbroadcast{nothing, 5});
  const auto constant = [](Tracer& t) { return psum(t.constant(full({2}, 3)), AxisNames()); };
  CHECK(values(shard_map(kFour, {.out_specs = {P()}}, constant)()) == Doubles{3, 3});
}

}  // namespace
}  // namespace kref
