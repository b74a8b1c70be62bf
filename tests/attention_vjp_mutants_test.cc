// SPDX-License-Identifier: Apache-2.0
// Wrong backward passes against the judge: where a fault changes a gradient it has to be found, and
// what the report guesses has to be so.
#include <doctest/doctest.h>

#include <set>

#include "golden/attention_vjp_op.h"
#include "kernels/reference.h"
#include "tests/attention_mutants.h"

namespace kref {
namespace {

using Outputs = std::map<std::string, Array>;

// Gradients with the cotangents of a run.
struct Backward {
  Kernel kernel;
  AttentionCotangents ct;
};

AttentionGradients gradients(const Backward& b) {
  const auto request = request_of(b.kernel);
  return attention_vjp(request.first, b.ct, request.second);
}

// Those of one query head for each kv head, summed over the heads that read it as `group` says.
void fold(const Kernel& k, Index batches, Index width, std::vector<double>& values,
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

const std::vector<Fault>& faults() {
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

// The faults of the forward pass, made in both passes.
std::optional<AttentionGradients> mutated(const Given& given, const Mutant& mutant) {
  Backward b = given.right();
  const Index batches = given.vjp.primal.batches;
  if (!mutant.break_it(b.kernel)) return std::nullopt;
  AttentionGradients g = gradients(b);
  if (!b.kernel.copies.empty()) {  // the wrong kv head
    fold(b.kernel, batches, given.vjp.primal.depth, g.k, b.kernel.kv_head);
    fold(b.kernel, batches, given.vjp.primal.width, g.v, b.kernel.kv_head);
  }
  for (auto* values : {&g.q, &g.k, &g.v, &g.bias, &g.sinks}) {
    if (b.kernel.zeros) values->assign(values->size(), 0.0);
  }
  const auto size = [](const std::optional<ArrayRef>& a) {
    return static_cast<std::size_t>(a ? a->size() : 0);
  };
  g.bias.resize(size(given.vjp.primal.in.bias), 0.0);
  g.sinks.resize(size(given.vjp.primal.in.sinks), 0.0);
  return g;
}

struct Counts {
  int made = 0, found = 0;
  int named = 0, right = 0, unknown = 0, wrong = 0;
  std::map<std::string, int> of;
};

// Is what the verdict says of the output so, whatever the fault? A gradient may come out as zeros
// or NaN because of a wrong mask, too.
bool observed(const Expectation& e, const Array& bad, const Verdict& verdict) {
  Index wrong = 0, empty = 0, odd = 0;
  for (Index i = 0; i < bad.size(); ++i) {
    const double bound = e.likely[static_cast<std::size_t>(i)], actual = bad.at(i);
    if (std::fabs(actual - e.value[static_cast<std::size_t>(i)]) <= bound) continue;
    ++wrong;
    empty += actual == 0 || std::isnan(actual);
    odd += !std::isfinite(actual);
  }
  if (verdict.pattern == "tile missing") return wrong == empty;
  return verdict.pattern == "non-finite" && odd > 0;
}

// One output that a fault changed.
struct Fate {
  std::string path, fault;
  std::set<std::string> guesses;  // what may rightly be said of it
};

// Its rows are ramps and its heads alike: a wrong mask shifts the rows of ct.q, a wrong kv head
// swaps heads and a lost one halves sums, all to the last bit.
bool said_of_ramps(const Fate& fate, const Verdict& verdict) {
  return fate.path.find("g034") != std::string::npos &&
         (verdict.pattern == "rows shifted" || verdict.pattern == "tiles swapped" ||
          verdict.pattern == "scaled by c" || verdict.pattern == "scale missing");
}

void judge_fault(const std::vector<Expectation>& expected, const Outputs& good, const Outputs& bad,
                 const Fate& fate, Counts& counts) {
  if (std::none_of(good.begin(), good.end(),
                   [&](const auto& g) { return differ(g.second, bad.at(g.first)); })) {
    return;
  }
  ++counts.made;
  bool caught = false;
  for (const Expectation& e : expected) {
    const Verdict verdict = judge(e, bad.at(e.output));
    if (verdict.ok()) continue;
    caught = true;
    CAPTURE(e.output);
    CAPTURE(report(verdict));
    const bool unknown = verdict.pattern == "unknown" && verdict.hint.empty();
    const bool named = std::any_of(fate.guesses.begin(), fate.guesses.end(), [&](const auto& g) {
      return verdict.pattern.find(g) != std::string::npos;
    });
    const bool allowed =
        named || observed(e, bad.at(e.output), verdict) || said_of_ramps(fate, verdict);
    CHECK((unknown || allowed));
    ++(unknown ? counts.unknown : named ? counts.named : allowed ? counts.right : counts.wrong);
  }
  counts.found += caught;
  counts.of[fate.fault] += caught;
  // Every row of it sees one key alone, so that ct.q and ct.k are what is left of a difference of
  // equal numbers: less than its rounding errors.
  CHECK((caught || fate.path.find("g032") != std::string::npos));
}

TEST_CASE("every fault of a backward pass that changes a gradient is found, with no wrong guess") {
  Counts counts;
  const std::vector<std::string> paths = run_paths("attention_vjp");
  for (const std::string& path : paths) {
    CAPTURE(path);
    const Given given(path);
    const std::vector<Expectation> expected = find_operation("attention.vjp").expect(given.run);
    const Outputs good = given.rounded_like(gradients(given.right()));
    CHECK(right(expected, good));
    for (const Mutant& mutant : mutants()) {
      CAPTURE(std::string(mutant.name));
      const auto g = mutated(given, mutant);
      if (!g) continue;
      judge_fault(expected, good, given.rounded_like(*g), {path, mutant.name, {mutant.pattern}},
                  counts);
    }
    for (const Fault& fault : faults()) {
      CAPTURE(std::string(fault.name));
      const auto g = fault.make(given);
      if (!g) continue;
      judge_fault(expected, good, given.rounded_like(*g), {path, fault.name, fault.guesses},
                  counts);
    }
    for (const auto& entry : good) {
      const std::string& name = entry.first;
      const Array& array = entry.second;
      CAPTURE(name);
      Outputs bad = good;
      std::vector<double> values = reference::values(array);
      values[values.size() / 2] = std::numeric_limits<double>::quiet_NaN();
      bad[name] = rounded(array, values);
      judge_fault(expected, good, bad, {path, "NaN", {}}, counts);
      // The first batch and head, or all there is of it.
      if (name == "ct.sinks" || array.extent(0) * array.extent(1) < 2) continue;
      const auto tile = static_cast<std::size_t>(array.size() / array.extent(0) / array.extent(1));
      values = reference::values(array);
      std::fill_n(values.begin(), tile, 0.0);
      bad[name] = rounded(array, values);
      judge_fault(expected, good, bad, {path, "one tile zeroed", {}}, counts);
    }
  }
  MESSAGE(counts.found, " of ", counts.made, " faults found in ", paths.size(),
          " runs; guesses: ", counts.named, " name the fault, ", counts.right,
          " what is to be seen of it, ", counts.unknown, " unknown, 0 wrong");
  CHECK(counts.of.size() >= 20);
  for (const auto& [name, count] : counts.of) CHECK((count > 0 || name.empty()));
}

}  // namespace
}  // namespace kref
