// SPDX-License-Identifier: Apache-2.0
#include "golden/collective_op.h"

#include "golden/collective_run.h"
#include "golden/collective_terms.h"
#include "golden/cost.h"

namespace kref {
namespace {

void validate(const Run& run, bool with_outputs) {
  check_declared(find_operation(run.op), run, with_outputs);
  const CollectiveRun c = read_collective(run);
  if (c.vjp) {
    check_array(run, "in.ct.y", run.in.at("ct.y"), c.y_dtype, c.y_shape);
    const std::string axis = CollectiveTerms(c).varies_along();
    if (!axis.empty()) {
      refuse_run(run, "y differs along axis ", axis, ", which out_specs ", to_string(c.out_spec),
                 " do not name: as under check_vma=True, it has no gradient");
    }
  }
  if (!with_outputs) return;
  if (c.vjp) {
    check_array(run, "out.ct.x", run.out.at("ct.x"), c.x_dtype, c.x_shape);
  } else {
    check_array(run, "out.y", run.out.at("y"), c.y_dtype, c.y_shape);
  }
}

const OptionRule kAxisName = {"axis_name", "required",
                              "a mesh axis, or a list, the first major; []: the identity"};
const OptionRule kTiled = {"tiled", "false",
                           "true: blocks are joined or cut, no dimension changes"};
const OptionRule kGroups = {"axis_index_groups", "null",
                            "lists of indices along the axes that cover each once; the place in "
                            "its list is a member's rank"};

struct Declared {
  const char *name, *vjp;  // vjp null: it has none
  const char *summary, *vjp_summary;
  std::vector<OptionRule> options;
  std::vector<const char*> rules;
};

const char* const kOrder =
    "Rank in a group: row-major over axis_name in the order given, or the "
    "place in axis_index_groups.";
const char* const kSum =
    "Sums run in ascending rank. Integers wrap in their own type, bool adds up "
    "in I32.";
const char* const kBound =
    "A float sum is held against (k - 1) roundings of its k terms' absolute "
    "sum, one an addition; integers exactly.";
const char* const kCopy = "No number is computed: outputs are compared exactly (NaN with NaN).";
const char* const kExtreme = "A NaN wins. Outputs are compared exactly.";

std::vector<Declared> declared() {
  return {
      {"all_gather",
       "all_gather.vjp",
       "every device gets the blocks of its group, by rank",
       "the transpose of all_gather: psum_scatter of ct.y",
       {kAxisName,
        {"axis", "0", "where the blocks are stacked (a new dimension), or joined when tiled"},
        kTiled,
        kGroups},
       {kOrder, kCopy}},
      {"psum",
       "psum.vjp",
       "the sum over the group, on every device",
       "the transpose of psum: ct.y on every device (pvary)",
       {kAxisName, kGroups},
       {kOrder, kSum, kBound, "Groups may differ in size."}},
      {"pmean",
       "pmean.vjp",
       "the mean over the group, on every device",
       "the transpose of pmean: ct.y / n on every device",
       {kAxisName, kGroups},
       {kOrder, kSum, kBound,
        "F32 for integers and bool. The sum times 1 / n, or divided by n: the bound covers both.",
        "Groups are equally sized."}},
      {"pmax",
       nullptr,
       "the largest value over the group, on every device",
       nullptr,
       {kAxisName, kGroups},
       {kOrder, kExtreme, "Groups may differ in size."}},
      {"pmin",
       nullptr,
       "the smallest value over the group, on every device",
       nullptr,
       {kAxisName, kGroups},
       {kOrder, kExtreme, "Groups may differ in size."}},
      {"psum_scatter",
       "psum_scatter.vjp",
       "device i of a group gets block i of the sum over it",
       "the transpose of psum_scatter: all_gather of ct.y",
       {kAxisName,
        {"scatter_dimension", "0",
         "what is cut into n blocks (tiled), or has extent n and goes away"},
        kTiled,
        kGroups},
       {kOrder, kSum, kBound}},
      {"all_to_all",
       "all_to_all.vjp",
       "device i of a group gets block i of each member's array",
       "the transpose of all_to_all: the same with its axes swapped",
       {kAxisName,
        {"split_axis", "required", "what is cut into n blocks (tiled), or has extent n and goes"},
        {"concat_axis", "required",
         "where the blocks are joined (tiled), or stacked: counted once split_axis is gone"},
        kTiled,
        kGroups},
       {kOrder, kCopy}},
      {"ppermute",
       "ppermute.vjp",
       "device dst gets the array of device src; zeros without a src",
       "the transpose of ppermute: every pair reversed",
       {kAxisName, {"perm", "required", "[[src, dst], ...], ranks modulo n, each once"}},
       {kOrder, kCopy, "Several axes are named in the order of the mesh."}},
  };
}

std::vector<const char*> common_rules(std::vector<const char*> rules, bool vjp) {
  rules.insert(rules.end(),
               {"The body is the one collective, on each device's block of x under in_specs.",
                "Negative dimensions count from the end."});
  if (vjp) {
    rules.insert(rules.end(),
                 {"Transposed as check_vma=True does: the cotangents of a replicated x are summed "
                  "over its devices.",
                  "Refused where y differs between devices along an axis that out_specs do not "
                  "name."});
  } else {
    rules.push_back(
        "As under check_vma=False: along an axis that out_specs do not name, device 0 counts.");
  }
  return rules;
}

}  // namespace

std::vector<Operation> collective_operations() {
  static const std::vector<const char*> kSources = {
      "jax.lax.parallel and jax.shard_map",
      "the bound: Jeannerod and Rump, Improved error bounds for inner products, 2013"};
  const TensorRule x = {"x", "*", false, "any element type"},
                   y = {"y", "*", false, "element type as the rules say, else that of x"};
  std::vector<Operation> all;
  for (const Declared& d : declared()) {
    all.push_back({.name = d.name,
                   .summary = d.summary,
                   .inputs = {x},
                   .outputs = {y},
                   .options = d.options,
                   .rules = common_rules(d.rules, false),
                   .sources = kSources,
                   .validate = validate,
                   .compute = compute_collective,
                   .expect = expect_collective,
                   .plan = plan_collective,
                   .price = price_collective_run,
                   .clock = clock_as_run});
    if (d.vjp == nullptr) continue;
    Operation vjp = all.back();
    vjp.name = d.vjp;
    vjp.summary = d.vjp_summary;
    vjp.inputs = {{"x", "*", false, "a float type"}, {"ct.y", "*", false, "shape and type of y"}};
    vjp.outputs = {{"ct.x", "*", false, "shape and type of x"}};
    vjp.rules = common_rules(d.rules, true);
    all.push_back(std::move(vjp));
  }
  return all;
}

}  // namespace kref
