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

}  // namespace
}  // namespace kref
