// SPDX-License-Identifier: Apache-2.0
// What a wrong layer is right for.
#include <cmath>
#include <memory>

#include "golden/mlp_op.h"

namespace kref {
namespace {

// Rows of a matrix, or columns.
Array one_row(const Array& a, Index row) {
  const Index n = a.extent(1);
  const auto bytes = static_cast<std::size_t>(n) * size_of(a.dtype());
  return Array(a.dtype(), std::vector<Index>{1, n}, a.owner(),
               static_cast<const char*>(a.data()) + static_cast<std::size_t>(row) * bytes);
}
Array one_column(const Array& a, Index column) {
  Array out = Array::unwritten(a.dtype(), std::vector<Index>{a.extent(0), 1});
  with_dtype(a.dtype(), [&]<class T>() {
    const std::span<const T> from = a.elements<T>();
    const std::span<T> to = out.mutable_elements<T>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = from[i * static_cast<std::size_t>(a.extent(1)) + static_cast<std::size_t>(column)];
    }
  });
  return out;
}

// The part of a run that one element of an output depends on, on one device, and the place of the
// element in it: one row of the batch, or one hidden index.
struct Part {
  Run run;
  Index element = 0;
};
Part part_of(const Run& run, const std::string& output, Index element) {
  Part out{run, 0};
  out.run.out.clear();
  out.run.out[output] = run.out.at(output);
  const Index columns = run.out.at(output).extent(1);
  const Index row = element / columns, column = element % columns;
  if (output == "y" || output == "ct.x") {
    for (const char* name : {"x", "ct.y"}) {
      if (run.in.contains(name)) out.run.in[name] = one_row(run.in.at(name), row);
    }
    out.element = column;
    return out;
  }
  const bool is_out = output == "ct.w_out";
  const Index f = is_out ? row : column;
  for (const char* name : {"w_in", "w_gate"}) {
    if (run.in.contains(name)) out.run.in[name] = one_column(run.in.at(name), f);
  }
  out.run.in["w_out"] = one_row(run.in.at("w_out"), f);
  out.element = is_out ? column : row;
  return out;
}

Alternative other(const Run& given, const std::string& output, const std::string& name,
                  const nlohmann::json& set, LayerOperandsAs operands) {
  // On one device: no strategy changes a number.
  const auto changed = std::make_shared<Run>(given);
  changed->mesh.reset();
  changed->in_specs.clear();
  changed->out_specs.clear();
  changed->set["strategy"] = name_of(LayerStrategy::kNone);
  for (const auto& [key, value] : set.items()) changed->set[key] = value;
  const auto of = [output, operands](const Run& run) {
    Run one = run;
    one.out.clear();
    one.out[output] = run.out.at(output);
    return std::move(expect_layer(one, operands).at(0));
  };
  Alternative out;
  out.name = name;
  out.plausible = [changed, output, of](Index element, double actual) {
    const Part part = part_of(*changed, output, element);
    const Expectation e = of(part.run);
    const auto at = static_cast<std::size_t>(part.element);
    // What is not finite is left to the judge.
    return !std::isfinite(actual) || !std::isfinite(e.value[at]) || !e.overflow.empty() ||
           std::fabs(actual - e.value[at]) <= e.likely[at];
  };
  out.expect = [changed, of](const Array&) { return of(*changed); };
  return out;
}

}  // namespace

std::vector<Alternative> other_layers(const Run& run, const std::string& output) {
  const MlpRun request = read_mlp(run);
  std::vector<Alternative> out;
  const auto add = [&](const std::string& name, const nlohmann::json& set,
                       LayerOperandsAs operands = LayerOperandsAs::kGiven) {
    out.push_back(other(run, output, name, set, operands));
  };
  for (const Activation activation : kActivations) {
    if (activation == request.layer.activation) continue;
    add(std::string("activation ") + name_of(activation), {{"activation", name_of(activation)}});
  }
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (type == request.hidden) continue;
    add(std::string("hidden_dtype ") + name_of(type), {{"hidden_dtype", name_of(type)}});
  }
  if (request.dtype == DType::kF32) {
    add("BF16 operands of every product (a TPU's default precision)", {}, LayerOperandsAs::kBF16);
  }
  return out;
}

}  // namespace kref
