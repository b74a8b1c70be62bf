// SPDX-License-Identifier: Apache-2.0
// The order, the types and the rounding of the sums of collectives.
#include <doctest/doctest.h>

#include <cmath>

#include "sharding/collective_calls.h"
#include "tests/collective_oracle.h"

namespace kref {
namespace {

// Values whose sum depends on the order of additions and on where it is rounded.
float rough(Index device, Index i) {
  return static_cast<float>(((device * 37 + i * 11) % 101 - 50)) *
         std::ldexp(1.0f, static_cast<int>((device * 5 + i * 3) % 23) - 11) * 1.37f;
}

Array rough_array(Index device, Index count, DType type) {
  Array out(type, std::vector<Index>{count});
  with_dtype(type, [&]<class T>() {
    for (Index i = 0; i < count; ++i) {
      out.mutable_elements<T>()[static_cast<std::size_t>(i)] = static_cast<T>(rough(device, i));
    }
  });
  return out;
}

// The members' terms in the stated order, each rounded to Wire, the sum to Sum at each addition.
template <class T, class Wire, class Sum>
T ordered_sum(Index n, Index i, Index chunk, SumOrder order) {
  Sum sum{};
  for (Index k = 0; k < n; ++k) {
    const Index who = order == SumOrder::kRank ? k : ((chunk - 1 - k) % n + n) % n;
    const auto term = static_cast<Sum>(
        static_cast<float>(static_cast<Wire>(static_cast<float>(static_cast<T>(rough(who, i))))));
    sum = k == 0 ? term : static_cast<Sum>(static_cast<float>(sum) + static_cast<float>(term));
  }
  return static_cast<T>(static_cast<float>(sum));
}

template <class T, class Wire, class Sum>
void check_order(const SumOptions& options, Index count) {
  constexpr Index kMembers = 4;
  const auto results = oracle::run(Mesh::parse("X=4"), [&](Device& d) {
    return psum(d, rough_array(d.index(), count, dtype_of<T>), "X", {{}, options});
  });
  const auto scattered = oracle::run(Mesh::parse("X=4"), [&](Device& d) {
    return psum_scatter(d, rough_array(d.index(), count, dtype_of<T>), "X",
                        {.tiled = true, .sum = options});
  });
  Index wrong = 0, matters = 0;
  for (Index i = 0; i < count; ++i) {
    const Index chunk = i / cdiv(count, kMembers);
    const T expected = ordered_sum<T, Wire, Sum>(kMembers, i, chunk, options.order);
    for (const Array& r : results) {
      wrong += r.at(i) != static_cast<double>(static_cast<float>(expected));
    }
    const auto member = static_cast<std::size_t>(i / (count / kMembers));
    wrong += scattered[member].at(i % (count / kMembers)) !=
             static_cast<double>(static_cast<float>(expected));
    const auto other = options.order == SumOrder::kRank ? SumOrder::kRing : SumOrder::kRank;
    const T otherwise = sizeof(T) < sizeof(Sum)
                            ? ordered_sum<T, Wire, T>(kMembers, i, chunk, options.order)
                            : ordered_sum<T, Wire, Sum>(kMembers, i, chunk, other);
    matters += static_cast<float>(expected) != static_cast<float>(otherwise);
  }
  CHECK(wrong == 0);
  CHECK(matters > 0);  // another order, or rounding after each addition, would have shown
}

TEST_CASE("sums run in ascending rank or in the order of a ring, to the bit") {
  for (const Index count : {400, 40000}) {
    for (const SumOrder order : {SumOrder::kRank, SumOrder::kRing}) {
      check_order<float, float, float>({.order = order}, count);
    }
  }
}

TEST_CASE("16-bit floats are summed in f32 and rounded once; wire and accumulation are options") {
  for (const Index count : {400, 40000}) {
    check_order<bf16, bf16, float>({}, count);
    check_order<f16, f16, float>({.order = SumOrder::kRing}, count);
    check_order<bf16, bf16, bf16>({.accumulate = DType::kBF16}, count);
    check_order<float, bf16, float>({.wire = DType::kBF16}, count);
    check_order<float, f8_e5m2, f16>({.wire = DType::kF8E5M2, .accumulate = DType::kF16}, count);
    check_order<f8_e5m2, f8_e5m2, float>({}, count);
  }
}

TEST_CASE("integers wrap in their own type, means are f32") {
  const Mesh mesh = Mesh::parse("X=3");
  const auto of = [&](DType type, double value, auto collective) {
    return oracle::run(mesh, [&](Device& d) {
      oracle::Local one(oracle::Coordinates{1});
      one.values[0] = value;
      return collective(d, oracle::array_of(one, type));
    });
  };
  const auto sum = [](Device& d, const Array& x) { return psum(d, x, "X"); };
  const auto mean = [](Device& d, const Array& x) { return pmean(d, x, "X"); };
  CHECK(of(DType::kI8, 100, sum)[1].at(0) == 44);  // 300 - 256
  CHECK(of(DType::kU8, 200, sum)[2].at(0) == 88);  // 600 - 512
  CHECK(of(DType::kI32, 2147483647, sum)[0].at(0) == 2147483645);
  CHECK(of(DType::kBool, 1, sum)[0].at(0) == 3);
  CHECK(of(DType::kBool, 1, sum)[0].dtype() == DType::kI32);
  CHECK(of(DType::kI8, 100, mean)[1].at(0) == static_cast<double>(44.0f / 3.0f));
  CHECK(of(DType::kI8, 100, mean)[1].dtype() == DType::kF32);
  CHECK(of(DType::kF64, 1e300, mean)[1].at(0) == 1e300);
  CHECK(of(DType::kBF16, 1, mean)[1].dtype() == DType::kBF16);
  // The s32 sum wraps to 2147483645, which as f32 is 2^31.
  CHECK(of(DType::kI32, 2147483647, mean)[0].at(0) == static_cast<double>(2147483648.0f / 3.0f));
}

}  // namespace
}  // namespace kref
