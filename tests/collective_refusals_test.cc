// SPDX-License-Identifier: Apache-2.0
// Runs of collectives that are refused: every rule of runs.md and of sharding_semantics 2.5, by
// name, before anything runs.
#include <doctest/doctest.h>

#include "tests/collective_runs.h"
#include "tests/refusal.h"

namespace kref {
namespace {

// The message with which a run without outputs is refused.
std::string refused(const Run& run) {
  return refusal([&] { find_operation(run.op).validate(run, false); });
}

std::string refused(const char* op, const char* set, const Placed& placed = {},
                    const std::vector<Index>& shape = {8, 4}) {
  return refused(collective_run(op, set, placed, small_integers(DType::kF32, shape)));
}

void has(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("shared refusals") {
  const std::vector<std::string> paths = collective_files("refuse");
  CHECK(paths.size() == 8);
  for (const std::string& path : paths) {
    CAPTURE(path);
    const Run run = read_run(path);
    CHECK(refusal([&] { find_operation(run.op).validate(run, true); }) != "(not refused)");
  }
}

TEST_CASE("axes") {
  has(refused("psum", "{}"), "run: psum: option axis_name is missing");
  has(refused("psum", R"({"axis_name": 3})"), "option axis_name is 3, expected the name of a mesh");
  has(refused("psum", R"({"axis_name": ["X", null]})"),
      "expected the name of a mesh axis, or a list");
  has(refused("psum", R"({"axis_name": "Z"})"), "psum: unbound axis name 'Z', the mesh has X=4");
  has(refused("psum", R"({"axis_name": ["X", "X"]})"), "axis 'X' is named twice");
  has(refused("ppermute", R"({"axis_name": ["Y", "X"], "perm": []})", {"X=2,Y=2", "X", "X"}),
      "axis_name is (Y,X), expected the axes in the order of the mesh, X=2,Y=2");
  Run no_mesh = collective_run("psum", R"({"axis_name": "X"})", {"X=4", "None", "None"},
                               small_integers(DType::kF32, {4}));
  no_mesh.mesh.reset();
  has(refused(no_mesh), "unbound axis name 'X', the mesh has no axes");
  no_mesh.set["axis_name"] = nlohmann::json::array();
  CHECK(refused(no_mesh) == "(not refused)");
}

TEST_CASE("groups") {
  const auto groups = [](const char* op, const std::string& list) {
    return refused(op, (R"({"axis_name": "X", "axis_index_groups": )" + list + "}").c_str());
  };
  has(groups("psum", "[[0, 1], [2]]"), "must cover all indices exactly once");
  has(groups("psum", "[[0, 1], [1, 2, 3]]"), "index 1 appears twice");
  has(groups("psum", "[[0, 1], [2, 4]]"), "there is no index 4");
  has(groups("psum", "[[0, 1, 2, 3], []]"), "group 1 is empty");
  has(groups("psum", "[]"), "expected a list of lists of indices");
  has(groups("psum", "[0, 1, 2, 3]"), "expected a list of lists of indices");
  has(groups("psum", "[[0, 1], [2, 3.5]]"), "expected a list of lists of indices");
  has(groups("psum", "[[0, 1, 2, 18446744073709551615]]"), "expected a list of lists of indices");
  CHECK(groups("psum", "[[2], [3, 0, 1]]") == "(not refused)");
  CHECK(groups("pmax", "[[2], [3, 0, 1]]") == "(not refused)");
  CHECK(groups("psum", "null") == "(not refused)");
  for (const char* op : {"pmean", "all_gather", "psum_scatter"}) {
    CAPTURE(op);
    has(groups(op, "[[2], [3, 0, 1]]"), "must be equally sized");
  }
  has(refused("all_to_all", R"({"axis_name": "X", "split_axis": 0, "concat_axis": 0,
              "axis_index_groups": [[2], [3, 0, 1]]})"),
      "must be equally sized");
  has(refused("ppermute", R"({"axis_name": "X", "perm": [], "axis_index_groups": [[0, 1, 2, 3]]})"),
      "unknown option 'axis_index_groups'");
}

TEST_CASE("dimensions and shapes") {
  has(refused("all_gather", R"({"axis_name": "X", "axis": 3})"),
      "run: all_gather: axis=3 is not a dimension, expected at least -3 and less than 3");
  CHECK(refused("all_gather", R"({"axis_name": "X", "axis": -3})") == "(not refused)");
  has(refused("all_gather", R"({"axis_name": "X", "axis": 2, "tiled": true})"), "less than 2");
  has(refused("all_gather", R"({"axis_name": "X", "axis": 1.0})"), "option axis is 1.0, expected");
  has(refused("all_gather", R"({"axis_name": "X", "axis": 18446744073709551615})"),
      "expected a dimension, an integer");
  has(refused("all_gather", R"({"axis_name": "X", "tiled": 1})"), "option tiled is 1, expected");
  has(refused("all_gather", R"({"axis_name": "X"})", {}, {8, 1, 1, 1, 1, 1}), "rank 6");
  has(refused("psum_scatter", R"({"axis_name": "X"})"), "must match shard count 4");
  has(refused("psum_scatter", R"({"axis_name": "X", "tiled": true})"),
      "must be divisible by shard_count 4");
  has(refused("psum_scatter", R"({"axis_name": "X", "scatter_dimension": -3})"),
      "scatter_dimension=-3 is not a dimension");
  has(refused("psum_scatter", R"({"axis_name": "X"})", {"X=4", "P()", "P()"}, {}),
      "scatter_dimension=0 is not a dimension");
  has(refused("all_to_all", R"({"axis_name": "X", "split_axis": 0, "concat_axis": 1})"),
      "to equal x.shape[split_axis]");
  has(refused("all_to_all",
              R"({"axis_name": "X", "split_axis": 0, "concat_axis": 1, "tiled": true})"),
      "has to be divisible by the size of the named axis X, 4");
  has(refused("all_to_all", R"({"axis_name": "X", "split_axis": 1, "concat_axis": 2})"),
      "concat_axis=2 is not a dimension");
  has(refused("all_to_all", R"({"axis_name": "X", "concat_axis": 0})"),
      "option split_axis is missing");
  has(refused("all_to_all", R"({"axis_name": "X", "split_axis": 0})"),
      "option concat_axis is missing");
  has(refused("psum", R"({"axis_name": "X", "axis": 0})"), "unknown option 'axis'");
}

TEST_CASE("permutations") {
  const auto perm = [](const std::string& pairs) {
    return refused("ppermute", (R"({"axis_name": "X", "perm": )" + pairs + "}").c_str());
  };
  has(refused("ppermute", R"({"axis_name": "X"})"), "option perm is missing");
  has(perm("[[0, 1], [2, 1]]"), "destination 1 is named twice");
  has(perm("[[0, 1], [0, 2]]"), "source 0 is named twice");
  has(perm("[[0, 1], [4, 2]]"), "source 4 (0 modulo 4) is named twice");
  has(perm("[[0, 1], [2, -3]]"), "destination -3 (1 modulo 4) is named twice");
  has(perm("[[0, 1, 2]]"), "expected a list of [source, destination]");
  has(perm("[[0, \"1\"]]"), "expected a list of [source, destination]");
  has(perm("{}"), "expected a list of [source, destination]");
  CHECK(perm("[]") == "(not refused)");
  CHECK(perm("[[-1, 5]]") == "(not refused)");
}

TEST_CASE("specs") {
  const char* set = R"({"axis_name": "X"})";
  has(refused("psum", set, {"X=4", "X,X", "X"}), "names axis 'X' in dimensions 0 and 1");
  has(refused("psum", set, {"X=4", "Z", "X"}), "in.x: spec P('Z') names axis 'Z'");
  has(refused("psum", set, {"X=4", "X", "Z"}), "out.y: spec P('Z') names axis 'Z'");
  has(refused("psum", set, {"X=4", "X", "X,X"}), "out.y: spec P('X', 'X') names axis 'X'");
  has(refused("psum", set, {"X=4", "X,None,None", "X"}),
      "which has length 3, does not fit the array [8,4], which has rank 2");
  has(refused("psum", set, {"X=4", "X", "X,None,None"}),
      "which has length 3, does not fit the output, which has rank 2");
  has(refused("psum", set, {"X=3", "X", "X"}), "dimension 0 of size 8 is not divisible by the 3");
  has(refused("psum", set, {"X=4", "X", "P('X', unreduced={'Y'})"}), "unreduced is for matmul");
  Run named = collective_run("psum", set, {}, small_integers(DType::kF32, {8, 4}));
  named.in_specs["z"] = {};
  has(refused(named), "unknown name in in_specs, 'z'");
  // Sizes whose product no Index holds, though the array is empty.
  has(refused("all_gather", R"({"axis_name": "X", "axis": 1, "tiled": true})",
              {"X=4", "None,X", "None,X"}, {0, Index{1} << 62}),
      "2^63");
}

TEST_CASE("tensors of a run that is judged") {
  Run run = collective_run("psum", R"({"axis_name": "X"})", {"X=4", "X", "P()"},
                           small_integers(DType::kI8, {8, 4}));
  const auto message = [&] { return refusal([&] { find_operation("psum").validate(run, true); }); };
  has(message(), "tensor out.y [*] is missing");
  run.out["y"] = small_integers(DType::kI32, {2, 4});
  has(message(), "out.y has element type I32, expected I8");
  run.out["y"] = small_integers(DType::kI8, {8, 4});
  has(message(), "out.y has shape [8,4], expected [2,4]");
  run.out["y"] = small_integers(DType::kI8, {2, 4});
  CHECK(message() == "(not refused)");
  run.in["ct.y"] = small_integers(DType::kI8, {2, 4});
  has(message(), "unknown tensor 'in.ct.y'");
  for (const auto& [in, out] : {std::pair{DType::kBool, DType::kI32},
                                {DType::kI8, DType::kI8},
                                {DType::kF16, DType::kF16}}) {
    Run sum = collective_run("psum", R"({"axis_name": "X"})", {"X=4", "X", "P()"},
                             small_integers(in, {8, 4}));
    sum.out["y"] = Array(out, std::vector<Index>{2, 4});
    CHECK_NOTHROW(find_operation("psum").validate(sum, true));
    sum.op = "pmean";
    sum.out["y"] = Array(is_float(in) ? in : DType::kF32, std::vector<Index>{2, 4});
    CHECK_NOTHROW(find_operation("pmean").validate(sum, true));
  }
}

TEST_CASE("reverse mode") {
  const auto vjp = [](const char* op, const char* set, const Placed& placed, DType dtype,
                      const std::vector<Index>& ct, DType ct_dtype) {
    Run run = collective_run(op, set, placed, small_integers(dtype, {8, 4}));
    run.in["ct.y"] = small_integers(ct_dtype, ct);
    return refused(run);
  };
  const char* set = R"({"axis_name": "X", "tiled": true})";
  CHECK(vjp("all_gather.vjp", set, {}, DType::kF32, {32, 4}, DType::kF32) == "(not refused)");
  has(vjp("all_gather.vjp", set, {}, DType::kI32, {32, 4}, DType::kI32), "expected a float type");
  has(vjp("all_gather.vjp", set, {}, DType::kF32, {32, 4}, DType::kF16),
      "in.ct.y has element type F16, expected F32");
  has(vjp("all_gather.vjp", set, {}, DType::kF32, {8, 4}, DType::kF32),
      "in.ct.y has shape [8,4], expected [32,4]");
  has(refused("all_gather.vjp", set), "tensor in.ct.y [*] is missing");
  // A y that is not the same on all devices that hold it has no gradient.
  has(vjp("psum_scatter.vjp", R"({"axis_name": "X", "scatter_dimension": 1, "tiled": true})",
          {"X=4", "X", "P()"}, DType::kF32, {2, 1}, DType::kF32),
      "y differs along axis X, which out_specs P() do not name");
  has(vjp("ppermute.vjp", R"({"axis_name": "X", "perm": [[0, 1]]})", {"X=4,Y=2", "X", "Y"},
          DType::kF32, {4, 4}, DType::kF32),
      "y differs along axis X");
  CHECK(vjp("all_gather.vjp", set, {"X=4", "X", "P()"}, DType::kF32, {8, 4}, DType::kF32) ==
        "(not refused)");
  // An extremum has none.
  has(refusal([] { find_operation("pmax.vjp"); }), "unknown operation 'pmax.vjp'");
}

}  // namespace
}  // namespace kref
