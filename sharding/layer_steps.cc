// SPDX-License-Identifier: Apache-2.0
#include "sharding/layer_steps.h"

#include <algorithm>

namespace kref {
namespace {

using Kind = LayerStep::Kind;

// Writes the lists down.
class Steps {
 public:
  // accumulates: cotangents of weights are added up, and not yet reduced.
  explicit Steps(const LayerPlan& plan, bool accumulates = false)
      : plan_(plan), accumulates_(accumulates) {}

  std::vector<LayerStep> forward() {
    const std::string x = gathered_input("x", true);
    weight_product("a", x, "w_in");
    if (plan_.gate) weight_product("g", x, "w_gate");
    if (x != "x" && !plan_.keep_input) drop(x);
    add({.kind = Kind::kHidden, .out = "h", .in = plan_.gate ? Names{"a", "g"} : Names{"a"}});
    const std::string w = gathered_weight("w_out");
    add({.kind = Kind::kProduct, .out = "y_sum", .in = {"h", w}});
    drop_gathered(w, "w_out");
    scatter_output("y");
    return std::move(out_);
  }

  std::vector<LayerStep> backward() {
    const std::string ct = gathered_input("ct.y", true);
    weight_cotangent("w_out", "h", ct);
    const std::string w = gathered_weight("w_out");
    add({.kind = Kind::kProduct, .out = partial("ct.h"), .in = {ct, w}, .trans_y = true});
    drop_gathered(w, "w_out");
    complete("ct.h");
    if (ct != "ct.y") drop(ct);
    add({.kind = Kind::kHiddenCotangent,
         .out = "ct.a",
         .in = plan_.gate ? Names{"ct.h", "a", "g"} : Names{"ct.h", "a"}});
    // The input is there again before its cotangent is asked for: nothing waits for it.
    const std::string x =
        plan_.keep_input && gathers_input() ? "x_all" : gathered_input("x", false);
    weight_cotangent("w_in", x, "ct.a");
    if (plan_.gate) weight_cotangent("w_gate", x, "ct.g");
    if (x != "x") drop(x);
    weight_product_back("w_in", "ct.a", Kind::kProduct);
    if (plan_.gate) weight_product_back("w_gate", "ct.g", Kind::kAddProduct);
    scatter_output("ct.x");
    return std::move(out_);
  }

  std::vector<LayerStep> reductions() {
    reduce("w_out");
    reduce("w_in");
    if (plan_.gate) reduce("w_gate");
    return std::move(out_);
  }

 private:
  using Names = std::vector<std::string>;

  void add(LayerStep step) { out_.push_back(std::move(step)); }
  void drop(const std::string& name) { add({.kind = Kind::kDrop, .out = "", .in = {name}}); }
  void collect(const std::string& out, const std::string& in, LinearCollective collective,
               bool critical) {
    add({.kind = Kind::kCollective,
         .out = out,
         .in = {in},
         .collective = std::move(collective),
         .critical = critical});
  }

  // Dimension of a weight that the data axis shards.
  static Index data_dimension(const std::string& weight) { return weight == "w_out" ? 1 : 0; }

  // Dimension of x and y that the model axis shards.
  Index model_dimension() const { return plan_.form == ModelForm::kRows ? 0 : 1; }
  bool gathers_input() const {
    return uses_model_axis(plan_.strategy) && plan_.form != ModelForm::kReplicated;
  }

  // x or ct.y, whole along the model axis.
  std::string gathered_input(const std::string& name, bool critical) {
    if (!gathers_input()) return name;
    collect(name + "_all", name,
            AllGather{.axis_name = plan_.model_axis, .axis = model_dimension(), .tiled = true},
            critical);
    return name + "_all";
  }
  std::string gathered_weight(const std::string& name) {
    if (!shards_weights(plan_.strategy)) return name;
    collect(name + "_all", name,
            AllGather{.axis_name = plan_.data_axis, .axis = data_dimension(name), .tiled = true},
            false);
    return name + "_all";
  }
  void drop_gathered(const std::string& used, const std::string& name) {
    if (used != name) drop(used);
  }

  void weight_product(const std::string& out, const std::string& x, const std::string& weight) {
    const std::string w = gathered_weight(weight);
    add({.kind = Kind::kProduct, .out = partial(out), .in = {x, w}});
    drop_gathered(w, weight);
    complete(out);
  }
  // The sum over features that devices share: its part on one of them, and the sum of all.
  std::string partial(const std::string& out) const {
    return splits_features(plan_.strategy) ? out + "_sum" : out;
  }
  void complete(const std::string& out) {
    if (!splits_features(plan_.strategy)) return;
    collect(out, partial(out), Psum{.axis_name = plan_.data_axis}, true);
    drop(partial(out));
  }
  // ct w^T, to the sum that is ct.x.
  void weight_product_back(const std::string& weight, const std::string& ct, Kind kind) {
    const std::string w = gathered_weight(weight);
    add({.kind = kind, .out = "ct.x_sum", .in = {ct, w}, .trans_y = true});
    drop_gathered(w, weight);
  }
  // x^T ct; its sum over devices follows, unless there is more to add.
  void weight_cotangent(const std::string& weight, const std::string& x, const std::string& ct) {
    add({.kind = accumulates_ ? Kind::kAddProduct : Kind::kProduct,
         .out = "ct." + weight + "_sum",
         .in = {x, ct},
         .trans_x = true});
    if (!accumulates_) reduce(weight);
  }
  void reduce(const std::string& weight) {
    const std::string name = "ct." + weight;
    std::string sum = name + "_sum";
    const auto next = [&](const std::string& out, LinearCollective collective) {
      collect(out, sum, std::move(collective), false);
      drop(sum);
      sum = out;
    };
    if (shards_weights(plan_.strategy)) {
      next(name + "_f32", PsumScatter{.axis_name = plan_.data_axis,
                                      .scatter_dimension = data_dimension(weight),
                                      .tiled = true});
    } else if (uses_data_axis(plan_.strategy)) {
      next(name + "_f32", Psum{.axis_name = plan_.data_axis});
    }
    if (!plan_.slice_axis.empty()) next(name + "_slices", Psum{.axis_name = plan_.slice_axis});
    round(name, sum);
  }
  void scatter_output(const std::string& name) {
    std::string sum = name + "_sum";
    if (uses_model_axis(plan_.strategy)) {
      if (gathers_input()) {
        collect(name + "_f32", sum,
                PsumScatter{.axis_name = plan_.model_axis,
                            .scatter_dimension = model_dimension(),
                            .tiled = true},
                true);
      } else {
        collect(name + "_f32", sum, Psum{.axis_name = plan_.model_axis}, true);
      }
      drop(sum);
      sum = name + "_f32";
    }
    round(name, sum);
  }
  void round(const std::string& out, const std::string& in) {
    add({.kind = Kind::kRound, .out = out, .in = {in}});
    drop(in);
  }

  const LayerPlan& plan_;
  bool accumulates_;
  std::vector<LayerStep> out_;
};

}  // namespace

const char* name_of(Activation activation) {
  constexpr const char* kNames[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
  return kNames[static_cast<std::size_t>(activation)];
}

const char* name_of(LayerStrategy strategy) {
  constexpr const char* kNames[] = {"none", "dp", "fsdp", "tp", "fsdp_tp", "stationary"};
  return kNames[static_cast<std::size_t>(strategy)];
}

LayerSpecs layer_specs(const LayerPlan& plan) {
  const bool models = uses_model_axis(plan.strategy);
  std::vector<std::string> rows;
  if (!plan.slice_axis.empty()) rows.push_back(plan.slice_axis);
  if (uses_data_axis(plan.strategy)) rows.push_back(plan.data_axis);
  if (models && plan.form == ModelForm::kRows) rows.push_back(plan.model_axis);
  const SpecEntry model = models ? SpecEntry(plan.model_axis) : none;
  const bool splits = splits_features(plan.strategy);
  const SpecEntry columns = splits ? axes(plan.data_axis, plan.model_axis)
                            : plan.form == ModelForm::kColumns ? model
                                                               : none;
  const SpecEntry shard =
      shards_weights(plan.strategy) || splits ? SpecEntry(plan.data_axis) : none;
  return {P{SpecEntry(rows), columns}, P{shard, model}, P{model, shard}};
}

const PartitionSpec& spec_of(const LayerSpecs& specs, std::string_view name) {
  if (name == "x" || name == "y") return specs.x;
  return name == "w_out" ? specs.w_out : specs.w_in;
}

void check_layer(const LayerPlan& plan, const Mesh& mesh, Index b, Index d, Index f,
                 const char* prefix) {
  const auto bound = [&](const std::string& axis, const char* option) {
    KREF_CHECK(mesh.find(axis), "strategy ", name_of(plan.strategy), " needs the axis '", axis,
               "' (", option, "), the mesh has ",
               mesh.axes().empty() ? "no axes" : to_string(mesh));
  };
  const bool splits = splits_features(plan.strategy);
  const bool has_data_axis = uses_data_axis(plan.strategy) || splits;
  if (has_data_axis) bound(plan.data_axis, "data_axis");
  if (uses_model_axis(plan.strategy)) bound(plan.model_axis, "model_axis");
  if (!plan.slice_axis.empty()) {
    bound(plan.slice_axis, "slice_axis");
    KREF_CHECK(!(has_data_axis && plan.slice_axis == plan.data_axis) &&
                   !(uses_model_axis(plan.strategy) && plan.slice_axis == plan.model_axis),
               "slice_axis is '", plan.slice_axis, "', expected another axis than the strategy's");
  }
  KREF_CHECK(!has_data_axis || !uses_model_axis(plan.strategy) || plan.data_axis != plan.model_axis,
             "data_axis and model_axis are both '", plan.data_axis, "', expected two axes");
  KREF_CHECK(!splits || plan.form == ModelForm::kColumns, "strategy ", name_of(plan.strategy),
             " has the columns of x on the devices of both axes, expected the form kColumns");
  const LayerSpecs specs = layer_specs(plan);
  const auto fits = [&](const PartitionSpec& spec, const char* name, Index rows, Index columns) {
    check_spec(spec, std::vector<Index>{rows, columns}, mesh, std::string(prefix) + name);
  };
  fits(specs.x, "x", b, d);
  fits(specs.w_in, "w_in", d, f);
  fits(specs.w_out, "w_out", f, d);
}

std::vector<LayerStep> forward_steps(const LayerPlan& plan) { return Steps(plan).forward(); }
std::vector<LayerStep> backward_steps(const LayerPlan& plan) { return Steps(plan).backward(); }

std::vector<LayerStep> accumulation_steps(const LayerPlan& plan) {
  return Steps(plan, true).backward();
}
std::vector<LayerStep> reduction_steps(const LayerPlan& plan) { return Steps(plan).reductions(); }

std::vector<std::string> saved_names(const LayerPlan& plan) {
  std::vector<std::string> made, out;
  for (const LayerStep& step : forward_steps(plan)) made.push_back(step.out);
  for (const LayerStep& step : backward_steps(plan)) {
    for (const std::string& name : step.in) {
      // What backward makes itself before it is used is not saved.
      if (std::ranges::count(made, name) == 0 || std::ranges::count(out, name) != 0) continue;
      out.push_back(name);
    }
    std::erase(made, step.out);
  }
  return out;
}

std::string to_string(const LayerStep& step) {
  const auto operand = [&](std::size_t i, bool transposed) {
    return step.in[i] + (transposed ? "^T" : "");
  };
  std::string out = step.out;
  switch (step.kind) {
    case Kind::kCollective:
      return detail::cat(out, " = ", to_string(step.collective), " of ", step.in[0],
                         step.critical ? " (cp)" : " (bg)");
    case Kind::kProduct:
    case Kind::kAddProduct:
      return detail::cat(out,
                         step.kind == Kind::kProduct ? " = " : " += ", operand(0, step.trans_x),
                         " ", operand(1, step.trans_y));
    case Kind::kHidden:
      return detail::cat(out, " = act(", step.in[0], ")", step.in.size() > 1 ? " * g" : "");
    case Kind::kHiddenCotangent:
      return detail::cat(out, step.in.size() > 2 ? ", ct.g" : "", " of ", step.in[0]);
    case Kind::kRound:
      return detail::cat(out, " = round(", step.in[0], ")");
    case Kind::kDrop:
      return detail::cat("drop ", step.in[0]);
  }
  return "?";
}

std::string to_string(const std::vector<LayerStep>& steps) {
  std::string out;
  for (const LayerStep& step : steps) out += to_string(step) + "\n";
  return out;
}

}  // namespace kref
