// SPDX-License-Identifier: Apache-2.0
#include "golden/mlp_op.h"

#include <algorithm>

#include "golden/cost.h"
#include "golden/dims.h"
#include "golden/options.h"
#include "golden/plan.h"
#include "golden/run_launch.h"

namespace kref {
namespace {

constexpr std::string_view kCotangent = "ct.";

std::string_view primal(std::string_view name) {
  return name.starts_with(kCotangent) ? name.substr(kCotangent.size()) : name;
}

const char* dims_of(std::string_view name) {
  if (primal(name) == "w_out") return "F D";
  return primal(name) == "x" || primal(name) == "y" ? "B D" : "D F";
}

Activation activation(const Run& run) {
  const auto name = [](std::size_t i) { return name_of(kActivations[i]); };
  static_assert(std::size(kActivations) == 5);
  const std::string chosen =
      Options(run).choice("activation", name(0), {name(0), name(1), name(2), name(3), name(4)});
  return *std::find_if(std::begin(kActivations), std::end(kActivations),
                       [&](Activation a) { return chosen == name_of(a); });
}

LayerStrategy strategy(const Run& run) {
  const auto name = [](std::size_t i) { return name_of(kLayerStrategies[i]); };
  static_assert(std::size(kLayerStrategies) == 5);
  const std::string chosen =
      Options(run).choice("strategy", name(0), {name(0), name(1), name(2), name(3), name(4)});
  return *std::find_if(std::begin(kLayerStrategies), std::end(kLayerStrategies),
                       [&](LayerStrategy s) { return chosen == name_of(s); });
}

std::string axis(const Run& run, const char* name, const char* fallback) {
  const Options options(run);
  const nlohmann::json* value = options.find(name);
  if (value == nullptr) return fallback;
  if (!value->is_string()) options.refuse(name, "the name of a mesh axis");
  return value->get<std::string>();
}

void check_dtype(const Run& run, const char* prefix, const std::string& name, const Array& array,
                 DType expected) {
  if (array.dtype() == expected) return;
  refuse_run(run, prefix, name, " has element type ", name_of(array.dtype()),
             ", expected that of in.x, ", name_of(expected));
}

// The strategy's own specs, absent from the run or equal to them.
void check_specs(const Run& run, const LayerPlan& plan) {
  const LayerSpecs specs = layer_specs(plan);
  const auto check = [&](const char* key, const std::string& name, const PartitionSpec& found) {
    const PartitionSpec& own = spec_of(specs, name);
    if (found == own) return;
    refuse_run(run, key, '.', name, " is ", to_string(found), ", expected ", to_string(own),
               ", that of strategy ", name_of(plan.strategy), ", or none");
  };
  for (const auto& [name, spec] : run.in_specs) check("in_specs", name, spec);
  for (const auto& [name, spec] : run.out_specs) {
    if (!spec.unreduced.empty()) {
      refuse_run(run, "out_specs.", name, " is ", to_string(spec), ": unreduced is for matmul");
    }
    check("out_specs", name, spec.spec);
  }
}

void validate(const Run& run, bool with_outputs) {
  check_declared(find_operation(run.op), run, with_outputs);
  const MlpRun mlp = read_mlp(run);
  if (!with_outputs) return;
  if (mlp.vjp && run.out.contains("ct.w_gate") != mlp.layer.plan.gate) {
    refuse_run(run, mlp.layer.plan.gate ? "tensor out.ct.w_gate [D F] is missing"
                                        : "out.ct.w_gate is given, but there is no in.w_gate");
  }
  Dims dims(run);
  for (const auto& [name, array] : run.in) dims.bind("in." + name, array, dims_of(name));
  for (const auto& [name, array] : run.out) {
    dims.bind("out." + name, array, dims_of(name));
    check_dtype(run, "out.", name, array, mlp.dtype);
  }
}

std::map<std::string, Array> compute(const Run& run) {
  const MlpRun mlp = read_mlp(run);
  LayerOperands operands{run.in.at("x"), run.in.at("w_in"), run.in.at("w_out")};
  if (mlp.layer.plan.gate) operands.w_gate = run.in.at("w_gate");
  std::map<std::string, Array> out;
  if (!mlp.vjp) {
    out.emplace("y", kref::mlp(mlp.mesh, operands, mlp.layer));
    return out;
  }
  LayerCotangents cts = mlp_vjp(mlp.mesh, operands, run.in.at("ct.y"), mlp.layer);
  out.emplace("ct.x", std::move(cts.x));
  out.emplace("ct.w_in", std::move(cts.w_in));
  out.emplace("ct.w_out", std::move(cts.w_out));
  if (mlp.layer.plan.gate) out.emplace("ct.w_gate", std::move(cts.w_gate));
  return out;
}

// With the specs of the strategy.
Run placed(const Run& run) {
  Run out = run;
  if (!run.mesh) return out;
  const LayerSpecs specs = layer_specs(read_mlp(run).layer.plan);
  for (const auto& entry : run.in) {
    const std::string name(primal(entry.first));
    if (name == "y") continue;
    out.in_specs[name] = spec_of(specs, name);
  }
  out.out_specs["y"] = {specs.x, {}};
  return out;
}

}  // namespace

MlpRun read_mlp(const Run& run) {
  MlpRun out;
  out.vjp = run.op.ends_with(".vjp");
  Dims dims(run);
  dims.bind("in.x", run.in.at("x"), dims_of("x"));
  out.dtype = run.in.at("x").dtype();
  if (out.dtype != DType::kF32 && out.dtype != DType::kBF16 && out.dtype != DType::kF16) {
    refuse_run(run, "in.x has element type ", name_of(out.dtype), ", expected F32, BF16 or F16");
  }
  for (const auto& [name, array] : run.in) {
    dims.bind("in." + name, array, dims_of(name));
    check_dtype(run, "in.", name, array, out.dtype);
  }
  out.b = dims['B'], out.d = dims['D'], out.f = dims['F'];
  out.layer.activation = activation(run);
  out.hidden = Options(run)
                   .dtype("hidden_dtype", {DType::kF32, DType::kBF16, DType::kF16})
                   .value_or(out.dtype);
  out.layer.hidden_dtype = out.hidden;
  out.layer.launch = run_launch();
  out.layer.overlap = out.layer.launch.log != nullptr;
  LayerPlan& plan = out.layer.plan;
  plan.strategy = strategy(run);
  plan.data_axis = axis(run, "data_axis", "X");
  plan.model_axis = axis(run, "model_axis", "Y");
  plan.gate = run.in.contains("w_gate");
  if (run.mesh) out.mesh = *run.mesh;
  try {
    check_layer(plan, out.mesh, out.b, out.d, out.f, "in.");
  } catch (const Error& e) {
    refuse_run(run, e.what());
  }
  check_specs(run, plan);
  return out;
}

std::vector<Operation> mlp_operations() {
  const TensorRule x = {"x", "B D", false, "F32 BF16 F16"},
                   w_in = {"w_in", "D F", false, "element type of x"},
                   w_gate = {"w_gate", "D F", true, "element type of x"},
                   w_out = {"w_out", "F D", false, "element type of x"};
  const char* own = "element type of x";
  Operation mlp = {
      .name = "mlp",
      .summary = "y = act(x w_in) (* x w_gate) w_out, on one device or divided over a mesh",
      .inputs = {x, w_in, w_gate, w_out},
      .outputs = {{"y", "B D", false, own}},
      .options = {{"activation", "\"none\"",
                   "\"none\", \"relu\", \"gelu\" (by erf), \"gelu_tanh\", \"silu\""},
                  {"strategy", "\"none\"",
                   "\"none\", \"dp\", \"fsdp\", \"tp\", \"fsdp_tp\": how a mesh divides the work"},
                  {"data_axis", "\"X\"", "mesh axis of the batch (dp, fsdp, fsdp_tp)"},
                  {"model_axis", "\"Y\"", "mesh axis of F (tp, fsdp_tp)"},
                  {"hidden_dtype", "as x", "F32, BF16 or F16: type of the hidden value"}},
      .rules = {"The specs are those of the strategy: absent, or equal to",
                "  dp       x P(X)     weights P()",
                "  fsdp     x P(X)     w_in, w_gate P(X)       w_out P(None, X)",
                "  tp       x P(-, Y)  w_in, w_gate P(None, Y) w_out P(Y)",
                "  fsdp_tp  x P(X, Y)  w_in, w_gate P(X, Y)    w_out P(Y, X)",
                "  with y as x, and each cotangent as its array.",
                "Products, partial sums, activation and gate are F32. The hidden value is rounded "
                "once to",
                "  hidden_dtype, and so is its cotangent; results are rounded once. relu'(0) = 0.",
                "An error is held against bounds that follow the errors of F32 through the layer; "
                "where the",
                "  hidden value may round to either side, both are right."},
      .sources =
          {"'How to Scale Your Model', chapter on training: the collectives of each strategy",
           "jax.nn.relu, gelu, silu and jax.vjp",
           "the bound: Higham and Mary, A new approach to probabilistic rounding error "
           "analysis, 2019"},
      .validate = validate,
      .compute = compute,
      .expect = expect_mlp,
      .plan = plan_mlp,
      .placed = placed,
      .price = price_mlp_run,
      .clock = clock_mlp_run,
  };
  Operation vjp = mlp;
  vjp.name = "mlp.vjp";
  vjp.summary = "the cotangents of x and the weights of mlp for that of y";
  vjp.inputs.push_back({"ct.y", "B D", false, own});
  vjp.outputs = {{"ct.x", "B D", false, own},
                 {"ct.w_in", "D F", false, own},
                 {"ct.w_gate", "D F", true, "there where w_gate is"},
                 {"ct.w_out", "F D", false, own}};
  return {mlp, vjp};
}

}  // namespace kref
