// SPDX-License-Identifier: Apache-2.0
// Wrong attention kernels: each fault is a run of the definition with one rule changed, rounded as
// a machine would.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "golden/attention_op.h"
#include "golden/judge.h"

namespace kref {

// The definition is what these kernels are made of.
using namespace reference;

// A kernel to be made wrong: the run's inputs and options, and which keys each row sees.
struct Kernel {
  AttentionInputs in;
  AttentionOptions options;
  Index heads, groups, queries, keys;
  Array visible;              // BOOL [B, H, T, S]
  std::vector<Array> copies;  // owners of changed inputs
  bool zeros = false;

  bool& sees(Index b, Index h, Index i, Index j) {
    auto all = visible.mutable_elements<bool>();
    return all[static_cast<std::size_t>(((b * heads + h) * queries + i) * keys + j)];
  }
  Index position(Index i) const {
    return options.causal == Causal::kBottomRight ? keys - queries + i : i;
  }
};

// All that decides what a row sees goes into one mask; a fault of visibility changes the mask.
inline Kernel right_kernel(const AttentionRun& run) {
  Kernel k{.in = run.in,
           .options = run.options,
           .heads = run.heads,
           .groups = run.groups,
           .queries = run.queries,
           .keys = run.keys,
           .visible = Array(DType::kBool,
                            std::vector<Index>{run.batches, run.heads, run.queries, run.keys}),
           .copies = {}};
  // Biases of -infinity leave a key visible but hide it in a dead row; without the bias none is.
  AttentionInputs plain = run.in;
  plain.bias.reset();
  attention_rows(plain, run.options, [&](const AttentionRow& row) {
    for (const auto& key : row.keys) k.sees(row.batch, row.head, row.query, key.index) = true;
  });
  return k;
}

// The inputs and options with which the definition does what the kernel does.
inline std::pair<AttentionInputs, AttentionOptions> request_of(const Kernel& k) {
  AttentionInputs in = k.in;
  in.mask = k.visible.ref();
  in.q_segment_ids.reset(), in.kv_segment_ids.reset(), in.kv_lengths.reset();
  AttentionOptions options = k.options;
  options.causal = Causal::kNone;
  options.window = {};
  return {in, options};
}

using Rule = std::function<bool(const Kernel&, Index b, Index h, Index i, Index j, bool seen)>;
inline void change_visibility(Kernel& k, const Rule& rule) {
  for (Index b = 0; b < k.visible.extent(0); ++b)
    for (Index h = 0; h < k.heads; ++h)
      for (Index i = 0; i < k.queries; ++i)
        for (Index j = 0; j < k.keys; ++j) {
          bool& seen = k.sees(b, h, i, j);
          seen = rule(k, b, h, i, j, seen);
        }
}

// q with its heads reordered so that head h reads the kv head that `group` says, in a kernel whose
// map is right: k and v are expanded to one kv head a query head.
inline Array expanded(const ArrayRef& a, Layout layout, Index heads,
                      const std::function<Index(Index)>& group) {
  std::vector<Index> shape(a.shape().begin(), a.shape().end());
  const std::size_t head = layout == Layout::kBTHD ? 2 : 1;
  shape[head] = heads;
  Array out(a.dtype, shape);
  MutableArrayRef to = out.mutable_ref();
  with_dtype(a.dtype, [&]<class T>() {
    const Ref<const T, 4> from = a.ref<const T, 4>();
    const Ref<T, 4> r = to.ref<T, 4>();
    for (Index b = 0; b < shape[0]; ++b)
      for (Index x = 0; x < shape[1]; ++x)
        for (Index y = 0; y < shape[2]; ++y)
          for (Index d = 0; d < shape[3]; ++d)
            r(b, x, y, d) = head == 1 ? from(b, group(x), y, d) : from(b, x, group(y), d);
  });
  return out;
}

struct Mutant {
  const char* name;
  std::function<bool(Kernel&)> break_it;  // false: the fault does not apply to the run
};

inline Index right_end(const Kernel& k) {  // last key ahead of the position that is seen
  const Index window = k.options.window.right.value_or(k.keys + k.queries);
  return k.options.causal == Causal::kNone ? window : std::min<Index>(0, window);
}

inline const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = {
      {"causal shows one key too many",
       [](Kernel& k) {
         if (k.options.causal == Causal::kNone) return false;
         change_visibility(k, [](const Kernel& c, Index, Index, Index i, Index j, bool seen) {
           return seen || j == c.position(i) + 1;
         });
         return true;
       }},
      {"strict causal",
       [](Kernel& k) {
         if (k.options.causal == Causal::kNone) return false;
         change_visibility(k, [](const Kernel& c, Index, Index, Index i, Index j, bool seen) {
           return seen && j < c.position(i);
         });
         return true;
       }},
      {"window one too long",
       [](Kernel& k) {
         if (!k.options.window.left) return false;
         change_visibility(k, [](const Kernel& c, Index, Index, Index i, Index j, bool seen) {
           return seen || j == c.position(i) - *c.options.window.left - 1;
         });
         return true;
       }},
      {"window one too short",
       [](Kernel& k) {
         if (!k.options.window.left) return false;
         change_visibility(k, [](const Kernel& c, Index, Index, Index i, Index j, bool seen) {
           return seen && j != c.position(i) - *c.options.window.left;
         });
         return true;
       }},
      {"right end of the window one too far",
       [](Kernel& k) {
         if (!k.options.window.right || k.options.causal != Causal::kNone) return false;
         change_visibility(k, [](const Kernel& c, Index, Index, Index i, Index j, bool seen) {
           return seen || j == c.position(i) + right_end(c) + 1;
         });
         return true;
       }},
      {"last key missing",
       [](Kernel& k) {
         change_visibility(k, [](const Kernel& c, Index, Index, Index, Index j, bool seen) {
           return seen && j + 1 < c.keys;
         });
         return true;
       }},
      {"key 0 missing",
       [](Kernel& k) {
         change_visibility(k, [](const Kernel&, Index, Index, Index, Index j, bool seen) {
           return seen && j > 0;
         });
         return true;
       }},
      {"mask, segments and lengths of keys ignored",
       [](Kernel& k) {
         if (!k.in.mask && !k.in.q_segment_ids && !k.in.kv_lengths) return false;
         change_visibility(k, [](const Kernel& c, Index, Index, Index i, Index j, bool) {
           const Index ahead = j - c.position(i);
           return ahead <= right_end(c) &&
                  -ahead <= c.options.window.left.value_or(c.keys + c.queries);
         });
         return true;
       }},
      {"wrong kv head",
       [](Kernel& k) {
         if (k.groups == 1 || k.groups == k.heads) return false;
         const auto group = [groups = k.groups](Index h) { return h % groups; };
         k.copies.push_back(expanded(k.in.k, k.options.layout, k.heads, group));
         k.copies.push_back(expanded(k.in.v, k.options.layout, k.heads, group));
         k.in.k = k.copies[0].ref(), k.in.v = k.copies[1].ref();
         return true;
       }},
      {"scale missing", [](Kernel& k) { return k.options.scale = 1.0, true; }},
      {"soft cap missing",
       [](Kernel& k) {
         return k.options.soft_cap.has_value() && (k.options.soft_cap.reset(), true);
       }},
      {"bias missing",
       [](Kernel& k) { return k.in.bias.has_value() && (k.in.bias.reset(), true); }},
      {"bias on the wrong side of the scale",
       [](Kernel& k) {
         k.options.bias_order = k.options.bias_order == BiasOrder::kAfterScale
                                    ? BiasOrder::kBeforeScale
                                    : BiasOrder::kAfterScale;
         return k.in.bias.has_value();
       }},
      {"sinks missing",
       [](Kernel& k) { return k.in.sinks.has_value() && (k.in.sinks.reset(), true); }},
      {"lse in the other base",
       [](Kernel& k) {
         k.options.lse_base = k.options.lse_base == LogBase::kE ? LogBase::k2 : LogBase::kE;
         return true;
       }},
      {"zeros", [](Kernel& k) { return k.zeros = true; }},
  };
  return all;
}

inline Array rounded(const Array& like, const std::vector<double>& values) {
  Array out(like.dtype(), like.shape());
  with_dtype(like.dtype(), [&]<class T>() {
    auto to = out.mutable_elements<T>();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  });
  return out;
}

// Do the outputs differ in a bit (+0 and -0 are the same, and so are NaNs)?
inline bool differ(const Array& a, const Array& b) {
  for (Index i = 0; i < a.size(); ++i) {
    const double x = a.at(i), y = b.at(i);
    if (x != y && !(std::isnan(x) && std::isnan(y))) return true;
  }
  return false;
}

inline bool right(const std::vector<Expectation>& expected,
                  const std::map<std::string, Array>& out) {
  return std::all_of(expected.begin(), expected.end(),
                     [&](const Expectation& e) { return judge(e, out.at(e.output)).ok(); });
}

// The run files in a folder of tests/runs.
inline std::vector<std::string> run_paths(const char* folder) {
  std::vector<std::string> paths;
  const std::string runs = std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/";
  for (const auto& entry : std::filesystem::directory_iterator(runs + folder)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace kref
