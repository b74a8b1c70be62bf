// SPDX-License-Identifier: Apache-2.0
// Runs of attention.vjp, and faults of the backward pass alone.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "golden/attention_vjp_op.h"
#include "kernels/reference.h"
#include "tests/attention_mutants.h"

namespace kref {

using Outputs = std::map<std::string, Array>;

// Gradients with the cotangents of a run.
struct Backward {
  Kernel kernel;
  AttentionCotangents ct;
};

inline AttentionGradients gradients(const Backward& b) {
  const auto request = request_of(b.kernel);
  return attention_vjp(request.first, b.ct, request.second);
}

// Those of one query head for each kv head, summed over the heads that read it as `group` says.
inline void fold(const Kernel& k, Index batches, Index width, std::vector<double>& values,
                 const std::function<Index(Index)>& group) {
  std::vector<double> out(values.size() / static_cast<std::size_t>(k.heads / k.groups), 0.0);
  for (Index b = 0; b < batches; ++b)
    for (Index h = 0; h < k.heads; ++h)
      for (Index j = 0; j < k.keys; ++j) {
        const Layout layout = k.options.layout;
        const Index from = row_index(layout, b, k.heads, h, k.keys, j) * width;
        const Index to = row_index(layout, b, k.groups, group(h), k.keys, j) * width;
        for (Index e = 0; e < width; ++e) {
          out[static_cast<std::size_t>(to + e)] += values[static_cast<std::size_t>(from + e)];
        }
      }
  values = std::move(out);
}

// A run as it is read.
struct Given {
  Run run;
  AttentionVjpRun vjp;

  explicit Given(const std::string& path) : run(read_run(path)), vjp(read_attention_vjp(run)) {}
  Backward right() const { return {right_kernel(vjp.primal), vjp.ct}; }
  Outputs rounded_like(const AttentionGradients& g) const {
    Outputs out;
    const std::map<std::string, const std::vector<double>*> of = {{"ct.q", &g.q},
                                                                  {"ct.k", &g.k},
                                                                  {"ct.v", &g.v},
                                                                  {"ct.bias", &g.bias},
                                                                  {"ct.sinks", &g.sinks}};
    for (const auto& [name, array] : run.out) out[name] = rounded(array, *of.at(name));
    return out;
  }
  // ct.o with the elements for which `keep` does not hold at 0; its owner is `memory`.
  ArrayRef only(Array& memory, const std::function<bool(Index batch, Index head)>& keep) const {
    const AttentionRun& a = vjp.primal;
    const bool bthd = a.options.layout == Layout::kBTHD;
    std::vector<double> values = reference::values(run.in.at("ct.o"));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Index row = static_cast<Index>(i) / a.width, b = row / (a.heads * a.queries);
      const Index h = bthd ? row % a.heads : row / a.queries % a.heads;
      if (!keep(b, h)) values[i] = 0;
    }
    memory = rounded(run.in.at("ct.o"), values);
    return memory.ref();
  }
};

// A fault of the backward pass alone. Nothing: it does not apply to the run.
struct Fault {
  const char* name;
  std::function<std::optional<AttentionGradients>(const Given&)> make;
  std::set<std::string> guesses = {};  // what may rightly be said of it
};

inline const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"dq and dk without the scale",
       [](const Given& given) -> std::optional<AttentionGradients> {
         AttentionGradients g = gradients(given.right());
         for (auto* values : {&g.q, &g.k}) {
           for (double& x : *values) x /= given.vjp.primal.options.scale;
         }
         return g;
       },
       {"scaled by c"}},
      {"delta missing",
       [](const Given& given) -> std::optional<AttentionGradients> {
         // As if the cotangent of lse were delta more.
         Backward b = given.right();
         const AttentionRun& run = given.vjp.primal;
         Array lse(DType::kF64, run.lse_shape());
         auto to = lse.mutable_elements<double>();
         std::size_t at = 0;
         attention_vjp_rows(run.in, b.ct, run.options,
                            [&](const AttentionRow&, const AttentionRowGradient& g) {
                              to[at++] = g.ct_lse + g.delta;
                            });
         b.ct.lse = lse.ref();
         b.kernel.options.lse_base = LogBase::kE;
         return gradients(b);
       },
       {"delta missing"}},
      {"ct.lse ignored",
       [](const Given& given) -> std::optional<AttentionGradients> {
         Backward b = given.right();
         if (!b.ct.lse) return std::nullopt;
         b.ct.lse.reset();
         return gradients(b);
       },
       {"ct.lse ignored"}},
      {"dk and dv of the last query head of a group only",
       [](const Given& given) -> std::optional<AttentionGradients> {
         const Index per_group = given.vjp.primal.heads / given.vjp.primal.groups;
         if (per_group == 1 || given.vjp.ct.lse) return std::nullopt;
         Backward b = given.right();
         AttentionGradients g = gradients(b);
         Array memory;
         b.ct.o = given.only(memory, [&](Index, Index h) { return (h + 1) % per_group == 0; });
         AttentionGradients last = gradients(b);
         g.k = std::move(last.k), g.v = std::move(last.v);
         return g;
       },
       {"heads of a group not summed"}},
      {"dbias of the first batch only",
       [](const Given& given) -> std::optional<AttentionGradients> {
         if (!given.vjp.primal.in.bias || given.vjp.ct.lse) return std::nullopt;
         Backward b = given.right();
         AttentionGradients g = gradients(b);
         Array memory;
         b.ct.o = given.only(memory, [](Index batch, Index) { return batch == 0; });
         g.bias = gradients(b).bias;
         return g;
       }},
      {"dbias without the scale, or with it",
       [](const Given& given) -> std::optional<AttentionGradients> {
         if (!given.vjp.primal.in.bias) return std::nullopt;
         AttentionGradients g = gradients(given.right());
         const double scale = given.vjp.primal.options.scale;
         const bool before = given.vjp.primal.options.bias_order == BiasOrder::kBeforeScale;
         for (double& x : g.bias) x *= before ? 1 / scale : scale;
         return g;
       },
       {"scaled by c"}},
      {"rows without a key share out ct.o",
       [](const Given& given) -> std::optional<AttentionGradients> {
         Backward b = given.right();
         FullyMasked& rule = b.kernel.options.fully_masked;
         rule = rule == FullyMasked::kUniform ? FullyMasked::kZero : FullyMasked::kUniform;
         return gradients(b);
       },
       {"fully masked rows"}},
  };
  return all;
}

}  // namespace kref
