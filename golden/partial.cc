// SPDX-License-Identifier: Apache-2.0
// Judges partial results of attention: each row once in full, then cut after each block of keys.
#include "golden/partial.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dsl/flat_index.h"
#include "golden/attention_bound.h"
#include "golden/compared.h"
#include "golden/decode_op.h"
#include "golden/partial_states.h"

namespace kref {
namespace {

using reference::AttentionRow;
using reference::Layout;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLog2E = 1.4426950408889634;

// Which states the sinks have joined: kernels begin with them, or add them at the end, before or
// after what they dump last.
enum class SinkIn { kAll, kLast, kNone };
constexpr const char* kSinkNames[] = {"all", "last", "none"};

// |actual - expected| as a fraction of the bound, by the rules of the judge.
class Ratio {
 public:
  explicit Ratio(DType type)
      : nothing_(type, std::array{Index{0}}), compared_(none_, nothing_, BoundKind::kLikely) {}
  Ratio(const Ratio&) = delete;
  double operator()(double actual, double expected, double bound, std::uint8_t overflow) const {
    return compared_.ratio(actual, expected, bound, overflow);
  }

 private:
  const Expectation none_{};
  const Array nothing_;
  const Compared compared_;
};

class Scan {
 public:
  Scan(const AttentionRun& run, const CheckedStates& states, SinkIn sinks,
       const std::vector<Verdict>& outputs)
      : run_(of_type(run, states.values->dtype())),
        states_(states),
        sinks_(sinks),
        bounds_(run_),
        ratio_(states.values->dtype()),
        lse_ratio_(DType::kF32),
        wrong_at_(static_cast<std::size_t>(states.count), 0) {
    out_.blocks = states.count, out_.block_keys = states.block, out_.keys = run.keys;
    out_.assumed = states.assumed;
    if (run.in.sinks) out_.sinks = kSinkNames[static_cast<std::size_t>(sinks)];
    for (const Verdict& v : outputs) {
      if (!v.ok() && (v.output == "o" || v.output == "lse")) ask(v);
    }
  }

  void operator()(const AttentionRow& full) {
    row_ = (full.batch * run_.heads + full.head) * run_.queries + full.query;
    first_ = reference::o_offset(run_.options.layout, run_.heads, run_.queries, run_.width, full);
    const RowBounds* bounds = nullptr;
    std::size_t count = 0;
    bool sink = false;
    for (Index j = 0; j < states_.count; ++j) {
      const std::size_t before = count;
      const Index end = (j + 1) * states_.block;  // at most S + block - 1
      while (count < full.keys.size() && full.keys[count].index < end) ++count;
      const bool joined =
          sinks_ == SinkIn::kAll || (sinks_ == SinkIn::kLast && j + 1 == states_.count);
      if (count != before || joined != sink) {
        sink = joined;
        bounds = cut(full, count, joined) ? &bounds_(part_) : nullptr;
      }
      if (bounds == nullptr) {
        ++out_.unseen;
      } else {
        judge_state(j, *bounds);
      }
    }
  }

  PartialVerdict take() {
    if (out_.first) out_.wrong_there = wrong_at_[static_cast<std::size_t>(out_.first->block)];
    return std::move(out_);
  }

 private:
  // The bound includes the rounding to the type of the states, not to that of the outputs.
  static AttentionRun of_type(AttentionRun run, DType type) {
    run.out_dtype = type;
    return run;
  }

  void ask(const Verdict& v) {
    const Index element = v.worst.element;
    Index row = element;
    if (v.output == "o") {
      row = element / run_.width;
      if (run_.options.layout == Layout::kBTHD) {
        const Index h = row % run_.heads, outer = row / run_.heads;
        row = (outer / run_.queries * run_.heads + h) * run_.queries + outer % run_.queries;
      }
    }
    asked_rows_.push_back(row);
    asked_elements_.push_back(v.output == "o" ? element : -1);
    out_.asked.push_back({.output = v.output, .index = v.worst.index});
  }

  // part_ = `full` after its first `count` keys. False: nothing that could be judged.
  bool cut(const AttentionRow& full, std::size_t count, bool sink) {
    if (count == 0 || full.kind != AttentionRow::Kind::kSoftmax) return false;
    part_.batch = full.batch, part_.head = full.head, part_.query = full.query;
    part_.q = full.q, part_.k = full.k, part_.v = full.v;
    part_.keys.assign(full.keys.begin(), full.keys.begin() + static_cast<std::ptrdiff_t>(count));
    part_.sink = sink ? full.sink : -kInfinity;
    part_.maximum = part_.sink;
    for (const AttentionRow::Key& key : part_.keys) {
      if (key.logit > part_.maximum || std::isnan(key.logit)) part_.maximum = key.logit;
    }
    if (part_.maximum == -kInfinity) return false;
    part_.denominator = std::exp(part_.sink - part_.maximum);
    for (AttentionRow::Key& key : part_.keys) {
      key.weight = std::exp(key.logit - part_.maximum);
      part_.denominator += key.weight;
    }
    part_.o.assign(full.o.size(), 0.0);
    for (AttentionRow::Key& key : part_.keys) {
      key.weight /= part_.denominator;
      const double* v = part_.v + key.index * run_.width;
      for (std::size_t e = 0; e < part_.o.size(); ++e) part_.o[e] += key.weight * v[e];
    }
    part_.lse = part_.maximum + std::log(part_.denominator);
    if (base2()) part_.lse *= kLog2E;
    return true;
  }
  bool base2() const { return run_.options.lse_base == reference::LogBase::k2; }

  void judge_state(Index j, const RowBounds& bounds) {
    const Index rows = run_.batches * run_.heads * run_.queries;
    const double l = states_.l == nullptr ? 1 : states_.l->at(j * rows + row_);
    // acc and l are rounded before they are divided; the bounds are of one rounding, of the result.
    const double rounding = states_.l == nullptr ? 0
                                                 : 2 * unit_roundoff(states_.values->dtype()) +
                                                       unit_roundoff(states_.l->dtype());
    for (Index e = 0; e < run_.width; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const double expected = part_.o[at];
      const double actual = states_.values->at(j * rows * run_.width + first_ + e) / l;
      const double bound = bounds.likely[at] + finite(rounding * std::fabs(expected));
      tally(j, false, first_ + e, expected, actual, bound,
            ratio_(actual, expected, bound, bounds.overflow[at]));
    }
    for (std::size_t a = 0; a < asked_rows_.size(); ++a) {
      if (asked_rows_[a] == row_) ++out_.asked[a].judged;
    }
    if (states_.lse == nullptr && states_.m == nullptr) return;
    double actual = 0, bound = bounds.lse_likely;
    if (states_.lse != nullptr) {
      actual = states_.lse->at(j * rows + row_);
    } else {
      const double m = states_.m->at(j * rows + row_);
      actual = (m + std::log(l)) * (base2() ? kLog2E : 1);
      bound += 2 * (unit_roundoff(states_.l->dtype()) +
                    finite(unit_roundoff(states_.m->dtype()) * std::fabs(m)));
    }
    tally(j, true, row_, part_.lse, actual, bound,
          lse_ratio_(actual, part_.lse, bound, bounds.lse_overflow));
  }
  static double finite(double value) { return std::isfinite(value) ? value : 0; }

  void tally(Index j, bool lse, Index element, double expected, double actual, double bound,
             double ratio) {
    ++out_.elements;
    out_.ratio = std::max(out_.ratio, ratio);
    if (ratio <= 1) return;
    ++out_.wrong;
    ++wrong_at_[static_cast<std::size_t>(j)];
    const auto found = [&] {
      const Array& of = lse ? *(states_.lse != nullptr ? states_.lse : states_.m) : *states_.values;
      const std::vector<Index> shape(of.shape().begin() + 1, of.shape().end());
      const bool raw = states_.l != nullptr;
      const char* const name = lse ? (raw ? "m + log l" : "lse") : (raw ? "acc / l" : "o");
      return PartialElement{name, unravel(element, shape), j, expected, actual, bound, ratio};
    };
    if (!out_.first || j < out_.first->block ||
        (j == out_.first->block && ratio > out_.first->ratio)) {
      out_.first = found();
    }
    // Where no lse is given that of the output departs with any element of its row.
    const bool any = states_.lse == nullptr && states_.m == nullptr;
    for (std::size_t a = 0; a < asked_rows_.size(); ++a) {
      PartialVerdict::Asked& asked = out_.asked[a];
      if (asked.first || asked_rows_[a] != row_) continue;
      const bool of_lse = asked_elements_[a] < 0;
      if (of_lse ? lse || any : !lse && asked_elements_[a] == element) asked.first = found();
    }
  }

  const AttentionRun run_;
  const CheckedStates& states_;
  const SinkIn sinks_;
  AttentionBounds bounds_;
  const Ratio ratio_, lse_ratio_;
  std::vector<Index> asked_rows_, asked_elements_;  // of out_.asked; element -1: of lse
  std::vector<Index> wrong_at_;                     // of each block
  AttentionRow part_;
  Index row_ = 0, first_ = 0;  // of the row: its number as of [B, H, T], its first element of o
  PartialVerdict out_;
};

PartialVerdict judge_states(const AttentionRun& run, const CheckedStates& states,
                            const std::vector<Verdict>& outputs) {
  reference::AttentionOptions exact = run.options;
  exact.p_dtype.reset();  // the bound covers the rounding, see expect_attention
  std::optional<PartialVerdict> best;
  for (const SinkIn sinks : {SinkIn::kAll, SinkIn::kLast, SinkIn::kNone}) {
    Scan scan(run, states, sinks, outputs);
    reference::attention_rows(run.in, exact, [&](const AttentionRow& row) { scan(row); });
    PartialVerdict found = scan.take();
    if (!best || found.wrong < best->wrong) best = std::move(found);
    if (best->ok() || !run.in.sinks) break;
  }
  return *best;
}

}  // namespace

PartialVerdict judge_attention_partials(const Run& run, const PartialStates& states,
                                        const std::vector<Verdict>& outputs) {
  const AttentionRun attention = read_attention(run);
  const Layout layout = attention.options.layout;
  const CheckedStates checked = check_states(
      run, states, attention.keys,
      {{"q", attention_dims("B H T D", layout)}, {"v", attention_dims("B G S E", layout)}},
      attention_dims("B H T E", layout), "B H T");
  return judge_states(attention, checked, outputs);
}

PartialVerdict judge_decode_partials(const Run& run, const PartialStates& states,
                                     const std::vector<Verdict>& outputs) {
  const DecodeRun decode = read_decode(run);
  const reference::DecodeAsAttention as(decode.in, decode.options);
  const CheckedStates checked = check_states(
      run, states, decode.slots, {{"q", "B H D"}, {"v_cache", "B S G E"}}, "B H E", "B H");
  return judge_states(as_attention(decode, as), checked, outputs);
}

}  // namespace kref
