// SPDX-License-Identifier: Apache-2.0
// Random collectives on random meshes, specs, groups and types: what the judge expects by index
// arithmetic and what a thread a device computes agree, bit for bit on small integers; and forward
// and reverse are adjoint.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <random>

#include "golden/collective_run.h"
#include "golden/judge.h"
#include "tests/collective_runs.h"
#include "tests/refusal.h"

namespace kref {
namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}

  Index below(Index n) { return static_cast<Index>(engine_() % static_cast<std::uint64_t>(n)); }
  bool coin() { return below(2) == 0; }
  template <class T>
  T among(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<Index>(list.size())));
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[static_cast<std::size_t>(below(static_cast<Index>(i)))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

// Spreads some of the axes over dimensions, in any order.
PartitionSpec random_spec(Draw& draw, const Mesh& mesh, std::size_t rank) {
  PartitionSpec spec;
  spec.entries.resize(rank);
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  draw.shuffle(names);
  for (const std::string& name : names) {
    if (rank == 0 || draw.below(4) == 0) continue;
    spec.entries[static_cast<std::size_t>(draw.below(static_cast<Index>(rank)))].push_back(name);
  }
  return spec;
}

nlohmann::json random_groups(Draw& draw, Index n, bool even) {
  std::vector<Index> indices;
  for (Index i = 0; i < n; ++i) indices.push_back(i);
  draw.shuffle(indices);
  Index size = n;
  while (even && size > 1 && (n % size != 0 || draw.coin())) --size;
  nlohmann::json groups = nlohmann::json::array();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const bool opens = even ? static_cast<Index>(i) % size == 0 : i == 0 || draw.below(3) == 0;
    if (opens) groups.push_back(nlohmann::json::array());
    groups.back().push_back(indices[i]);
  }
  return groups;
}

// A run that may or may not be legal.
Run random_run(Draw& draw, DType dtype) {
  Run run;
  run.origin = "run";
  run.op = draw.among(
      {"all_gather", "psum", "pmean", "pmax", "pmin", "psum_scatter", "all_to_all", "ppermute"});
  run.mesh = Mesh::parse(draw.among({"X=1", "X=2", "X=3", "X=4", "X=6", "X=2,Y=2", "X=2,Y=3",
                                     "X=4,Y=2", "X=2,Y=2,Z=2", "X=1,Y=4"}));
  std::vector<std::string> axes;
  for (const MeshAxis& axis : run.mesh->axes()) {
    if (draw.below(3) > 0) axes.push_back(axis.name);
  }
  if (run.op != std::string("ppermute")) draw.shuffle(axes);
  Index n = 1;
  for (const std::string& axis : axes) n *= run.mesh->size(axis);
  run.set["axis_name"] = axes;
  if (axes.size() == 1 && draw.coin()) run.set["axis_name"] = axes[0];
  const bool any = run.op == "psum" || run.op == "pmax" || run.op == "pmin";
  Index group = n;
  if (run.op != "ppermute" && draw.below(3) == 0) {
    const nlohmann::json groups = random_groups(draw, n, !any);
    group = static_cast<Index>(groups[0].size());
    run.set["axis_index_groups"] = groups;
  }

  const auto rank = static_cast<std::size_t>(1 + draw.below(3));
  run.in_specs["x"] = random_spec(draw, *run.mesh, rank);
  std::vector<Index> shape;
  for (std::size_t d = 0; d < rank; ++d) {
    // Of the block, then of the array.
    const Index local = draw.among<Index>({1, 2, 3, group, group, 2 * group});
    shape.push_back(local * block_count(run.in_specs["x"][d], *run.mesh));
  }
  run.in["x"] = small_integers(dtype, shape, draw.below(50));
  const auto dimension = [&](std::size_t r) {
    const auto d = draw.below(static_cast<Index>(r));
    return draw.coin() ? d : d - static_cast<Index>(r);
  };
  std::size_t out_rank = rank;
  const bool tiled = draw.coin(), moves = !axes.empty();
  if (run.op == "all_gather" || run.op == "psum_scatter" || run.op == "all_to_all") {
    run.set["tiled"] = tiled;
  }
  if (run.op == "all_gather") {
    run.set["axis"] = dimension(tiled ? rank : rank + 1);
    if (!tiled && moves) ++out_rank;
  } else if (run.op == "psum_scatter") {
    run.set["scatter_dimension"] = dimension(rank);
    if (!tiled && moves) --out_rank;
  } else if (run.op == "all_to_all") {
    run.set["split_axis"] = dimension(rank);
    run.set["concat_axis"] = dimension(rank);
  } else if (run.op == "ppermute") {
    nlohmann::json perm = nlohmann::json::array();
    std::vector<Index> to;
    for (Index i = 0; i < n; ++i) to.push_back(i);
    draw.shuffle(to);
    for (Index i = 0; i < n; ++i) {
      if (draw.below(4) > 0)
        perm.push_back({i - (draw.coin() ? n : 0), to[static_cast<std::size_t>(i)]});
    }
    run.set["perm"] = perm;
  }
  run.out_specs["y"] = {random_spec(draw, *run.mesh, out_rank), {}};
  return run;
}

double inner(const Array& a, const Array& b) {
  double sum = 0;
  for (Index i = 0; i < a.size(); ++i) sum += a.at(i) * b.at(i);
  return sum;
}

TEST_CASE("what is expected and what is computed agree") {
  Draw draw(7);
  std::map<std::string, int> runs;
  int refused = 0;
  for (int round = 0; round < 900; ++round) {
    const auto dtype = static_cast<DType>(draw.below(static_cast<Index>(DType::kBool) + 1));
    Run run = random_run(draw, dtype);
    const std::string message = refusal([&] { find_operation(run.op).validate(run, false); });
    if (message != "(not refused)") {
      // A block that the group cannot share out is all that may be wrong.
      const bool shape = message.find("shard") != std::string::npos ||
                         message.find("split_axis") != std::string::npos;
      CAPTURE(message);
      CHECK(shape);
      ++refused;
      continue;
    }
    CAPTURE(run.op);
    CAPTURE(run.set.dump());
    CAPTURE(to_string(*run.mesh));
    CAPTURE(to_string(run.in_specs["x"]));
    CAPTURE(to_string(run.out_specs["y"]));
    CAPTURE(to_string(run.in["x"]));
    const Operation& operation = find_operation(run.op);
    run.out = operation.compute(run);
    operation.validate(run, true);
    const Expectation e = operation.expect(run)[0];
    const Verdict verdict = judge(e, run.out.at("y"));
    CAPTURE(report(verdict));
    CHECK(verdict.ok());
    // Sums of small integers are exact, so the values agree as such; not a mean over 3 or 6.
    const bool narrow = dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
    if (!narrow && run.op != "pmean") CHECK(verdict.worst.ratio <= 0);
    ++runs[run.op];
  }
  std::printf("%d refused;", refused);
  for (const auto& [op, count] : runs) {
    std::printf(" %s %d", op.c_str(), count);
    CHECK(count >= 30);
  }
  std::printf("\n");
}

TEST_CASE("forward and reverse are adjoint") {
  Draw draw(11);
  std::map<std::string, int> runs;
  int undefined = 0;
  for (int round = 0; round < 900; ++round) {
    Run run = random_run(draw, DType::kF32);
    if (run.op == "pmax" || run.op == "pmin") continue;
    const bool refused =
        refusal([&] { find_operation(run.op).validate(run, false); }) != "(not refused)";
    if (refused) continue;
    CAPTURE(run.op);
    CAPTURE(run.set.dump());
    CAPTURE(to_string(*run.mesh));
    CAPTURE(to_string(run.in_specs["x"]));
    CAPTURE(to_string(run.out_specs["y"]));
    const Array x = run.in["x"], y = find_operation(run.op).compute(run).at("y");
    Run vjp = run;
    vjp.op += ".vjp";
    vjp.in["ct.y"] = small_integers(DType::kF32, {y.shape().begin(), y.shape().end()}, 13);
    const Operation& operation = find_operation(vjp.op);
    const std::string message = refusal([&] { operation.validate(vjp, false); });
    if (message != "(not refused)") {
      CAPTURE(message);
      CHECK(message.find("y differs along axis") != std::string::npos);
      ++undefined;
      continue;
    }
    vjp.out = operation.compute(vjp);
    operation.validate(vjp, true);
    const Verdict verdict = judge(operation.expect(vjp)[0], vjp.out.at("ct.x"));
    CAPTURE(report(verdict));
    CHECK(verdict.ok());
    if (run.op != "pmean") {
      CHECK(verdict.worst.ratio <= 0);
      CHECK(inner(y, vjp.in["ct.y"]) == inner(x, vjp.out.at("ct.x")));
    }
    ++runs[run.op];
  }
  std::printf("%d without a gradient;", undefined);
  for (const auto& [op, count] : runs) {
    std::printf(" %s %d", op.c_str(), count);
    CHECK(count >= 20);
  }
  std::printf("\n");
  CHECK(undefined >= 20);
}

}  // namespace
}  // namespace kref
