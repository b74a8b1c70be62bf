// SPDX-License-Identifier: Apache-2.0
// Numbers in test names are those of sharding_semantics section 9.
#include "sharding/sharded.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/placed.h"
#include "tests/refusal.h"

namespace kref {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every byte of every element another one, as far as there are; bools 0 and 1.
Array numbered(DType dtype, const Indices& shape) {
  Array out(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(out.mutable_data());
  for (std::size_t i = 0; i < out.bytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(dtype == DType::kBool ? i % 3 == 0 : i * 7 + i / 251);
  }
  return out;
}

Array values(const Indices& shape, const std::vector<std::int32_t>& elements) {
  Array out(DType::kI32, shape);
  std::copy(elements.begin(), elements.end(), out.mutable_elements<std::int32_t>().begin());
  return out;
}
Array counted(const Indices& shape) {
  Array out(DType::kI32, shape);
  std::int32_t next = 0;
  for (auto& element : out.mutable_elements<std::int32_t>()) element = next++;
  return out;
}
std::vector<std::int32_t> elements(const Array& array) {
  const auto all = array.elements<std::int32_t>();
  return {all.begin(), all.end()};
}

bool same_bytes(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

// The flattened number of an element.
std::size_t flat(const Indices& at, const Indices& shape) {
  Index out = 0;
  for (std::size_t d = 0; d < at.size(); ++d) out = out * shape[d] + at[d];
  return static_cast<std::size_t>(out);
}

// Each device holds the elements that its coordinates say.
bool blocks_are_right(const Sharded& x, const Array& global) {
  const Indices shape(global.shape().begin(), global.shape().end());
  const std::size_t bytes = size_of(global.dtype());
  const auto* whole = static_cast<const char*>(global.data());
  Index number = 0;
  for (const Indices& device : all_devices(x.mesh())) {
    const Array& block = x.block(number++);
    const auto* part = static_cast<const char*>(block.data());
    const Indices local(block.shape().begin(), block.shape().end());
    if (local != block_shape(x.placement(), x.mesh(), shape)) return false;
    for (const Indices& at : all_indices(local)) {
      const Indices element = global_index(x.placement(), x.mesh(), shape, device, at);
      if (std::memcmp(part, whole + flat(element, shape) * bytes, bytes) != 0) return false;
      part += bytes;
    }
  }
  return true;
}

TEST_CASE("1 and 2: shard cuts as the spec says, first name major, and unshard puts together") {
  const struct {
    const char* mesh;
    Indices shape;
    P spec;
  } cases[] = {
      {"x=2,y=2,z=2", {8, 8}, P{"z", axes("x", "y")}},
      {"x=2,y=2,z=2", {8, 8}, P{axes("y", "z"), "x"}},
      {"x=2,y=2,z=2", {8, 3}, P{axes("z", "y", "x")}},
      {"x=2,y=3", {5, 12}, P{none, axes("y", "x")}},
      {"x=3", {6}, P{"x"}},
      {"x=6", {2, 6, 2}, P{none, "x"}},
      {"x=1", {3, 2}, P{"x"}},
      {"x=8,y=8", {8, 2, 8}, P{"y", none, "x"}},
      {"x=4,y=2", {4, 2, 1, 3, 2, 2}, P{"x", none, none, none, none, "y"}},
      {"x=2", {}, P{}},
      {"x=2,y=2", {0, 4}, P{"x", "y"}},
      {"x=2,y=2", {4, 0, 2}, P{axes("x", "y")}},
  };
  for (const auto& c : cases) {
    CAPTURE(to_string(c.spec));
    CAPTURE(std::string(c.mesh));
    const Mesh mesh = Mesh::parse(c.mesh);
    const Array global = numbered(DType::kI32, c.shape);
    const Sharded x = shard(mesh, global, c.spec);
    CHECK(blocks_are_right(x, global));
    CHECK(same_bytes(unshard(x, true), global));
    CHECK(same_bytes(unshard_terms(x), global));
  }
  const Sharded x =
      shard(Mesh::parse("x=2,y=2,z=2"), numbered(DType::kI8, {8, 8}), P{"z", axes("x", "y")});
  CHECK(x.type() == "i8[8@z,8@(x,y)]");
  CHECK(x.block(0).extent(0) == 4);
  CHECK(x.block(0).extent(1) == 2);
}

TEST_CASE("every element type travels bit for bit") {
  const Mesh mesh = Mesh::parse("x=2,y=3");
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2,
        DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU32, DType::kU8, DType::kBool}) {
    CAPTURE(name_of(dtype));
    const Array global = numbered(dtype, {4, 6});
    const Sharded x = shard(mesh, global, P{"x", "y"});
    CHECK(blocks_are_right(x, global));
    CHECK(same_bytes(unshard(x), global));
  }
}

TEST_CASE("6: blocks that are there already are put together") {
  const Mesh mesh = Mesh::parse("i=4,j=2");
  std::vector<Array> blocks;
  for (std::int32_t d = 0; d < 8; ++d) blocks.push_back(values({1, 1}, {d}));
  CHECK(elements(unshard(Sharded(mesh, {4, 2}, P{"i", "j"}, blocks))) ==
        std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(elements(unshard(Sharded(mesh, {2, 4}, P{"j", "i"}, blocks))) ==
        std::vector<std::int32_t>{0, 2, 4, 6, 1, 3, 5, 7});
}

TEST_CASE("replicas that are not equal bit for bit are found, with device, element and values") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const auto made = [&](float a, float b) {
    std::vector<Array> blocks;
    for (int d = 0; d < 4; ++d) {
      Array block(DType::kF32, Indices{2, 3});
      for (float& element : block.mutable_elements<float>()) element = 1.5f;
      block.mutable_elements<float>()[4] = d == 3 ? b : a;
      blocks.push_back(std::move(block));
    }
    return blocks;
  };
  const auto message = [&](float a, float b, const Placement& placement) {
    return refusal([&] {
      const Index rows = placement.spec.names("x") ? 4 : 2;
      check_replicas(Sharded(mesh, {rows, 3}, placement, made(a, b), "w"), "w");
    });
  };
  CHECK(message(2.5f, 2.5f, P{}) == "(not refused)");
  CHECK(message(2.5f, 3.5f, P{"x"}) ==
        "w f32[4@x,3]: replicas differ at element [3,1]: device (x=1, y=0) has 2.5 (bits "
        "0x40200000), device (x=1, y=1) has 3.5 (bits 0x40600000)");
  CHECK(has(message(0.0f, -0.0f, P{}),
            "device (x=0, y=0) has 0 (bits 0x00000000), device (x=1, "
            "y=1) has -0 (bits 0x80000000)"));
  CHECK(has(message(1, 2, Placement(P{}, {.reduced = {"x", "y"}})), "replicas differ"));
  // Terms are no replicas.
  CHECK(message(1, 2, Placement(P{"x"}, {.unreduced = {"y"}})) == "(not refused)");
}

TEST_CASE("60: relabelling moves nothing") {
  const Mesh mesh = Mesh::parse("x=2");
  const Sharded v = shard(mesh, counted({4}), P{"x"});
  const Sharded u = relabel(v, Placement(P{}, {.unreduced = {"x"}}));
  CHECK(u.type() == "i32[2]{U:x}");
  CHECK(elements(u.block(0)) == std::vector<std::int32_t>{0, 1});
  CHECK(elements(u.block(1)) == std::vector<std::int32_t>{2, 3});
  CHECK(u.block(1).data() == v.block(1).data());
  CHECK(elements(unshard(u)) == std::vector<std::int32_t>{2, 4});
  const Sharded back = relabel(u, P{"x"});
  CHECK(back.type() == "i32[4@x]");
  CHECK(elements(unshard(back)) == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(has(refusal([&] { relabel(v, P{"q"}); }), "resource axis not found in mesh"));
  CHECK(has(refusal([&] { relabel(v, P{none, "x"}); }), "which has rank 1"));
  const Sharded w = shard(mesh, counted({2, 2}), P());
  CHECK(has(refusal([&] {
              relabel(w, P{none, none, "x"});
            }),
            "which has length 3: a device holds"));
  CHECK(has(refusal([&] { relabel(w, P{none, none, "x"}); }), "I32[2,2], which has rank 2"));
}

TEST_CASE("terms have leading dimensions outside, in the order of the placement") {
  const Mesh mesh = Mesh::parse("x=2,y=2,z=2");
  const Array stacked = counted({2, 2, 4});  // z, x, then the array
  const Sharded x = shard_terms(mesh, stacked, Placement(P{"y"}, {.unreduced = {"z", "x"}}), "t");
  CHECK(x.type() == "i32[4@y]{U:(x,z)}");
  for (Index d = 0; d < 8; ++d) {
    const std::int32_t i = static_cast<std::int32_t>(d / 4),
                       j = static_cast<std::int32_t>(d / 2 % 2),
                       k = static_cast<std::int32_t>(d % 2), first = 8 * k + 4 * i + 2 * j;
    CHECK(elements(x.block(d)) == std::vector<std::int32_t>{first, first + 1});
  }
  CHECK(same_bytes(unshard_terms(x), stacked));
  CHECK(elements(unshard(x)) == std::vector<std::int32_t>{24, 28, 32, 36});
  const auto refused = [&](const Array& array, const Placement& placement) {
    return refusal([&] { shard_terms(mesh, array, placement, "t"); });
  };
  CHECK(has(refused(counted({3, 4}), Placement(P{}, {.unreduced = {"x"}})),
            "t: I32[3,4], expected [2,4]: leading dimensions for the unreduced axes {x}"));
  CHECK(has(refused(values({}, {1}), Placement(P{}, {.unreduced = {"x"}})),
            "has no leading dimension for each of the unreduced axes {x}"));
}

TEST_CASE("what cannot be put on a mesh is refused") {
  const Mesh mesh = Mesh::parse("x=4");
  const auto message = [&](const Array& global, const Placement& placement) {
    return refusal([&] { shard(mesh, global, placement, "w"); });
  };
  // L058: 2 over 4, 5 over 4: nothing is padded.
  CHECK(has(message(counted({2}), P{"x"}), "w: dimension 0 of size 2 is not divisible by the 4"));
  CHECK(has(message(counted({5}), P{"x"}), "5 is not divisible by the 4 devices of axis x"));
  CHECK(
      has(message(counted({4}), Placement(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMax})),
          "cannot become unreduced with kind max"));
  CHECK(has(message(counted({}), P{"x"}), "a scalar takes P()"));
  CHECK(has(refusal([] { shard(Mesh::parse("x=2000"), counted({2000}), P{"x"}); }),
            "expected at most 1024"));
  const std::vector<Array> three(3, counted({1}));
  CHECK(has(refusal([&] { Sharded(mesh, {4}, P{"x"}, three, "w"); }),
            "w: 3 blocks for the 4 devices of mesh x=4"));
  std::vector<Array> four(4, counted({1}));
  four[2] = counted({2});
  CHECK(has(refusal([&] { Sharded(mesh, {4}, P{"x"}, four, "w"); }),
            "w: device (x=2) holds I32[2], expected I32[1], a block of i32[4@x]"));
  four[2] = Array(DType::kF32, Indices{1});
  CHECK(has(refusal([&] { Sharded(mesh, {4}, P{"x"}, four, "w"); }), "device (x=2) holds F32[1]"));
}

}  // namespace
}  // namespace kref
