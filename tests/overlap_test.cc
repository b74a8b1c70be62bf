// SPDX-License-Identifier: Apache-2.0
#include "dsl/overlap.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "tests/refusal.h"

namespace kref {
namespace {

// The bytes of a view's elements, one by one.
std::set<std::uintptr_t> bytes_of(const ArrayRef& view) {
  std::set<std::uintptr_t> out;
  const auto element = static_cast<Index>(size_of(view.dtype));
  for (Index i = 0; i < view.size(); ++i) {
    Index rest = i, offset = 0;
    for (std::size_t d = view.rank; d-- > 0;) {
      offset += rest % view.extents[d] * view.strides[d];
      rest /= view.extents[d];
    }
    for (Index byte = 0; byte < element; ++byte) {
      out.insert(reinterpret_cast<std::uintptr_t>(view.data) +
                 static_cast<std::uintptr_t>(offset * element + byte));
    }
  }
  return out;
}

bool meet(const std::set<std::uintptr_t>& a, const std::set<std::uintptr_t>& b) {
  for (const std::uintptr_t byte : a) {
    if (b.contains(byte)) return true;
  }
  return false;
}

TEST_CASE("overlap agrees with going through the bytes: ranks, strides, types and offsets") {
  std::mt19937 random(3);
  const auto pick = [&](Index low, Index high) {
    return low + static_cast<Index>(random() % static_cast<unsigned>(high - low + 1));
  };
  static char memory[8192];
  const auto view = [&] {
    constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kI8};
    ArrayRef v;
    v.dtype = kTypes[pick(0, 3)];
    v.rank = static_cast<std::size_t>(pick(0, 3));
    for (std::size_t d = 0; d < v.rank; ++d) {
      v.extents[d] = pick(pick(0, 9) == 0 ? 0 : 1, 5);
      v.strides[d] = pick(-9, 9);
    }
    v.data = memory + 4096 + pick(-40, 40) * static_cast<Index>(size_of(v.dtype));
    return v;
  };
  int shared = 0, apart_within = 0;
  for (int round = 0; round < 20000; ++round) {
    const ArrayRef a = view(), b = view();
    const auto bytes_a = bytes_of(a), bytes_b = bytes_of(b);
    const bool expected = meet(bytes_a, bytes_b);
    CAPTURE(round);
    REQUIRE(overlap(a, b) == expected);
    REQUIRE(overlap(b, a) == expected);
    shared += expected ? 1 : 0;
    // The interesting ones: the spans cross and the elements do not.
    if (!expected && !bytes_a.empty() && !bytes_b.empty()) {
      apart_within += *bytes_a.begin() < *bytes_b.rbegin() && *bytes_b.begin() < *bytes_a.rbegin();
    }
  }
  CHECK(shared > 2000);
  CHECK(apart_within > 1000);
}

TEST_CASE("overlap of large views is quick and exact") {
  static float origin[8];
  const auto view = [](Index offset, Shape<2> extents, Shape<2> strides) {
    ArrayRef v;
    v.dtype = DType::kF32;
    v.rank = 2;
    v.extents = {extents[0], extents[1]};
    v.strides = {strides[0], strides[1]};
    v.data = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(origin) +
                                           static_cast<std::uintptr_t>(4 * offset));
    return v;
  };
  constexpr Index kRows = Index{1} << 40;
  // Left and right halves of the rows of one matrix; one column too many.
  CHECK_FALSE(overlap(view(0, {kRows, 512}, {1024, 1}), view(512, {kRows, 512}, {1024, 1})));
  CHECK(overlap(view(0, {kRows, 513}, {1024, 1}), view(512, {kRows, 512}, {1024, 1})));
  // Different strides: multiples of 6 and of 10, from 0 and from 1; from 0 and from 4 (24 = 4 +
  // 20).
  CHECK_FALSE(overlap(view(0, {kRows, 1}, {6, 1}), view(1, {kRows, 1}, {10, 1})));
  CHECK(overlap(view(0, {kRows, 1}, {6, 1}), view(4, {kRows, 1}, {10, 1})));
  CHECK_FALSE(overlap(view(0, {3, 1}, {6, 1}), view(4, {kRows, 1}, {10, 1})));
}

TEST_CASE("strides that reach too far are refused by name") {
  ArrayRef v(DType::kF32, std::array<Index, 2>{3, 4}, nullptr);
  v.strides[0] = Index{1} << 58;
  CHECK(
      refusal([&] { (void)overlap(v, v); }) ==
      "overlap: dimension 0 of F32[3,4] has stride 288230376151711744, which reaches further than "
      "2^60 bytes");
  v.strides[0] = -(Index{1} << 62);
  CHECK(refusal([&] { (void)overlap(v, v); }).find("dimension 0") != std::string::npos);
}

}  // namespace
}  // namespace kref
