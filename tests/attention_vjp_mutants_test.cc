// SPDX-License-Identifier: Apache-2.0
// Wrong backward passes against the judge: where a fault changes a gradient it has to be found, and
// what the report guesses has to be so.
//
// KREF_ATTENTION_VJP_RUNS names a folder of run files to go through in place of those of the tree.
#include "tests/attention_vjp_mutants.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

namespace kref {
namespace {

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
  bool all = false;  // of the faults that leave ct.q right
  int made = 0, found = 0, split = 0;
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

std::vector<Expectation> expected_of(const Given& given, const Outputs& outputs) {
  Run run = given.run;  // what it put out is part of the guesses
  run.out = outputs;
  return find_operation("attention.vjp").expect(run);
}

void judge_outputs(const Given& given, const Outputs& good, const Outputs& bad, const Fate& fate,
                   Counts& counts) {
  if (std::none_of(good.begin(), good.end(),
                   [&](const auto& g) { return differ(g.second, bad.at(g.first)); })) {
    return;
  }
  ++counts.made;
  bool caught = false;
  for (const Expectation& e : expected_of(given, bad)) {
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

// In all that the pass computes, and where a kernel of its own computes ct.q rightly.
void judge_fault(const Given& given, const Outputs& good, const Outputs& bad, const Fate& fate,
                 Counts& counts) {
  judge_outputs(given, good, bad, fate, counts);
  if (!differ(good.at("ct.q"), bad.at("ct.q"))) return;
  if (!counts.all && ++counts.split % 3 != 0) return;  // some, for the time it takes
  Outputs others = bad;
  others["ct.q"] = good.at("ct.q");
  judge_outputs(given, good, others, fate, counts);
}

TEST_CASE("every fault of a backward pass that changes a gradient is found, with no wrong guess") {
  Counts counts;
  const char* const folder = std::getenv("KREF_ATTENTION_VJP_RUNS");
  counts.all = folder != nullptr;
  const std::vector<std::string> paths =
      folder != nullptr ? run_files(folder) : run_paths("attention_vjp");
  for (const std::string& path : paths) {
    CAPTURE(path);
    const Given given(path);
    const Outputs good = given.rounded_like(gradients(given.right()));
    CHECK(right(expected_of(given, good), good));
    for (const Mutant& mutant : mutants()) {
      CAPTURE(std::string(mutant.name));
      const auto g = mutated(given, mutant);
      if (!g) continue;
      judge_fault(given, good, given.rounded_like(*g), {path, mutant.name, {mutant.pattern}},
                  counts);
    }
    for (const Fault& fault : faults()) {
      CAPTURE(std::string(fault.name));
      const auto g = fault.make(given);
      if (!g) continue;
      judge_fault(given, good, given.rounded_like(*g), {path, fault.name, fault.guesses}, counts);
    }
    for (const auto& entry : good) {
      const std::string& name = entry.first;
      const Array& array = entry.second;
      CAPTURE(name);
      Outputs bad = good;
      std::vector<double> values = reference::values(array);
      values[values.size() / 2] = std::numeric_limits<double>::quiet_NaN();
      bad[name] = rounded(array, values);
      judge_fault(given, good, bad, {path, "NaN", {}}, counts);
      // The first batch and head, or all there is of it.
      if (name == "ct.sinks" || array.extent(0) * array.extent(1) < 2) continue;
      const auto tile = static_cast<std::size_t>(array.size() / array.extent(0) / array.extent(1));
      values = reference::values(array);
      std::fill_n(values.begin(), tile, 0.0);
      bad[name] = rounded(array, values);
      judge_fault(given, good, bad, {path, "one tile zeroed", {}}, counts);
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
