// SPDX-License-Identifier: Apache-2.0
#include "sharding/partition_spec.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/refusal.h"

namespace kref {
namespace {

using Indices = std::vector<Index>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

PartitionSpec spec_of(std::vector<std::vector<std::string>> entries) {
  PartitionSpec spec;
  spec.entries = std::move(entries);
  return spec;
}

TEST_CASE("specs are equal when they shard every array alike") {
  CHECK(P{"X", none} == P{"X"});
  CHECK(P{none, none} == P{});
  CHECK(P{""} == P{});
  CHECK(spec_of({{}, {""}}) == P{});
  CHECK(P{axes("X")} == P{"X"});
  CHECK_FALSE(P{axes("X", "Y")} == P{axes("Y", "X")});
  CHECK_FALSE(P{axes("X", "Y")} == P{"X", "Y"});
  CHECK_FALSE(P{none, "X"} == P{"X"});
  CHECK(P{none, axes("X", "Y")}.names("Y"));
  CHECK_FALSE(P{none, axes("X", "Y")}.names("Z"));
}

TEST_CASE("both spellings of the command line are read") {
  const P whole{"X", none, axes("Y", "Z")};
  for (const char* text :
       {"X,None,(Y,Z)", "P('X', None, ('Y', 'Z'))", "P(\"X\",None,[\"Y\",\"Z\"],)",
        "PartitionSpec('X', None, ('Y', 'Z',))", " X , None , ( Y , Z ) ", "'X','',['Y','Z']"}) {
    CAPTURE(text);
    CHECK(PartitionSpec::parse(text) == whole);
  }
  CHECK(PartitionSpec::parse("").entries.empty());
  CHECK(PartitionSpec::parse("P()").entries.empty());
  CHECK(PartitionSpec::parse("None,None").entries.size() == 2);  // counts against the rank
  CHECK(PartitionSpec::parse("P,Px") == P{"P", "Px"});           // axes of these names
  CHECK(PartitionSpec::parse("()") == P{});
  CHECK(PartitionSpec::parse("(X,)") == P{"X"});

  const OutSpec partial = OutSpec::parse("P('X', None, unreduced={'Y', \"Z\"})");
  CHECK(partial == OutSpec{P{"X"}, {"Y", "Z"}});
  CHECK(OutSpec::parse("P(unreduced=Y)") == OutSpec{P{}, {"Y"}});
  CHECK(OutSpec::parse("unreduced,X") == OutSpec{P{"unreduced", "X"}, {}});
  CHECK(OutSpec::parse("X,None") == OutSpec{P{"X"}, {}});
}

TEST_CASE("what is printed is read back") {
  CHECK(to_string(P{"X", none, axes("Y", "Z")}) == "P('X', None, ('Y', 'Z'))");
  CHECK(to_string(P{axes("X"), ""}) == "P('X', None)");
  CHECK(to_string(P{}) == "P()");
  CHECK(to_string(OutSpec{P{"X", none}, {"Y"}}) == "P('X', None, unreduced={'Y'})");
  CHECK(to_string(OutSpec{P{}, {"X", "Y"}}) == "P(unreduced={'X', 'Y'})");
  for (const char* text : {"P()", "P('X', None, ('Y', 'Z'))", "P('X', unreduced={'Y', 'Z'})"}) {
    CHECK(to_string(OutSpec::parse(text)) == text);
  }
}

TEST_CASE("a wrong spelling is refused and says where") {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"X,", "found the end where None, an axis name or a tuple"},
      {",X", "found ',' at character 1"},
      {"X Y", "found 'Y' at character 3 where the end was expected"},
      {"(X,Y", "found the end where ',' or the end of the tuple was expected"},
      {"P('X'", "found the end where ',' or ')' was expected"},
      {"P('X' 'Y')", "found ''' at character 7 where ',' or ')'"},
      {"P('X'))", "found ')' at character 7 where the end was expected"},
      {"('X',('Y',))", "a tuple inside a tuple"},
      {"('X',None)", "None inside a tuple"},
      {"(X]", "found ']' at character 3"},
      {"'X", "a quote is not closed"},
      {"'X Y'", "'X Y' is not an axis name"},
      {"3", "found '3' at character 1"},
      {"P('X', unreduced={'Y'})", "at character 17"},  // not where an OutSpec is meant
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const std::string message = refusal([&] { PartitionSpec::parse(c.text); });
    CAPTURE(message);
    CHECK(has(message, "partition spec '"));
    CHECK(has(message, c.message));
  }
  CHECK(has(refusal([] { OutSpec::parse("P(unreduced={})"); }), "names no axis"));
  CHECK(has(refusal([] { OutSpec::parse("P(unreduced={'X'}, 'Y')"); }), "follows unreduced="));
}

TEST_CASE("a spec that does not fit its array is refused") {
  const Mesh mesh = Mesh::parse("X=4,Y=2");
  const auto message = [&](const PartitionSpec& spec, Indices shape) {
    return refusal([&] { check_spec(spec, shape, mesh, "in_specs.x"); });
  };
  CHECK(message(P{"Q"}, {4}) ==
        "in_specs.x: spec P('Q') names axis 'Q' in dimension 0, which is not in the mesh X=4,Y=2 "
        "(resource axis not found in mesh)");
  CHECK(has(message(P{"X", "X"}, {4, 4}), "names axis 'X' in dimensions 0 and 1"));
  CHECK(has(message(P{axes("Y", "Y")}, {4}), "names axis 'Y' in dimension 0 twice"));
  CHECK(has(message(P{"X", "Y"}, {4}),
            "P('X', 'Y'), which has length 2, does not fit the array [4], which has rank 1"));
  CHECK(has(message(P{none, none}, {4}), "which has length 2"));
  CHECK(has(message(P{"X"}, {}), "a scalar takes P()"));
  CHECK(has(message(spec_of({{"X", ""}}), {4}), "names axis ''"));
  CHECK(message(P{}, {}) == "(not refused)");
  CHECK(message(P{axes("Y", "X"), none}, {8, 3}) == "(not refused)");
  CHECK(message(P{"X"}, {0}) == "(not refused)");  // no element, in four empty blocks

  // L058: 2 over 4, 5 over 4, 1 over 8; L142: a leading 1 over 8. Nothing is padded.
  CHECK(has(message(P{"X"}, {2}),
            "in_specs.x: dimension 0 of size 2 is not divisible by the 4 "
            "devices of axis X"));
  CHECK(has(message(P{"X"}, {5}), "size 5 is not divisible by the 4 devices of axis X"));
  CHECK(has(message(P{axes("X", "Y")}, {1}),
            "size 1 is not divisible by the 8 devices of axis (X,Y)"));
  CHECK(has(message(P{axes("X", "Y")}, {1, 2560, 32, 128}),
            "dimension 0 of size 1 is not divisible by the 8 devices of axis (X,Y) (array "
            "[1,2560,32,128]"));

  const auto partial = [&](const OutSpec& spec) {
    const Indices shape{8, 8};
    return refusal([&] { check_spec(spec, shape, mesh, "out_specs.z"); });
  };
  CHECK(partial({P{"X"}, {"Y"}}) == "(not refused)");
  CHECK(has(partial({P{"X"}, {"Q"}}), "unreduced axis 'Q', which is not in the mesh"));
  CHECK(has(partial({P{"X"}, {"Y", "Y"}}), "unreduced axis 'Y' twice"));
  CHECK(has(partial({P{none, "Y"}, {"Y"}}), "'Y' both unreduced and splitting a dimension"));
}

TEST_CASE("the axes of a dimension are taken first major") {
  // sharding_semantics 1.5: rows 12..13 of 16 under (x,y), rows 10..11 under (y,x).
  const Mesh mesh = Mesh::parse("x=2,y=4");
  const Indices shape{16};
  const Index device = mesh.device(Indices{1, 2});
  CHECK(block_index(P{axes("x", "y")}[0], mesh, device) == 6);
  CHECK(block_index(P{axes("y", "x")}[0], mesh, device) == 5);
  CHECK(owners({P{axes("x", "y")}, {}}, shape, mesh, Indices{12}) == Indices{device});
  CHECK(owners({P{axes("y", "x")}, {}}, shape, mesh, Indices{11}) == Indices{device});

  // L112: device (i,j) of 2 x 3 holds element 3 i + j, or 2 j + i.
  const Mesh small = Mesh::parse("x=2,y=3");
  for (Index i = 0; i < 2; ++i) {
    for (Index j = 0; j < 3; ++j) {
      const Index d = small.device(Indices{i, j});
      const Indices six{6};
      CHECK(owners({P{axes("x", "y")}, {}}, six, small, Indices{3 * i + j}) == Indices{d});
      CHECK(owners({P{axes("y", "x")}, {}}, six, small, Indices{2 * j + i}) == Indices{d});
    }
  }
}

TEST_CASE("local shapes and replicas") {
  // int8[128,2048] over (X=2,Y=8), Z=2 replicas: 16,384 bytes a device, 2 copies in all.
  const Mesh mesh = Mesh::parse("X=2,Y=8,Z=2");
  const Indices shape{128, 2048};
  const P spec{axes("X", "Y")};
  CHECK(local_shape(spec, shape, mesh) == Indices{8, 2048});
  CHECK(block_count(spec[0], mesh) == 16);
  const Indices at{17, 3};  // row 17 is in block 2 = (X=0, Y=2)
  CHECK(owners({spec, {}}, shape, mesh, at) == Indices{4, 5});
  CHECK(owner_name({spec, {}}, shape, mesh, at) == "(X=0, Y=2, Z=0..1)");
  CHECK(owner_name({P{"Z", axes("Y", "X")}, {}}, shape, mesh, Indices{64, 2047}) ==
        "(X=1, Y=7, Z=1)");
  CHECK(owner_name({P{}, {}}, shape, Mesh::parse("X=1,Y=3"), at) == "(X=0, Y=0..2)");
}

TEST_CASE("unreduced axes lead, one partial sum a device") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const OutSpec out{P{"X"}, {"Y"}};
  const Indices shape{8, 12};
  const Indices stacked = stacked_shape(out, shape, mesh);
  CHECK(stacked == Indices{4, 8, 12});
  CHECK(owners(out, stacked, mesh, Indices{2, 5, 0}) == Indices{mesh.device(Indices{1, 2})});
  CHECK(owner_name(out, stacked, mesh, Indices{2, 5, 0}) == "(X=1, Y=2)");
  // In the order of the list, not of the mesh.
  CHECK(stacked_shape({P{}, {"Y", "X"}}, shape, mesh) == Indices{4, 2, 8, 12});
  CHECK(owner_name({P{}, {"Y", "X"}}, Indices{4, 2, 8, 12}, mesh, Indices{3, 1, 0, 0}) ==
        "(X=1, Y=3)");
}

TEST_CASE("types are printed as JAX prints them") {
  const Mesh mesh = Mesh::parse("x=2,X=2,Y=2,Z=2");
  const Indices shape{8, 4};
  CHECK(type_string(DType::kF32, shape, {P{"X", axes("Y", "Z")}, {}}, mesh) == "f32[8@X,4@(Y,Z)]");
  CHECK(type_string(DType::kF32, shape, {P{"X"}, {"x"}}, mesh) == "f32[8@X,4]{U:x}");
  CHECK(type_string(DType::kI8, shape, {P{}, {"Y", "X"}}, mesh) == "i8[8,4]{U:(X,Y)}");
  CHECK(type_string(DType::kBF16, Indices{}, {}, mesh) == "bf16[]");
}

// A spec for `shape` that hands the mesh axes to random dimensions, in random order.
PartitionSpec random_spec(std::mt19937& random, const Mesh& mesh, const Indices& shape) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  std::shuffle(names.begin(), names.end(), random);
  PartitionSpec spec;
  spec.entries.resize(shape.size());
  for (const std::string& name : names) {
    const std::size_t d = random() % (shape.size() + 1);
    if (d < shape.size()) spec.entries[d].push_back(name);
  }
  return spec;
}

TEST_CASE("every element is held by just the devices whose blocks contain it") {
  std::mt19937 random(1);
  const Mesh mesh = Mesh::parse("X=2,Y=3,Z=2");
  for (int trial = 0; trial < 40; ++trial) {
    const Indices shape{12, 24};
    const PartitionSpec spec = random_spec(random, mesh, shape);
    CAPTURE(to_string(spec));
    check_spec(spec, shape, mesh, "x");
    const Indices local = local_shape(spec, shape, mesh);
    for (Index i = 0; i < shape[0]; ++i) {
      for (Index j = 0; j < shape[1]; ++j) {
        // By the definition: walk every device and compute which block is its own.
        Indices holders;
        for (Index device = 0; device < mesh.device_count(); ++device) {
          const Indices c = mesh.coordinates(device);
          const Indices at{i, j};
          bool holds = true;
          for (std::size_t d = 0; d < 2; ++d) {
            Index block = 0;
            for (const std::string& axis : spec.entries[d]) {
              block = block * mesh.size(axis) + c[mesh.index(axis)];
            }
            holds = holds && block * local[d] <= at[d] && at[d] < (block + 1) * local[d];
          }
          if (holds) holders.push_back(device);
        }
        const Indices found = owners({spec, {}}, shape, mesh, Indices{i, j});
        if (found != holders) {
          CAPTURE(i);
          CAPTURE(j);
          CHECK(found == holders);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kref
