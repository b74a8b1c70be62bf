// SPDX-License-Identifier: Apache-2.0
// The parallel MLP layer as lists of steps (sharding_semantics 3.3, 3.4): y = act(x w_in) (* x
// w_gate) w_out and its reverse mode, under the strategies by which a mesh divides the work. One
// declaration, which layer.h runs, layer_work prices and to_string prints.
//
//   strategy   x, y        w_in, w_gate   w_out      forward            backward
//   none       -           -              -          -                  -
//   dp         P(X)        -              -          -                  psum of each ct.w over X
//   fsdp       P(X)        P(X)           P(-, X)    gather each w      gather each w,
//                                                                       scatter each ct.w
//   tp         P(-, Y)     P(-, Y)        P(Y)       gather x,          gather ct.y, gather x,
//                                                    scatter y          scatter ct.x
//   fsdp_tp    P(X, Y)     P(X, Y)        P(Y, X)    both               both
//   stationary P(-, (X,Y)) P(X, Y)        P(Y, X)    gather x over Y,   gather ct.y, psum ct.h over
//                                                    psum a over X,     X, gather x, scatter ct.x
//                                                    scatter y over Y
//
// The last is for inference (6.5): weights are split over both axes and stay where they are, at any
// batch; X comes before Y in the columns of x, so that a gather over Y leaves those of a part of X.
#pragma once

#include <string>
#include <vector>

#include "sharding/collectives.h"
#include "sharding/link_cost.h"
#include "sharding/partition_spec.h"

namespace kref {

// What is applied to x w_in, in f32: nothing, max(., 0), . Phi(.), its tanh form, . sigmoid(.).
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };
// All of them, and as run files spell them: "none", "relu", "gelu", "gelu_tanh", "silu".
inline constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu,
                                              Activation::kGelu, Activation::kGeluTanh,
                                              Activation::kSilu};
const char* name_of(Activation activation);

// How the work is divided: data parallel, weights sharded over the data axis, tensor parallel,
// both; weights split over both axes that do not move.
enum class LayerStrategy { kNone, kDp, kFsdp, kTp, kFsdpTp, kStationary };
// Those of training, and as run files spell them: "none", "dp", "fsdp", "tp", "fsdp_tp".
inline constexpr LayerStrategy kLayerStrategies[] = {LayerStrategy::kNone, LayerStrategy::kDp,
                                                     LayerStrategy::kFsdp, LayerStrategy::kTp,
                                                     LayerStrategy::kFsdpTp};
const char* name_of(LayerStrategy strategy);
// Does it divide the batch over the data axis; the hidden dimension over the model axis; the
// weights over the data axis, along which they are gathered before use; or the features over the
// data axis, along which nothing but partial sums moves?
constexpr bool uses_data_axis(LayerStrategy s) {
  return s == LayerStrategy::kDp || s == LayerStrategy::kFsdp || s == LayerStrategy::kFsdpTp;
}
constexpr bool uses_model_axis(LayerStrategy s) {
  return s == LayerStrategy::kTp || s == LayerStrategy::kFsdpTp || s == LayerStrategy::kStationary;
}
constexpr bool shards_weights(LayerStrategy s) {
  return s == LayerStrategy::kFsdp || s == LayerStrategy::kFsdpTp;
}
constexpr bool splits_features(LayerStrategy s) { return s == LayerStrategy::kStationary; }

// How x and y lie along the model axis, which has no part of them to spare: their columns, as
// above; all of them on every device (Megatron's f and g: nothing is gathered, and a psum stands in
// the place of each scatter); or their rows (sequence parallel: rows of what a device has along the
// data axis are gathered and scattered, so x is P((X, Y))).
enum class ModelForm { kColumns, kReplicated, kRows };

// A layer and how a mesh runs it.
struct LayerPlan {
  LayerStrategy strategy = LayerStrategy::kNone;
  std::string data_axis = "X", model_axis = "Y";
  bool gate = false;  // there is a w_gate
  // Keep the gathered x from forward to backward, which then need not gather it again.
  bool keep_input = false;
  ModelForm form = ModelForm::kColumns;
  // Data parallel over slices beside the strategy: an outer axis of the batch, x being P((S, X)),
  // over which the cotangents of the weights are summed last, as shards. Empty: none.
  std::string slice_axis = {};

  bool operator==(const LayerPlan&) const = default;
};

// The specs of a layer's arrays; w_gate's are those of w_in, y's those of x, a cotangent's those of
// its array.
struct LayerSpecs {
  PartitionSpec x, w_in, w_out;
};
LayerSpecs layer_specs(const LayerPlan& plan);
// Of the array of that name: "x", "y", "w_in", "w_gate", "w_out".
const PartitionSpec& spec_of(const LayerSpecs& specs, std::string_view name);

// Refuses, naming the axis, a plan that does not fit a mesh and the sizes x [B, D], w_in [D, F]: an
// axis that the mesh lacks, one axis for both, a size that the devices do not divide. For messages
// operands are called `prefix` and their name. A stationary plan has the form kColumns.
void check_layer(const LayerPlan& plan, const Mesh& mesh, Index b, Index d, Index f,
                 const char* prefix = "");

// One thing that every device does. Arrays are known by names: "x", "w_in", ..., "x_all"
// (gathered), "a" (x w_in), "g" (x w_gate), "h" (the hidden value), "y", and cotangents as "ct.x".
struct LayerStep {
  enum class Kind {
    kCollective,       // out = collective(in[0])
    kProduct,          // out = in[0] in[1], in f32; either stored transposed
    kAddProduct,       // out += in[0] in[1]; out = where there is no such array yet
    kHidden,           // h of a (and g)
    kHiddenCotangent,  // ct.a (and ct.g) of ct.h, a (and g)
    kRound,            // out = in[0], rounded to the layer's element type
    kDrop,             // in[0] is not needed any more
  };
  Kind kind = Kind::kProduct;
  std::string out;
  std::vector<std::string> in;
  bool trans_x = false, trans_y = false;
  LinearCollective collective = Psum{};
  // Of a collective: must the next step wait for it, or can it be fetched before or done later?
  bool critical = false;
};

// Forward, from the blocks of x and weights to that of y; backward, from those, what forward saved
// and the block of ct.y to those of ct.x, ct.w_in, ct.w_gate, ct.w_out.
std::vector<LayerStep> forward_steps(const LayerPlan& plan);
std::vector<LayerStep> backward_steps(const LayerPlan& plan);
// What forward saves: names of arrays that both lists have, but for those handed in.
std::vector<std::string> saved_names(const LayerPlan& plan);

// Gradient accumulation over parts of the batch (sharding_semantics 3.7): the steps of backward for
// one part, which add to "ct.w_in_sum" and so on what the devices have so far; and those that
// reduce the sums once, when all parts are through. Gathered weights are gathered for each part.
std::vector<LayerStep> accumulation_steps(const LayerPlan& plan);
std::vector<LayerStep> reduction_steps(const LayerPlan& plan);

// "x_all = all_gather(Y, axis=1, tiled=true) of x (cp)"; "a = x_all w_in_all"; "drop w_in_all".
std::string to_string(const LayerStep& step);
// A line a step.
std::string to_string(const std::vector<LayerStep>& steps);

// What one device does in a step: multiplications and additions, bytes that it sends (by the ring
// algorithms, sharding_semantics 2.6).
struct LayerStepWork {
  double flops = 0, bytes = 0;
  Index m = 0, n = 0, k = 0;  // of a product
  // Of a collective, for cost_model.h: what it is, over which axes, and elements of the whole array
  // in a group (link_cost.h).
  Traffic traffic = Traffic::kAllGather;
  std::vector<std::string> axes = {};
  double whole = 0;
};
// Of each of `steps` (forward_steps or backward_steps of the plan), for x [b, d] and w_in [d, f] of
// an element type, hidden values of another. A layer that check_layer passed.
std::vector<LayerStepWork> layer_work(const LayerPlan& plan, const std::vector<LayerStep>& steps,
                                      const Mesh& mesh, Index b, Index d, Index f, DType dtype,
                                      DType hidden);

}  // namespace kref
