// SPDX-License-Identifier: Apache-2.0
// Wrong attention kernels, for the tests of the judge: runs of the definition with one rule
// changed. Written apart from the judge's own simulations, over masks of all that a row sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "golden/attention_op.h"
#include "golden/decode_op.h"
#include "golden/judge.h"
#include "tests/op_runs.h"

namespace kref {

// The definition is what these kernels are made of.
using namespace reference;

// A kernel to be made wrong: inputs and options, and which keys each row sees.
struct Kernel {
  AttentionInputs in;
  AttentionOptions options;
  Index heads, groups, queries, keys;
  Array open;                                // BOOL [B, H, T, S]: by mask, segments and lengths
  mutable Array visible;                     // that, and by position
  std::vector<Index> last;                   // of each sequence: the last key that its length shows
  bool decode = false;                       // a row's position is `last`
  std::vector<Array> copies;                 // owners of changed inputs
  std::function<Index(Index head)> kv_head;  // where it is wrong
  bool zeros = false;                        // outputs nothing else

  // Keys position - left .. position + right, causal included.
  std::optional<Index> left, right;
  Index position(Index b, Index i) const {
    if (decode) return last[static_cast<std::size_t>(b)];
    return options.causal == Causal::kBottomRight ? keys - queries + i : i;
  }
  bool at_position(Index b, Index i, Index j) const {
    const Index ahead = j - position(b, i);
    return (!left || -ahead <= *left) && (!right || ahead <= *right);
  }
  bool& opens(Index b, Index h, Index i, Index j) {
    auto all = open.mutable_elements<bool>();
    return all[static_cast<std::size_t>(((b * heads + h) * queries + i) * keys + j)];
  }
  void change_open(const std::function<bool(Index b, Index h, Index i, Index j, bool)>& rule) {
    for (Index b = 0; b < open.extent(0); ++b)
      for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < queries; ++i)
          for (Index j = 0; j < keys; ++j) {
            bool& is = opens(b, h, i, j);
            is = rule(b, h, i, j, is);
          }
  }
};

inline Kernel right_kernel(const AttentionRun& run) {
  const std::vector<Index> shape = {run.batches, run.heads, run.queries, run.keys};
  Kernel k{.in = run.in,
           .options = run.options,
           .heads = run.heads,
           .groups = run.groups,
           .queries = run.queries,
           .keys = run.keys,
           .open = Array(DType::kBool, shape),
           .visible = {},
           .last = {},
           .copies = {},
           .kv_head = {},
           .left = run.options.window.left,
           .right = run.options.window.right};
  if (run.options.causal != Causal::kNone) k.right = std::min<Index>(0, k.right.value_or(0));
  for (Index b = 0; b < run.batches; ++b) {
    k.last.push_back(
        (run.in.kv_lengths ? run.in.kv_lengths->ref<const std::int32_t, 1>()(b) : run.keys) - 1);
  }
  // Biases of -infinity leave a key visible but hide it in a dead row; without the bias none is.
  AttentionInputs plain = run.in;
  plain.bias.reset();
  AttentionOptions anywhere = run.options;
  anywhere.causal = Causal::kNone, anywhere.window = {};
  attention_rows(plain, anywhere, [&](const AttentionRow& row) {
    for (const auto& key : row.keys) k.opens(row.batch, row.head, row.query, key.index) = true;
  });
  return k;
}

// Decode: attention of one row a sequence, over the keys its length shows.
inline Kernel right_kernel(const DecodeRun& run, const reference::DecodeAsAttention& as) {
  AttentionRun attention = as_attention(run, as);
  attention.in.mask.reset();
  attention.in.kv_lengths = run.in.lengths;
  Kernel k = right_kernel(attention);
  k.decode = true;
  k.left = run.options.window.left;
  return k;
}

// With a mask of its own.
inline Kernel copied(const Kernel& kernel) {
  Kernel out = kernel;
  out.open = Array(DType::kBool, kernel.open.shape());
  std::ranges::copy(kernel.open.elements<bool>(), out.open.mutable_elements<bool>().begin());
  return out;
}

// The inputs and options with which the definition does what the kernel does. Views the kernel.
inline std::pair<AttentionInputs, AttentionOptions> request_of(const Kernel& k) {
  k.visible = copied(k).open;
  auto visible = k.visible.mutable_elements<bool>();
  std::size_t at = 0;
  for (Index b = 0; b < k.visible.extent(0); ++b)
    for (Index h = 0; h < k.heads; ++h)
      for (Index i = 0; i < k.queries; ++i)
        for (Index j = 0; j < k.keys; ++j, ++at) {
          visible[at] = visible[at] && k.at_position(b, i, j);
        }
  AttentionInputs in = k.in;
  in.mask = k.visible.ref();
  in.q_segment_ids.reset(), in.kv_segment_ids.reset(), in.kv_lengths.reset();
  AttentionOptions options = k.options;
  options.causal = Causal::kNone;
  options.window = {};
  return {in, options};
}

// k or v with one kv head a query head: head h gets the one that `group` says.
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

inline bool read_kv_heads(Kernel& k, const std::function<Index(Index)>& group) {
  if (k.groups == 1) return false;
  k.copies.push_back(expanded(k.in.k, k.options.layout, k.heads, group));
  k.copies.push_back(expanded(k.in.v, k.options.layout, k.heads, group));
  k.kv_head = group;
  k.in.k = k.copies[0].ref(), k.in.v = k.copies[1].ref();
  return true;
}

struct Mutant {
  const char* name;
  const char* pattern;                    // what the report may call it
  std::function<bool(Kernel&)> break_it;  // false: the fault does not apply to the run
};

// Faults of the kernel.
inline const std::vector<Mutant>& mutants() {
  using K = Kernel;
  const auto causal = [](const K& k) { return k.options.causal != Causal::kNone; };
  static const std::vector<Mutant> all = {
      {"causal shows one key too many", "causal off by one",
       [=](K& k) { return causal(k) && k.right == 0 && (k.right = 1, true); }},
      {"strict causal", "strict causal", [=](K& k) { return causal(k) && (k.right = -1, true); }},
      {"causal ignored", "causal ignored",
       [=](K& k) { return causal(k) && (k.right = k.options.window.right, true); }},
      {"left side one too long", "window one too long",
       [](K& k) { return k.left && (k.left = *k.left + 1, true); }},
      {"left side one too short", "window one too short",
       [](K& k) { return k.left && (k.left = *k.left - 1, true); }},
      {"right side one too long", "window one too long",
       [=](K& k) { return k.right && !causal(k) && (k.right = *k.right + 1, true); }},
      {"right side one too short", "window one too short",
       [=](K& k) { return k.right && !causal(k) && (k.right = *k.right - 1, true); }},
      {"window ignored", "window ignored",
       [=](K& k) {
         if (!k.options.window.left && !k.left && !k.options.window.right) return false;
         k.left.reset();
         if (!causal(k)) k.right.reset();
         return true;
       }},
      {"last key of the array missing", "last key missing",
       [](K& k) {
         k.change_open([&](Index, Index, Index, Index j, bool is) { return is && j + 1 < k.keys; });
         return true;
       }},
      {"last key of each length missing", "last key missing",
       [](K& k) {
         if (!k.in.kv_lengths) return false;
         k.change_open([&](Index b, Index, Index, Index j, bool is) {
           return is && j != k.last[static_cast<std::size_t>(b)];
         });
         if (k.decode) {
           for (Index& last : k.last) --last;  // and so the row stands one before
         }
         return true;
       }},
      {"key 0 missing", "first key missing",
       [](K& k) {
         k.change_open([](Index, Index, Index, Index j, bool is) { return is && j > 0; });
         return true;
       }},
      {"mask, segments and lengths of keys ignored", "ignored",
       [](K& k) {
         if (!k.in.mask && !k.in.q_segment_ids && !k.in.kv_lengths) return false;
         k.change_open([](Index, Index, Index, Index, bool) { return true; });
         return true;
       }},
      {"interleaved kv heads", "wrong kv head",
       [](K& k) { return read_kv_heads(k, [g = k.groups](Index h) { return h % g; }); }},
      {"kv heads in reverse", "wrong kv head",
       [](K& k) {
         return read_kv_heads(k,
                              [g = k.groups, n = k.heads](Index h) { return g - 1 - h / (n / g); });
       }},
      {"kv head 0 for all", "wrong kv head",
       [](K& k) { return read_kv_heads(k, [](Index) { return Index{0}; }); }},
      {"the last head reads the kv head before", "wrong kv head",
       [](K& k) {
         return read_kv_heads(
             k, [g = k.groups, n = k.heads](Index h) { return h + 1 < n ? h / (n / g) : g - 2; });
       }},
      {"scale missing", "scale missing", [](K& k) { return k.options.scale = 1.0, true; }},
      {"soft cap missing", "soft cap missing",
       [](K& k) { return k.options.soft_cap.has_value() && (k.options.soft_cap.reset(), true); }},
      {"bias missing", "bias missing",
       [](K& k) { return k.in.bias.has_value() && (k.in.bias.reset(), true); }},
      {"bias on the wrong side of the scale", "wrong bias order",
       [](K& k) {
         k.options.bias_order = k.options.bias_order == BiasOrder::kAfterScale
                                    ? BiasOrder::kBeforeScale
                                    : BiasOrder::kAfterScale;
         return k.in.bias.has_value();
       }},
      {"sinks missing", "sink missing",
       [](K& k) { return k.in.sinks.has_value() && (k.in.sinks.reset(), true); }},
      {"lse in the other base", "wrong lse base",
       [](K& k) {
         k.options.lse_base = k.options.lse_base == LogBase::kE ? LogBase::k2 : LogBase::kE;
         return true;
       }},
      {"zeros", "tile missing", [](K& k) { return k.zeros = true; }},
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
  return run_files(std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/" + folder);
}

}  // namespace kref
