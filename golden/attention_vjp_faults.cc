// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_vjp_faults.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <set>
#include <utility>

#include "dsl/flat_index.h"
#include "golden/attention_faults.h"
#include "golden/attention_vjp_sums.h"
#include "kernels/reference.h"

namespace kref {
namespace {

using reference::AttentionRow;
using reference::AttentionRowGradient;

// Rows that are computed at a time: each pass converts the keys and values of its head.
constexpr Index kRows = 64;
// Pairs of a row and a key that a look at one element of ct.k, ct.v, ct.bias or ct.sinks may take.
constexpr Index kMostPairs = 1 << 19;

// What a wrong backward pass does after a right forward one.
struct BackwardFault {
  bool delta = true, ct_lse = true, slope = true;  // whether they are heeded
  Index head = -1;  // the only one of a group whose ct.k and ct.v count
};

// The run, kept alive for its alternatives, and what they share.
struct Source {
  Run run;
  AttentionVjpRun vjp;
  WrongAttention right;
  // Made when the first alternative is tried.
  std::optional<AttentionBounds> rows = {};
  std::optional<AttentionVjpBounds> gradients = {};
  std::vector<double> ct_o, ct_lse;
  std::optional<bool> q_right = {};  // are the rows of ct.q that are looked at?

  explicit Source(const Run& given)
      : run(given), vjp(read_attention_vjp(run)), right(right_attention(vjp.primal)) {}
  void prepare() {
    if (rows) return;
    rows.emplace(right.run);
    gradients.emplace(vjp);
    ct_o = reference::values(vjp.ct.o);
    if (vjp.ct.lse) ct_lse = reference::values(*vjp.ct.lse);
  }
};

class WrongBackward {
 public:
  WrongBackward(std::shared_ptr<Source> source, WrongAttention wrong, const BackwardFault& fault,
                std::string output)
      : source_(std::move(source)),
        wrong_(std::move(wrong)),
        fault_(fault),
        output_(std::move(output)),
        run_{wrong_.run, source_->vjp.ct} {
    const AttentionRun& run = wrong_.run;
    for (Index h = 0; h < run.heads; ++h) kv_heads_.push_back(h / (run.heads / run.groups));
  }

  std::vector<Index>& kv_heads() { return kv_heads_; }

  bool plausible(Index element, double actual) {
    const AttentionRun& run = run_.primal;
    if (output_ != "ct.q") return agrees() || (q_is_right() && alone(element, actual));
    const Array& q = source_->run.in.at("q");
    std::vector<Index> at = unravel(element, {q.shape().begin(), q.shape().end()});
    if (run.options.layout == reference::Layout::kBTHD) std::swap(at[1], at[2]);
    return fits(row_of(at[0], at[1], at[2]), static_cast<std::size_t>(at[3]), actual);
  }

  Expectation expect() { return sums_of({}); }

 private:
  using Part = std::pair<Index, Index>;  // batch and kv head: what adds to their ct.k and ct.v

  // The output, or what of it the rows of a part give.
  Expectation sums_of(const std::optional<Part>& part) {
    const AttentionRun& run = run_.primal;
    prepare();
    GradientSums sums(source_->run, run_, output_);
    for (Index b = 0; b < run.batches; ++b) {
      for (Index h = 0; h < run.heads; ++h) {
        if (skipped(h)) continue;
        const Index reads = kv_heads_[static_cast<std::size_t>(h)];
        if (part && *part != Part{b, reads}) continue;
        for (Index i = 0; i < run.queries; i += kRows) {
          rows(b, h, i, std::min(kRows, run.queries - i),
               [&](const AttentionRow& row, const AttentionRowGradient& g) {
                 const Index kv_head = kv_heads_[static_cast<std::size_t>(h)];
                 sums.add(row, g, (*bounds_)(row, g, kv_head), kv_head);
               });
        }
      }
    }
    return std::move(sums.expectations(bounds_->accumulator()).at(0));
  }

  // Kernels of their own compute ct.q on the one hand, ct.k and ct.v on the other: where ct.q is
  // right the fault may be in the others. Is the element what it would be? That takes all rows
  // which add to it, so large runs go without.
  bool alone(Index element, double actual) {
    const AttentionRun& run = run_.primal;
    std::optional<Part> part;
    Index pairs = run.batches * run.heads * run.queries * run.keys;
    if (output_ == "ct.k" || output_ == "ct.v") {
      const auto shape = source_->run.in.at(output_.substr(3)).shape();
      const std::vector<Index> at = unravel(element, {shape.begin(), shape.end()});
      const bool bthd = run.options.layout == reference::Layout::kBTHD;
      part = Part{at[0], at[bthd ? 2 : 1]};
      pairs /= run.batches * run.groups;
    }
    if (pairs > kMostPairs) return false;
    const Part key = part.value_or(Part{-1, -1});
    auto found = parts_.find(key);
    if (found == parts_.end()) found = parts_.emplace(key, sums_of(part)).first;
    return fits(found->second, static_cast<std::size_t>(element), actual);
  }

  bool q_is_right() {
    if (!source_->q_right) {
      source_->q_right = WrongBackward(source_, source_->right, BackwardFault{}, output_).agrees();
    }
    return *source_->q_right;
  }

  void prepare() {
    if (rows_) return;
    source_->prepare();
    rows_.emplace(wrong_, *source_->rows);
    bounds_.emplace(run_, *source_->gradients);
  }

  bool skipped(Index head) const {
    const AttentionRun& run = run_.primal;
    return fault_.head >= 0 && head % (run.heads / run.groups) != fault_.head;
  }

  void rows(Index b, Index h, Index first, Index count, auto&& visit) {
    const AttentionRun& run = run_.primal;
    AttentionRowGradient g;
    (*rows_)(b, h, kv_heads_[static_cast<std::size_t>(h)], first, count,
             [&](const AttentionRow& row, const RowBounds&) {
               const double* ct_o =
                   source_->ct_o.data() +
                   reference::o_offset(run.options.layout, run.heads, run.queries, run.width, row);
               const Index at = (row.batch * run.heads + row.head) * run.queries + row.query;
               double lse = 0;
               if (fault_.ct_lse && !source_->ct_lse.empty()) {
                 lse = source_->ct_lse[static_cast<std::size_t>(at)];
               }
               if (run.options.lse_base == reference::LogBase::k2) lse *= std::numbers::log2e;
               reference::row_gradient(row, run.options, ct_o, lse, g);
               // Without delta: as if the cotangent of lse were that much more.
               if (!fault_.delta) {
                 reference::row_gradient(row, run.options, ct_o, lse + g.delta, g);
               }
               if (!fault_.slope) unslope(g);
               visit(row, g);
             });
  }

  void unslope(AttentionRowGradient& g) const {
    const reference::AttentionOptions& options = run_.primal.options;
    const bool before = options.bias_order == reference::BiasOrder::kBeforeScale;
    for (AttentionRowGradient::Key& key : g.keys) {
      key.slope = 1;
      key.product = key.logit * options.scale;
      key.bias = before ? key.product : key.logit;
    }
  }

  // One row of ct.q.
  Expectation row_of(Index b, Index h, Index i) {
    prepare();
    const AttentionRun& run = run_.primal;
    GradientSum q("ct.q", run.dtype(), 1, run.depth);
    const double scale = run.options.scale;
    rows(b, h, i, 1, [&](const AttentionRow& row, const AttentionRowGradient& g) {
      const RowGradientErrors& errors = (*bounds_)(row, g, kv_heads_[static_cast<std::size_t>(h)]);
      for (std::size_t j = 0; j < row.keys.size(); ++j) {
        const GradientError& e = errors.keys[j].rounded;
        q.add(0, g.keys[j].product, {std::fabs(scale) * e.likely, std::fabs(scale) * e.worst},
              row.k + row.keys[j].index * run.depth, errors.overflow);
      }
    });
    return q.expectation(bounds_->accumulator(), scale, [](std::size_t) { return HUGE_VAL; });
  }
  // What is not finite, and ought to be, is left to the judge.
  static bool fits(const Expectation& e, std::size_t column, double actual) {
    if (e.overflow[column] != 0) return true;
    if (!std::isfinite(actual) || !std::isfinite(e.value[column])) {
      return std::isfinite(actual) == std::isfinite(e.value[column]);
    }
    return std::fabs(actual - e.value[column]) <= e.likely[column];
  }

  // Are a few rows of the run's ct.q what this backward pass would give?
  bool agrees() {
    if (agrees_) return *agrees_;
    agrees_ = true;
    const AttentionRun& run = run_.primal;
    const Array& q = source_->run.out.at("ct.q");
    for (const Index b : std::set<Index>{0, run.batches - 1}) {
      for (const Index h : std::set<Index>{0, run.heads / 2, run.heads - 1}) {
        for (const Index i :
             std::set<Index>{0, 1 % run.queries, run.queries / 2, run.queries - 1}) {
          const Expectation e = row_of(b, h, i);
          const Index first =
              run.depth * reference::row_index(run.options.layout, b, run.heads, h, run.queries, i);
          for (Index d = 0; d < run.depth && *agrees_; ++d) {
            agrees_ = fits(e, static_cast<std::size_t>(d), q.at(first + d));
          }
          if (!*agrees_) return false;
        }
      }
    }
    return true;
  }

  const std::shared_ptr<Source> source_;
  const WrongAttention wrong_;
  const BackwardFault fault_;
  const std::string output_;
  const AttentionVjpRun run_;
  std::vector<Index> kv_heads_;
  std::optional<WrongRows> rows_;
  std::optional<AttentionVjpBounds> bounds_;
  std::optional<bool> agrees_;
  std::map<Part, Expectation> parts_;
};

Alternative simulated(std::shared_ptr<WrongBackward> kernel, const std::string& pattern,
                      const std::string& text) {
  Alternative out;
  out.name = pattern;
  out.fault = true;
  out.plausible = [kernel](Index i, double actual) { return kernel->plausible(i, actual); };
  out.expect = [kernel](const Array&) { return kernel->expect(); };
  out.detail = [text] { return text; };
  return out;
}

}  // namespace

std::vector<Alternative> attention_vjp_faults(const Run& run, const std::string& output) {
  std::vector<Alternative> out;
  const auto source = std::make_shared<Source>(run);
  const AttentionRun& request = source->vjp.primal;
  const Index groups = request.groups;
  if (groups == 0 || request.queries == 0 || request.batches == 0) return out;
  const auto backward = [&](const std::string& pattern, const std::string& text,
                            const BackwardFault& fault) {
    out.push_back(simulated(std::make_shared<WrongBackward>(source, source->right, fault, output),
                            pattern, text));
  };
  for (const AttentionFault& fault : faults_of(source->right, source->vjp.ct.lse ? "lse" : "o")) {
    WrongAttention wrong = source->right;
    fault.make(wrong);
    out.push_back(simulated(
        std::make_shared<WrongBackward>(source, std::move(wrong), BackwardFault{}, output),
        fault.pattern, fault.detail));
  }
  if (groups > 1 && groups < request.heads) {
    const auto kernel =
        std::make_shared<WrongBackward>(source, source->right, BackwardFault{}, output);
    for (std::size_t h = 0; h < kernel->kv_heads().size(); ++h) {
      kernel->kv_heads()[h] = static_cast<Index>(h) % groups;
    }
    out.push_back(
        simulated(kernel, "wrong kv head", detail::cat("head h reads kv head h mod ", groups)));
  }
  if (output != "ct.v") {
    backward("delta missing", "ds is p dp, without - delta", {.delta = false});
    if (source->vjp.ct.lse) backward("ct.lse ignored", "", {.ct_lse = false});
    if (request.options.soft_cap && output != "ct.sinks") {
      backward("slope of the soft cap missing", "", {.slope = false});
    }
  }
  const Index per_group = request.heads / groups;
  if (per_group > 1 && (output == "ct.k" || output == "ct.v")) {
    const char* const name = "heads of a group not summed";
    backward(name, "the first of each alone", {.head = 0});
    backward(name, "the last of each alone", {.head = per_group - 1});
  }
  return out;
}

}  // namespace kref
