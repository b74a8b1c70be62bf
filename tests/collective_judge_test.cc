// SPDX-License-Identifier: Apache-2.0
// What the judge says of collectives that went wrong as programs do: never a wrong guess, always
// the right device.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "golden/judge.h"
#include "tests/collective_mutants.h"

namespace kref {
namespace {

struct Count {
  int made = 0, right = 0, named = 0, unknown = 0;
};
using Counts = std::map<std::string, Count>;

void try_mutants(const Output& o, Counts& counts) {
  for (const Mutant& m : mutants(o)) {
    const Array actual = o.array(m.z);
    const Verdict v = judge(o.expected, actual);
    Count& count = counts[m.kind];
    ++count.made;
    if (v.ok()) {
      ++count.right;  // shards may be alike, or hold zeros anyway
      continue;
    }
    ++(v.pattern == "unknown" ? count.unknown : count.named);
    CAPTURE(o.run.origin);
    CAPTURE(m.kind);
    CAPTURE(report(v));
    const bool non_finite = v.pattern == "non-finite" && !std::isfinite(v.worst.actual);
    CHECK((v.pattern == "unknown" || non_finite || m.names.count(v.pattern) > 0));
    CHECK(v.worst.device == o.device(v.worst.element));
    const std::string text = report(v);
    CHECK(std::count(text.begin(), text.end(), '\n') <= 24);
    CHECK(text.find("  device     " + v.worst.device) != std::string::npos);
    // Every shard it lists has something wrong, and they are as many as are wrong.
    std::set<std::string> wrong;
    for (Index i = 0; i < actual.size(); ++i) {
      const double a = actual.at(i), e = o.expected.value[static_cast<std::size_t>(i)];
      if (!(a == e || (a != a && e != e))) wrong.insert(o.device(i));
    }
    CHECK(v.wrong_tiles <= static_cast<Index>(wrong.size()));
    for (const WrongTile& tile : v.first_wrong_tiles) CHECK(wrong.count(tile.device) == 1);
  }
}

void print(const Counts& counts) {
  std::printf("%-22s %5s %9s %6s %8s\n", "mutant", "made", "no change", "named", "unknown");
  for (const auto& [kind, c] : counts) {
    std::printf("%-22s %5d %9d %6d %8d\n", kind.c_str(), c.made, c.right, c.named, c.unknown);
  }
}

TEST_CASE("corrupted runs of jax") {
  Counts counts;
  for (const std::string& path : collective_files()) {
    Run run = read_run(path);
    run.origin = path.substr(path.rfind('/') + 1);
    try_mutants(Output(std::move(run)), counts);
  }
  print(counts);
  CHECK(counts.size() == 9);
}

Array distinct(const std::vector<Index>& shape) {
  Array x(DType::kF32, shape);
  const auto to = x.mutable_elements<float>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 100003) - 50000) / 64.0f;
  }
  return x;
}

Output computed(const char* op, const char* set, const Placed& placed,
                const std::vector<Index>& shape) {
  Run run = collective_run(op, set, placed, distinct(shape));
  run.out = find_operation(op).compute(run);
  return Output(std::move(run));
}

TEST_CASE("larger shards: every fault that has a name is named") {
  Counts counts;
  try_mutants(
      computed("all_gather", R"({"axis_name": "X"})", {"X=2,Y=4", "X,Y", "X,None,Y"}, {16, 64}),
      counts);
  try_mutants(computed("psum_scatter", R"({"axis_name": "X", "tiled": true})",
                       {"X=3,Y=2", "None,Y", "X,Y"}, {27, 18}),
              counts);
  try_mutants(computed("ppermute", R"({"axis_name": "X", "perm": [[0,1],[1,2],[2,3],[3,0]]})",
                       {"X=4,Y=2", "Y,X", "(Y,X)"}, {32, 64}),
              counts);
  print(counts);
  for (const auto& each : counts) {
    const std::string kind = each.first;
    const Count& c = each.second;
    CAPTURE(kind);
    if (kind == "one element off") CHECK(c.named == 0);
    const bool has_name =
        kind != "one element off" && kind != "shard of another" && kind != "shards moved round";
    if (has_name) CHECK(c.unknown == 0);
    CHECK(c.right <= c.made / 10);  // what was gathered is the same on some
  }
}

TEST_CASE("what is said of swapped and missing shards") {
  const Output o = computed("all_to_all",
                            R"({"axis_name": "X", "split_axis": 1, "concat_axis": 0,
                                "tiled": true})",
                            {"X=2,Y=4", "X,Y", "Y,X"}, {16, 64});
  const auto shards = o.shards();
  const std::vector<double> z = o.values();
  std::vector<double> w = z;
  for (std::size_t k = 0; k < shards[1].size(); ++k) {
    w[static_cast<std::size_t>(shards[1][k])] = z[static_cast<std::size_t>(shards[6][k])];
    w[static_cast<std::size_t>(shards[6][k])] = z[static_cast<std::size_t>(shards[1][k])];
  }
  Verdict v = judge(o.expected, o.array(w));
  CHECK(v.pattern == "shard swapped");
  CHECK(v.detail == "shards of (X=1, Y=0) and (X=0, Y=3)");
  CHECK(v.tiles == 8);
  CHECK(v.wrong_tiles == 2);
  CHECK(v.first_wrong_tiles[0].device == "(X=1, Y=0)");
  CHECK(report(v).find("in 2 of 8 shards") != std::string::npos);
  CHECK(report(v).find("wrong shards:\n  (X=1, Y=0)  ") != std::string::npos);
  CHECK(report(v).find("  tile  ") == std::string::npos);

  w = z;
  for (const Index i : shards[5]) w[static_cast<std::size_t>(i)] = 0;
  v = judge(o.expected, o.array(w));
  CHECK(v.pattern + ": " + v.detail == "tile missing: the shard of (X=1, Y=2) holds zeros");
  CHECK(v.worst.device == "(X=1, Y=2)");

  // A replicated output lies on every device.
  const Output sum = computed("psum", R"({"axis_name": "X"})", {"X=4", "X", "None"}, {8, 8});
  w = sum.values();
  w[3] += 100;
  CHECK(judge(sum.expected, sum.array(w)).worst.device == "(X=0..3)");
}

TEST_CASE("swapped shards of a sharded product, which are several tiles each") {
  Run run;
  run.origin = "run";
  run.op = "matmul";
  run.set = {{"tile", {4, 4, 8}}};
  run.mesh = Mesh::parse("X=2,Y=2");
  run.in_specs["x"] = P{"X", none}, run.in_specs["y"] = P{none, "Y"};
  run.out_specs["z"] = {P{"X", "Y"}, {}};
  run.in["x"] = distinct({16, 8}), run.in["y"] = distinct({8, 16});
  const Operation& matmul = find_operation("matmul");
  run.out = matmul.compute(run);
  const Expectation e = matmul.expect(run)[0];
  const Array& z = run.out.at("z");
  Array swapped(DType::kF32, z.shape());
  const auto from = z.elements<float>();
  const auto to = swapped.mutable_elements<float>();
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      const bool moves = i / 8 == j / 8;  // (X=0, Y=0) and (X=1, Y=1)
      to[i * 16 + j] = moves ? from[(i + 8) % 16 * 16 + (j + 8) % 16] : from[i * 16 + j];
    }
  }
  const Verdict v = judge(e, swapped);
  CHECK(v.pattern + ": " + v.detail == "shard swapped: shards of (X=0, Y=0) and (X=1, Y=1)");
  CHECK(v.tiles == 16);
}

}  // namespace
}  // namespace kref
