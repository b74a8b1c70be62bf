// SPDX-License-Identifier: Apache-2.0
#include "golden/collective_matmul_op.h"

#include "golden/cost.h"
#include "golden/matmul_op.h"
#include "golden/matmul_sharded.h"
#include "golden/options.h"
#include "golden/plan.h"
#include "golden/run_launch.h"
#include "sharding/collective_matmul.h"

namespace kref {
namespace {

// The matmul of the same operands and specs: what it computes, and how far a machine may be off,
// since that bound holds for any order of sums.
Run as_matmul(const Run& run) {
  Run out = run;
  out.set = nlohmann::json::object();
  return out;
}

std::string axis_name(const Run& run) {
  const Options options(run);
  const nlohmann::json* value = options.find("axis_name");
  if (value != nullptr && value->is_array() && value->size() == 1) value = &(*value)[0];
  if (value == nullptr || !value->is_string()) {
    options.refuse("axis_name", "the name of a mesh axis");
  }
  return value->get<std::string>();
}

std::optional<MatmulForm> form(const Run& run) {
  const Options options(run);
  if (options.find("form") == nullptr) return std::nullopt;
  const std::string gather = name_of(MatmulForm::kAllGather);
  const std::string scatter = name_of(MatmulForm::kReduceScatter);
  return options.choice("form", nullptr, {gather.c_str(), scatter.c_str()}) == gather
             ? MatmulForm::kAllGather
             : MatmulForm::kReduceScatter;
}

RingDirection direction(const Run& run) {
  const std::string one = name_of(RingDirection::kOne), both = name_of(RingDirection::kBoth);
  return Options(run).choice("direction", one.c_str(), {one.c_str(), both.c_str()}) == one
             ? RingDirection::kOne
             : RingDirection::kBoth;
}

// Checks everything but the output.
RingPlan read_plan(const Run& run, const MatmulRun& matmul) {
  const std::string axis = axis_name(run);
  const std::optional<MatmulForm> asked = form(run);
  const RingDirection way = direction(run);
  RingPlan plan;
  try {
    plan = plan_ring(*matmul.placement, axis, asked, way);
  } catch (const Error& e) {
    refuse_run(run, e.what());
  }
  if (plan.traveller == RingTraveller::kYColumns) {
    refuse_run(run, "y's columns are to be gathered over '", axis,
               "'; expected a gather of x's or y's contracting dimension or of x's rows");
  }
  return plan;
}

MatmulRun read_operands(const Run& run) {
  if (!run.mesh) refuse_run(run, "the run has no mesh; blocks go round an axis of one");
  for (const char* name : {"x", "y"}) {
    const Array& array = run.in.at(name);
    if (array.rank() != 2) {
      refuse_run(run, "in.", name, ' ', to_string(array), " has rank ", array.rank(),
                 ", expected 2: ", name[0] == 'x' ? "[M, K]" : "[K, N]");
    }
    if (is_float(array.dtype()) && size_of(array.dtype()) == 1) {
      refuse_run(run, "in.", name, " has element type ", name_of(array.dtype()),
                 ", expected F64, F32, F16, BF16, I8 or U8");
    }
  }
  return read_matmul(as_matmul(run));
}

void validate(const Run& run, bool with_outputs) {
  check_declared(find_operation(run.op), run, with_outputs);
  const MatmulRun matmul = read_operands(run);
  read_plan(run, matmul);
  if (with_outputs) check_matmul_output(as_matmul(run), matmul);
}

std::map<std::string, Array> compute(const Run& run) {
  const MatmulSpecs specs{spec_of(run.in_specs, "x"), spec_of(run.in_specs, "y"),
                          spec_of(run.out_specs, "z")};
  std::map<std::string, Array> out;
  out.emplace("z", collective_matmul(*run.mesh, specs, run.in.at("x"), run.in.at("y"),
                                     {.axis_name = axis_name(run),
                                      .form = form(run),
                                      .direction = direction(run),
                                      .launch = run_launch()}));
  return out;
}

std::vector<Expectation> expect(const Run& run) { return expect_sharded_matmul(as_matmul(run)); }

// The steps of matmul, one of them round the ring.
Plan plan(const Run& run) {
  Plan out = plan_matmul(as_matmul(run));
  const RingPlan ring = read_plan(run, read_operands(run));
  out.summary = to_string(ring);
  out.transfers.clear();
  for (const MatmulWork::Transfer& one : ring_work(ring, run.in.at("x").dtype()).transfers) {
    out.transfers.push_back({one.collective, one.bytes});
  }
  return out;
}

Cost price(const Run& run, const MeshLinks& links) {
  const MatmulRun matmul = read_operands(run);
  const RingPlan plan = read_plan(run, matmul);
  return price_ring_run(run, matmul, plan, links);
}

}  // namespace

Operation collective_matmul_operation() {
  return {
      .name = "collective_matmul",
      .summary = "a sharded matmul whose blocks are multiplied while others travel round a ring",
      .inputs = {{"x", "M K", false, "F64 F32 F16 BF16 I8 U8"},
                 {"y", "K N", false, "element type of x"}},
      .outputs = {{"z", "M N", false, "element type of x; I32 of I8, U8"}},
      .options = {{"axis_name", "required", "the mesh axis whose devices are the ring"},
                  {"form", "what the specs ask for",
                   "\"all_gather\": blocks of an operand go round; \"reduce_scatter\": partial "
                   "sums of blocks of z do"},
                  {"direction", "\"one\"",
                   "\"both\": the halves of each block go round in opposite directions"}},
      .rules =
          {"A mesh is required. The specs are those of matmul, with one step over axis_name:",
           "  all_gather: x's or y's contracting dimension, or x's rows, are gathered over it;",
           "  reduce_scatter: z's rows or columns are scattered over it.",
           "  It is the first of the axes of that step; steps over others are as in matmul.",
           "Same numbers as matmul with the same specs, up to the order of sums: the bound "
           "holds for any.",
           "Integers compare exactly. F32 operands are multiplied as F32."},
      .sources = {"'How to Scale Your Model', chapter on sharding: collective matmul",
                  "the JAX documentation, shard_map: all-gather and psum_scatter matmuls, "
                  "overlapped, one and both directions"},
      .validate = validate,
      .compute = compute,
      .expect = expect,
      .plan = plan,
      .price = price,
      .clock = clock_as_run,
  };
}

}  // namespace kref
