// SPDX-License-Identifier: Apache-2.0
// Numbers in test names are those of sharding_semantics section 9.
#include "sharding/reshard.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "sharding/reshard_move.h"
#include "tests/placed.h"
#include "tests/refusal.h"

namespace kref {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A small whole number, another one for each element and each term of it.
std::int32_t term(const Indices& element, const Indices& terms) {
  Index out = 1;
  for (const Index i : element) out = (out * 31 + i) % 1009;
  for (const Index i : terms) out = (out * 17 + i) % 1009;
  return static_cast<std::int32_t>(out) + 1;
}

// The index of a device along the axes that are in a set; 0 along others.
Indices along(const std::vector<std::string>& set, const Mesh& mesh, Indices device) {
  for (std::size_t k = 0; k < device.size(); ++k) {
    if (!in_set(set, mesh.axes()[k].name)) device[k] = 0;
  }
  return device;
}

Sharded made(const Mesh& mesh, const Indices& shape, const Placement& placement) {
  std::vector<Array> blocks;
  for (const Indices& device : all_devices(mesh)) {
    Array block(DType::kI32, block_shape(placement, mesh, shape));
    std::size_t i = 0;
    for (const Indices& at : all_indices({block.shape().begin(), block.shape().end()})) {
      block.mutable_elements<std::int32_t>()[i++] =
          term(global_index(placement, mesh, shape, device, at),
               along(placement.unreduced, mesh, device));
    }
    blocks.push_back(std::move(block));
  }
  return Sharded(mesh, shape, placement, std::move(blocks));
}

// The element that `device` has to hold of made(from) after a reshard: nothing where another
// device has it, else the terms along axes that are unreduced no more, added up.
std::int32_t expected(const Mesh& mesh, const Indices& shape, const Placement& from,
                      const Placement& to, const Indices& device, const Indices& element) {
  for (std::size_t k = 0; k < device.size(); ++k) {
    const std::string& axis = mesh.axes()[k].name;
    if (!in_set(to.unreduced, axis) || in_set(from.unreduced, axis)) continue;
    Index owner = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::vector<std::string> axes = entry_of(from, d);
      if (!in_set(axes, axis)) continue;
      // The one index along the axis whose blocks hold the element.
      for (const Indices& other : all_devices(mesh)) {
        const BlockPlace place = place_of(axes, mesh, other);
        if (element[d] / (shape[d] / place.count) == place.number) owner = other[k];
      }
    }
    if (device[k] != owner) return 0;
  }
  std::int32_t sum = 0;
  for (const Indices& other : all_devices(mesh)) {
    bool counts = true;
    for (std::size_t k = 0; k < device.size(); ++k) {
      const std::string& axis = mesh.axes()[k].name;
      const bool summed = in_set(from.unreduced, axis) && !in_set(to.unreduced, axis);
      counts = counts && (summed || other[k] == device[k]);
    }
    if (counts) sum += term(element, along(from.unreduced, mesh, other));
  }
  return sum;
}

// Of `x`, which is made(from) under another placement.
void check_blocks(const Sharded& x, const Placement& from) {
  const Indices shape(x.shape().begin(), x.shape().end());
  Index number = 0;
  bool equal = true;
  for (const Indices& device : all_devices(x.mesh())) {
    const Array& block = x.block(number++);
    std::size_t i = 0;
    for (const Indices& at : all_indices({block.shape().begin(), block.shape().end()})) {
      const Indices element = global_index(x.placement(), x.mesh(), shape, device, at);
      equal = equal && block.elements<std::int32_t>()[i++] ==
                           expected(x.mesh(), shape, from, x.placement(), device, element);
    }
  }
  CHECK(equal);
}

TEST_CASE("an array of rank 2 goes from every placement to every other") {
  const struct {
    const char* mesh;
    Indices shape;
    std::size_t pairs;  // at most, drawn at random where there are more
  } cases[] = {
      {"x=1", {3, 2}, 25},          {"x=2", {4, 2}, 25},       {"x=3", {3, 6}, 25},
      {"x=6", {6, 12}, 25},         {"x=2,y=2", {4, 4}, 1000}, {"x=2,y=3", {6, 12}, 1000},
      {"x=2,y=2,z=2", {8, 8}, 600}, {"x=1,y=2", {2, 4}, 1000},
  };
  std::mt19937 random(20);
  for (const auto& c : cases) {
    const Mesh mesh = Mesh::parse(c.mesh);
    const std::vector<Placement> placements = all_placements(mesh);
    const std::size_t count = placements.size() * placements.size();
    std::vector<std::size_t> pairs(count);
    for (std::size_t i = 0; i < count; ++i) pairs[i] = i;
    if (count > c.pairs) {
      std::shuffle(pairs.begin(), pairs.end(), random);
      pairs.resize(c.pairs);
    }
    for (const std::size_t pair : pairs) {
      const Placement& from = placements[pair / placements.size()];
      const Placement& to = placements[pair % placements.size()];
      CAPTURE(c.mesh);
      CAPTURE(to_string(from));
      CAPTURE(to_string(to));
      CAPTURE(to_string(plan_reshard(from, to, mesh)));
      const Sharded x = made(mesh, c.shape, from);
      const Sharded y = reshard(x, to);
      CHECK(y.placement() == to);
      check_replicas(y);
      check_blocks(y, from);
      // At once, without the plan's steps between.
      check_blocks(Sharded(mesh, c.shape, to, detail::move_blocks(x, to)), from);
    }
  }
}

TEST_CASE("arrays of rank 0 to 6, empty ones, 64 devices") {
  const Mesh mesh = Mesh::parse("x=4,y=2,z=2,w=4");
  const struct {
    Indices shape;
    Placement from, to;
  } cases[] = {
      {{}, P{}, Placement(P{}, {.unreduced = {"x", "w"}})},
      {{}, Placement(P{}, {.unreduced = {"y", "x"}}), P{}},
      {{64}, P{axes("w", "x", "y", "z")}, P{axes("x", "y", "z", "w")}},
      {{4, 2, 4}, P{"x", "y"}, P{none, "y", "x"}},
      {{4, 2, 2, 4}, Placement(P{"w"}, {.unreduced = {"y"}}), P{none, none, "y", "w"}},
      {{2, 4, 2, 1, 4}, P{"y", "x", "z", none, "w"}, P{"z", "w", "y", none, "x"}},
      {{2, 3, 2, 1, 4, 4},
       P{"y", none, none, none, "x"},
       Placement(P{none, none, "y", none, axes("x"), "w"}, {.reduced = {"z"}})},
      {{0, 4}, P{none, "x"}, P{"y", none}},
      {{4, 0, 2}, Placement(P{}, {.unreduced = {"x"}}), P{"x"}},
  };
  for (const auto& c : cases) {
    CAPTURE(to_string(c.from));
    CAPTURE(to_string(c.to));
    const Sharded y = reshard(made(mesh, c.shape, c.from), c.to);
    CHECK(y.placement() == c.to);
    check_blocks(y, c.from);
  }
}

// Terms 0, 1, 2 of one element, on three devices.
template <class T>
T summed(DType dtype, const std::vector<T>& terms, UnreducedKind kind = UnreducedKind::kSum) {
  std::vector<Array> blocks;
  for (const T& value : terms) {
    Array block(dtype, {});
    block.mutable_elements<T>()[0] = value;
    blocks.push_back(std::move(block));
  }
  const Mesh mesh({{"x", static_cast<Index>(terms.size())}});
  const Sharded x(mesh, {}, Placement(P{}, {.unreduced = {"x"}, .kind = kind}), std::move(blocks));
  return unshard(x).elements<T>()[0];
}

TEST_CASE("terms are added in ascending order, 16-bit ones in f32 and rounded once") {
  // 1 + 2^-9 + 2^-9: a bf16 sum would drop both small terms.
  CHECK(static_cast<float>(summed<bf16>(
            DType::kBF16, {bf16(1.0f), bf16(0x1p-8f), bf16(0x1p-8f)})) == 1.0f + 0x1p-7f);
  // The order shows: (2^24 + 1) + 1 = 2^24, (1 + 1) + 2^24 = 2^24 + 2.
  CHECK(summed<float>(DType::kF32, {0x1p24f, 1.0f, 1.0f}) == 0x1p24f);
  CHECK(summed<float>(DType::kF32, {1.0f, 1.0f, 0x1p24f}) == 0x1p24f + 2.0f);
  CHECK(summed<std::int8_t>(DType::kI8, {100, 100, 100}) == 44);  // wraps
  CHECK(summed<bool>(DType::kBool, {false, true, true}) == true);
  CHECK(summed<bool>(DType::kBool, {false, false, false}) == false);
  CHECK(summed<std::int32_t>(DType::kI32, {-5, 3, 2}, UnreducedKind::kMax) == 3);
  CHECK(summed<std::int32_t>(DType::kI32, {-5, 3, 2}, UnreducedKind::kMin) == -5);
  CHECK(summed<bool>(DType::kBool, {true, false, true}, UnreducedKind::kMin) == false);
}

TEST_CASE("a sum over several axes is one sum, also where only one of them is scattered") {
  // Four bf16 terms whose sum by pairs, rounded between, is another number.
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const float terms[] = {1.0f, 0x1p-8f, 0x1p-8f, 0x1p-8f};
  std::vector<Array> blocks;
  for (const float value : terms) {
    Array block(DType::kBF16, Indices{2});
    for (bf16& element : block.mutable_elements<bf16>()) element = bf16(value);
    blocks.push_back(std::move(block));
  }
  const Sharded x(mesh, {2}, Placement(P{}, {.unreduced = {"y", "x"}}), std::move(blocks));
  const Sharded y = reshard(x, P{"x"});
  REQUIRE(plan_reshard(x.placement(), P{"x"}, mesh).size() == 2);
  const float sum = 1.0f + 0x1p-6f;  // 1 + 3 * 2^-8, rounded to even
  for (const Array& block : y.blocks()) {
    CHECK(static_cast<float>(block.elements<bf16>()[0]) == sum);
  }
  CHECK(static_cast<float>(unshard(x).elements<bf16>()[1]) == sum);
}

TEST_CASE("what stays is not copied, what is equal is held once") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  Array global(DType::kF32, Indices{4, 4});
  const Sharded rows = shard(mesh, global, P{"x"});
  const auto* const begin = static_cast<const float*>(global.data());
  for (Index device = 0; device < 4; ++device) {
    CHECK(rows.block(device).data() == begin + 8 * (device / 2));
  }
  const Sharded cut = reshard(rows, P{axes("x", "y")});
  for (Index device = 0; device < 4; ++device)
    CHECK(cut.block(device).data() == begin + 4 * device);
  const Sharded whole = reshard(reshard(rows, P{none, "x"}), P{});
  CHECK(whole.block(0).data() == whole.block(3).data());
  CHECK(reshard(whole, Placement(P{}, {.reduced = {"x"}})).block(2).data() ==
        whole.block(2).data());
}

TEST_CASE("a replica that differs stays its device's own") {
  const Mesh mesh = Mesh::parse("x=2");
  std::vector<Array> blocks;
  for (const std::int32_t value : {7, 8}) {
    Array block(DType::kI32, Indices{2});
    for (auto& element : block.mutable_elements<std::int32_t>()) element = value;
    blocks.push_back(std::move(block));
  }
#ifdef NDEBUG
  const Sharded x(mesh, {2}, P{}, std::move(blocks));
  const Sharded y = reshard(x, P{"x"});
  CHECK(y.block(0).elements<std::int32_t>()[0] == 7);
  CHECK(y.block(1).elements<std::int32_t>()[0] == 8);
  CHECK(has(refusal([&] { unshard(x, true); }), "replicas differ at element [0]"));
#else
  CHECK(has(refusal([&] { Sharded(mesh, {2}, P{}, std::move(blocks)); }), "replicas differ"));
#endif
}

TEST_CASE("reshards that are refused") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const Sharded x = shard(mesh, Array(DType::kF32, Indices{4, 2}), P{"x"});
  const auto to = [&](const Placement& placement) {
    return refusal([&] { reshard(x, placement); });
  };
  for (const UnreducedKind kind : {UnreducedKind::kMax, UnreducedKind::kMin}) {
    for (const char* axis : {"x", "y"}) {
      const std::string message = to(Placement(P{}, {.unreduced = {axis}, .kind = kind}));
      CHECK(has(message, std::string("axis '") + axis + "' cannot become unreduced with kind m"));
    }
  }
  CHECK(has(to(P{none, axes("x", "y")}),
            "reshard of f32[4@x,2]: dimension 1 of size 2 is not divisible by the 4 devices"));
  CHECK(has(to(P{"q"}), "resource axis not found in mesh"));
  CHECK(has(to(P{none, none, "x"}), "which has rank 2"));
  const Placement maximum(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMax});
  CHECK(has(refusal([&] { plan_reshard(maximum, Placement(P{}, {.unreduced = {"x"}}), mesh); }),
            "cannot change the kind of the unreduced axis 'x' from max to sum"));
  CHECK(plan_reshard(maximum, maximum, mesh).empty());
}

}  // namespace
}  // namespace kref
