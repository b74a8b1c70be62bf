// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_faults.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "dsl/flat_index.h"
#include "golden/attention_row.h"
#include "golden/compared.h"

namespace kref {
namespace {

using reference::AttentionRow;

// Rows that are computed at a time: each pass converts the keys and values of its head.
constexpr Index kRows = 64;

// The run, kept alive for its alternatives, and what they share: made when the first is tried.
struct Source {
  Run run;
  std::optional<DecodeRun> decode = {};
  std::optional<reference::DecodeAsAttention> as = {};
  std::optional<WrongAttention> right = {};
  std::optional<AttentionBounds> bounds = {};

  const AttentionRun& attention() const { return right->run; }
  const AttentionBounds& of_arrays() {
    if (!bounds) bounds.emplace(attention());
    return *bounds;
  }
};

// A kernel, and which kv head each head reads.
class Kernel {
 public:
  Kernel(std::shared_ptr<Source> source, WrongAttention wrong, std::string output)
      : source_(std::move(source)), wrong_(std::move(wrong)), output_(std::move(output)) {
    const AttentionRun& run = wrong_.run;
    for (Index h = 0; h < run.heads; ++h) kv_heads_.push_back(h / (run.heads / run.groups));
  }

  std::vector<Index>& kv_heads() { return kv_heads_; }
  const AttentionRun& run() const { return wrong_.run; }

  // Rows of one head, as an expectation of that head's part: visit(first element, row, bounds).
  void rows(Index b, Index h, Index kv_head, Index first, Index count, auto&& visit) {
    if (!rows_) rows_.emplace(wrong_, source_->of_arrays());
    (*rows_)(b, h, kv_head, first, count,
             [&](const AttentionRow& row, const RowBounds& bounds) { visit(row, bounds); });
  }

  // The flat index of the first element that a row gives.
  Index first_of(const AttentionRow& row) const {
    const AttentionRun& r = run();
    if (output_ == "lse") return (row.batch * r.heads + row.head) * r.queries + row.query;
    return reference::o_offset(r.options.layout, r.heads, r.queries, r.width, row);
  }
  void put(Expectation& e, std::size_t first, const AttentionRow& row, const RowBounds& b) const {
    output_ == "o" ? put_o(e, first, row, b) : put_lse(e, first, row, b);
  }
  Expectation of_row(const AttentionRow& row, const RowBounds& bounds) const {
    Expectation e = bounded_output("", per_row());
    put(e, 0, row, bounds);
    return e;
  }
  std::size_t per_row() const { return output_ == "o" ? static_cast<std::size_t>(run().width) : 1; }

  // An element on the row that it belongs to: does `actual` lie within its bound, or is there
  // something that is not finite, which is left to the judge?
  bool plausible(Index element, double actual, Index kv_head) {
    const AttentionRun& r = run();
    std::vector<Index> at = unravel(element, output_ == "o" ? r.o_shape() : r.lse_shape());
    const auto column = static_cast<std::size_t>(output_ == "o" ? at.back() : 0);
    if (output_ == "o" && r.options.layout == reference::Layout::kBTHD) std::swap(at[1], at[2]);
    const Index head = at[1], query = at[2];
    if (kv_head < 0) kv_head = kv_heads_[static_cast<std::size_t>(head)];
    bool fits = false;
    rows(at[0], head, kv_head, query, 1, [&](const AttentionRow& row, const RowBounds& bounds) {
      const Expectation e = of_row(row, bounds);
      fits = !std::isfinite(actual) || !std::isfinite(e.value[column]) || !e.overflow.empty() ||
             std::fabs(actual - e.value[column]) <= e.likely[column];
    });
    return fits;
  }

  Expectation expect() {
    const AttentionRun& r = run();
    const auto rows_in_all = static_cast<std::size_t>(r.batches * r.heads * r.queries);
    Expectation out = bounded_output(output_.c_str(), rows_in_all * per_row());
    for (Index b = 0; b < r.batches; ++b) {
      for (Index h = 0; h < r.heads; ++h) {
        for (Index i = 0; i < r.queries; i += kRows) {
          rows(b, h, kv_heads_[static_cast<std::size_t>(h)], i, std::min(kRows, r.queries - i),
               [&](const AttentionRow& row, const RowBounds& bounds) {
                 put(out, static_cast<std::size_t>(first_of(row)), row, bounds);
               });
        }
      }
    }
    return out;
  }

  // Do rows of `actual` hold what they would if head h read that kv head?
  bool reads(const Array& actual, Index b, Index h, Index kv_head, Index first, Index count) {
    bool right = true;
    rows(b, h, kv_head, first, count, [&](const AttentionRow& row, const RowBounds& bounds) {
      const Expectation e = of_row(row, bounds);
      const std::vector<Index> shape = {static_cast<Index>(per_row())};
      const auto* from = static_cast<const char*>(actual.data()) +
                         static_cast<std::size_t>(first_of(row)) * size_of(actual.dtype());
      const Array part(actual.dtype(), shape, actual.owner(), from);
      const Compared c(e, part, BoundKind::kLikely);
      for (Index k = 0; k < part.size(); ++k) right = right && !c.wrong(k);
    });
    return right;
  }

 private:
  std::shared_ptr<Source> source_;
  WrongAttention wrong_;
  std::string output_;
  std::vector<Index> kv_heads_;
  std::optional<WrongRows> rows_;
};

Alternative simulated(const std::shared_ptr<Source>& source, const AttentionFault& fault,
                      const std::string& output) {
  WrongAttention wrong = *source->right;
  fault.make(wrong);
  const auto kernel = std::make_shared<Kernel>(source, std::move(wrong), output);
  Alternative out;
  out.name = fault.pattern;
  out.fault = true;
  out.plausible = [kernel](Index i, double actual) { return kernel->plausible(i, actual, -1); };
  out.expect = [kernel](const Array&) { return kernel->expect(); };
  out.detail = [text = fault.detail] { return text; };
  return out;
}

// "head h reads kv head h mod 2", or head by head.
std::string map_text(const std::vector<Index>& map, Index groups) {
  const auto heads = static_cast<Index>(map.size());
  const auto is = [&](auto rule) {
    for (Index h = 0; h < heads; ++h) {
      if (map[static_cast<std::size_t>(h)] != rule(h)) return false;
    }
    return true;
  };
  if (is([&](Index h) { return h % groups; })) {
    return detail::cat("head h reads kv head h mod ", groups);
  }
  if (is([&](Index h) { return groups - 1 - h / (heads / groups); })) {
    return "kv heads in reverse order";
  }
  if (is([&](Index) { return map[0]; })) return detail::cat("all heads read kv head ", map[0]);
  std::string out;
  constexpr Index kNamed = 8;
  for (Index h = 0, named = 0; h < heads; ++h) {
    const Index read = map[static_cast<std::size_t>(h)], right = h / (heads / groups);
    if (read == right) continue;
    if (named++ == kNamed) return out + ", ..";
    out +=
        detail::cat(out.empty() ? "" : ", ", "head ", h, " reads kv head ", read, ", not ", right);
  }
  return out;
}

// Any map of heads to kv heads: looked up head by head.
Alternative wrong_kv_head(const std::shared_ptr<Source>& source, const std::string& output) {
  const auto kernel = std::make_shared<Kernel>(source, *source->right, output);
  const Index groups = source->attention().groups, heads = source->attention().heads;
  Alternative out;
  out.name = "wrong kv head";
  out.fault = true;
  out.choices = std::min(1e300, std::pow(static_cast<double>(groups), static_cast<double>(heads)));
  out.plausible = [kernel, groups](Index i, double actual) {
    for (Index g = 0; g < groups; ++g) {
      if (kernel->plausible(i, actual, g)) return true;
    }
    return false;
  };
  out.expect = [kernel, groups](const Array& actual) {
    const AttentionRun& run = kernel->run();
    for (Index h = 0; h < run.heads; ++h) {
      Index& reads = kernel->kv_heads()[static_cast<std::size_t>(h)];
      std::vector<Index> left = {reads};  // the right one first: most explain nothing
      for (Index g = 0; g < groups; ++g) {
        if (g != reads) left.push_back(g);
      }
      // A few rows first: they leave one or none.
      for (Index b = 0; b < run.batches && left.size() > 1; ++b) {
        for (Index i = 0, n = 8; i < run.queries && left.size() > 1; i += n, n = kRows) {
          const Index count = std::min(n, run.queries - i);
          std::erase_if(left, [&](Index g) { return !kernel->reads(actual, b, h, g, i, count); });
        }
      }
      if (!left.empty()) reads = left[0];
    }
    return kernel->expect();
  };
  out.detail = [kernel, groups] { return map_text(kernel->kv_heads(), groups); };
  return out;
}

std::vector<Alternative> alternatives(const std::shared_ptr<Source>& source,
                                      const std::string& output) {
  std::vector<Alternative> out;
  const AttentionRun& run = source->attention();
  if (run.groups == 0 || run.queries == 0 || run.batches == 0) return out;
  for (const AttentionFault& fault : faults_of(*source->right, output)) {
    out.push_back(simulated(source, fault, output));
  }
  if (run.groups > 1) out.push_back(wrong_kv_head(source, output));
  return out;
}

}  // namespace

std::vector<Alternative> attention_faults(const Run& run, const std::string& output) {
  const auto source = std::make_shared<Source>(Source{.run = run});
  source->right = right_attention(read_attention(source->run));
  return alternatives(source, output);
}

std::vector<Alternative> decode_faults(const Run& run, const std::string& output) {
  const auto source = std::make_shared<Source>(Source{.run = run});
  source->decode = read_decode(source->run);
  source->as.emplace(source->decode->in, source->decode->options);
  source->right = right_decode(*source->decode, *source->as);
  std::vector<Alternative> out = alternatives(source, output);
  if (!source->decode->writes || out.empty()) return out;
  const AttentionFault stale{"new token missing", "rows see what its slot held before",
                             [&run](WrongAttention& w) {
                               w.run.in.k = run.in.at("k_cache");
                               w.run.in.v = run.in.at("v_cache");
                             }};
  out.push_back(simulated(source, stale, output));
  return out;
}

}  // namespace kref
