// SPDX-License-Identifier: Apache-2.0
// The faults of attention kernels that published ones had, or might have.
#include <algorithm>
#include <cmath>

#include "golden/attention_faults.h"

namespace kref {
namespace {

using reference::BiasOrder;
using reference::Causal;
using reference::FullyMasked;
using reference::LogBase;
using reference::NegativeSegments;

class List {
 public:
  explicit List(const WrongAttention& kernel) : kernel_(kernel), sight_(kernel.sight) {}

  void positions() {
    if (options().causal == Causal::kNone) return;
    sight("causal off by one", "every row sees one key too many",
          [](Sight& s) { s.right = *s.right + 1; });
    sight("strict causal", "no row sees the key at its own position",
          [](Sight& s) { s.right = *s.right - 1; });
    sight("causal ignored", "rows see the keys after them",
          [window = options().window.right](Sight& s) { s.right = window; });
    const Index bottom = kernel_.run.keys - kernel_.run.queries;
    if (bottom == 0) return;
    const bool top = options().causal == Causal::kTopLeft;
    sight("wrong causal alignment", top ? "as bottom_right" : "as top_left",
          [to = top ? bottom : 0](Sight& s) { s.offset = to; });
  }

  void window() {
    const char* const kLong = "window one too long";
    const char* const kShort = "window one too short";
    // Under causal the right side counts where it ends before the position: nowhere.
    const bool left = sight_.left.has_value();
    const bool right = sight_.right.has_value() && options().causal == Causal::kNone;
    const auto add = [&](const char* pattern, const char* detail, Index l, Index r) {
      sight(pattern, detail, [l, r](Sight& s) {
        if (l != 0) s.left = *s.left + l;
        if (r != 0) s.right = *s.right + r;
      });
    };
    if (left) {
      add(kLong, "one key more on the left", 1, 0);
      add(kShort, "one key less on the left", -1, 0);
    }
    if (right) {
      add(kLong, "one key more on the right", 0, 1);
      add(kShort, "one key less on the right", 0, -1);
    }
    if (left && right) {
      add(kLong, "one key more on both sides", 1, 1);
      add(kShort, "one key less on both sides", -1, -1);
    }
    if (!left && !right) return;
    sight("window ignored", "rows see the keys outside it", [right](Sight& s) {
      s.left.reset();
      if (right) s.right.reset();
    });
  }

  void ends() {
    sight("last key missing", "of the array", [](Sight& s) { s.last = 1; });
    sight("first key missing", "key 0", [](Sight& s) { s.first = 1; });
    if (!kernel_.run.in.kv_lengths) return;
    sight("last key missing", "of each sequence", [](Sight& s) { s.length = -1; });
    sight("one key past the length", "rows see the first stale one",
          [](Sight& s) { s.length = 1; });
  }

  void masks() {
    const reference::AttentionInputs& in = kernel_.run.in;
    const bool lengths = in.kv_lengths.has_value(), segments = in.q_segment_ids.has_value();
    if (in.mask) sight("mask ignored", "", [](Sight& s) { s.mask = false; });
    if (segments) sight("segments ignored", "", [](Sight& s) { s.segments = false; });
    if (lengths) {
      sight("lengths ignored", "rows see the keys past them",
            [](Sight& s) { s.kv_lengths = false; });
    }
    if (in.mask.has_value() + segments + lengths > 1) {
      std::string name = in.mask ? "mask" : "";
      if (segments) name += name.empty() ? "segments" : " and segments";
      if (lengths) name += " and lengths";
      sight(name + " ignored", "", [](Sight& s) { s.mask = s.segments = s.kv_lengths = false; });
    }
    if (in.q_lengths) {
      add("lengths ignored", "rows past theirs are computed",
          [](WrongAttention& w) { w.run.in.q_lengths.reset(); });
    }
    if (segments) {
      const bool match = options().negative_segments == NegativeSegments::kMatch;
      option("negative segments", match ? "they match nothing" : "they match each other",
             [match](reference::AttentionOptions& o) {
               o.negative_segments = match ? NegativeSegments::kNever : NegativeSegments::kMatch;
             });
    }
    const std::pair<FullyMasked, const char*> dead[] = {{FullyMasked::kZero, "zero"},
                                                        {FullyMasked::kUniform, "uniform"},
                                                        {FullyMasked::kNaN, "nan"}};
    for (const auto& [rule, name] : dead) {
      if (rule == options().fully_masked || kernel_.run.keys == 0) continue;
      option("fully masked rows", std::string("as fully_masked ") + name,
             [to = rule](reference::AttentionOptions& o) { o.fully_masked = to; });
    }
  }

  void scores() {
    const double scale = options().scale;
    const double root = 1 / std::sqrt(static_cast<double>(std::max<Index>(1, kernel_.run.depth)));
    const auto scaled = [&](const char* pattern, const std::string& detail, double to) {
      option(pattern, detail, [to](reference::AttentionOptions& o) { o.scale = to; });
    };
    if (scale != 1) {
      scaled("scale missing", "as scale 1", 1);
      scaled("scale applied twice", "as " + detail::cat(scale * scale), scale * scale);
    }
    // Up to a rounding of the user's.
    if (std::fabs(scale - root) > 1e-6 * root && root != 1)
      scaled("wrong scale", "1 / sqrt(D)", root);
    if (options().soft_cap) {
      option("soft cap missing", "", [](reference::AttentionOptions& o) { o.soft_cap.reset(); });
    }
    if (kernel_.run.in.bias) {
      add("bias missing", "", [](WrongAttention& w) { w.run.in.bias.reset(); });
      if (scale != 1) {
        const bool after = options().bias_order == BiasOrder::kAfterScale;
        option("wrong bias order", after ? "scaled with q.k" : "added after the scale",
               [after](reference::AttentionOptions& o) {
                 o.bias_order = after ? BiasOrder::kBeforeScale : BiasOrder::kAfterScale;
               });
      }
    }
    if (kernel_.run.in.sinks) {
      add("sink missing", "", [](WrongAttention& w) { w.run.in.sinks.reset(); });
    }
  }

  void base() {
    const bool e = options().lse_base == LogBase::kE;
    option("wrong lse base", e ? "base 2" : "base e",
           [e](reference::AttentionOptions& o) { o.lse_base = e ? LogBase::k2 : LogBase::kE; });
  }

  std::vector<AttentionFault> take() { return std::move(out_); }

 private:
  const reference::AttentionOptions& options() const { return kernel_.run.options; }
  void add(const std::string& pattern, const std::string& detail,
           std::function<void(WrongAttention&)> make) {
    out_.push_back({pattern, detail, std::move(make)});
  }
  template <class Change>
  void sight(const std::string& pattern, const std::string& detail, Change change) {
    add(pattern, detail, [change](WrongAttention& w) { change(w.sight); });
  }
  template <class Change>
  void option(const std::string& pattern, const std::string& detail, Change change) {
    add(pattern, detail, [change](WrongAttention& w) { change(w.run.options); });
  }

  const WrongAttention& kernel_;
  const Sight& sight_;
  std::vector<AttentionFault> out_;
};

}  // namespace

std::vector<AttentionFault> faults_of(const WrongAttention& kernel, const std::string& output) {
  List list(kernel);
  list.positions();
  list.window();
  list.ends();
  list.masks();
  list.scores();
  if (output == "lse") list.base();
  return list.take();
}

}  // namespace kref
