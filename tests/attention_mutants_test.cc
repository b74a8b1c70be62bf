// SPDX-License-Identifier: Apache-2.0
// Wrong attention and decode kernels against the judge. Each fault is a run of the definition with
// one rule changed, rounded as a machine would, or a change of the right output. Unless no element
// moves further than its bound, it has to be found; and what the report calls it must not be wrong.
//
// KREF_ATTENTION_RUNS names a folder of run files to go through in place of those of the tree.
#include "tests/attention_mutants.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "golden/compared.h"
#include "golden/judge.h"
#include "golden/rounding.h"

namespace kref {
namespace {

using Values = std::map<std::string, std::vector<double>>;

// The run, the kernel that is right for it, and what the judge expects.
struct Tried {
  Run run;
  DecodeRun decode;
  std::optional<DecodeAsAttention> as;
  std::optional<Kernel> kernel;
  std::vector<Expectation> expected;

  explicit Tried(const std::string& path)
      : run(read_run(path)), decode{.in = {}, .options = {.scale = 1}} {
    const Operation& operation = find_operation(run.op);
    operation.validate(run, true);
    expected = operation.expect(run);
    std::erase_if(expected, [](const Expectation& e) { return e.output.ends_with("cache"); });
    if (run.op == "attention") {
      kernel = right_kernel(read_attention(run));
    } else {
      decode = read_decode(run);
      as.emplace(decode.in, decode.options);
      kernel = right_kernel(decode, *as);
    }
  }
  Tried(const Tried&) = delete;

  Values values(const Kernel& k) const {
    const auto request = request_of(k);
    AttentionResult r = attention(request.first, request.second);
    if (k.zeros) {
      std::fill(r.o.begin(), r.o.end(), 0.0);
      std::fill(r.lse.begin(), r.lse.end(), 0.0);
    }
    return {{"o", r.o}, {"lse", r.lse}};
  }
};

// What became of one fault.
struct Outcome {
  bool found = false, named = false, misnamed = false;
  bool equivalent = true;  // no element further from the right value than its bound and a rounding
};

Outcome judged(const Tried& t, const Values& values, const std::string& pattern) {
  Outcome out;
  for (const Expectation& e : t.expected) {
    const std::vector<double>& v = values.at(e.output);
    const Array& like = t.run.out.at(e.output);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const double off = std::fabs(v[i] - e.value[i]);
      if (v[i] == e.value[i] || (std::isnan(v[i]) && std::isnan(e.value[i]))) continue;
      const bool loose = !e.overflow.empty() && e.overflow[i] != Expectation::kNoOverflow;
      out.equivalent =
          out.equivalent && (loose || off <= e.likely[i] + half_spacing(like.dtype(), v[i]));
    }
    const Verdict verdict = judge(e, rounded(like, v));
    if (verdict.ok()) continue;
    out.found = true;
    CAPTURE(e.output);
    CAPTURE(verdict.pattern);
    CAPTURE(verdict.detail);
    if (verdict.pattern == "unknown") continue;
    // Numbers that are not finite are called that, whatever made them so.
    const std::string& guess = verdict.pattern;
    const bool right = guess == "non-finite" || guess == pattern ||
                       (pattern == "ignored" && guess.ends_with(" ignored"));
    CHECK(right);
    (right ? out.named : out.misnamed) = true;
  }
  return out;
}

struct Count {
  int made = 0, equivalent = 0, named = 0, unknown = 0, misnamed = 0;
};

class Counts {
 public:
  void add(const std::string& name, const Outcome& out) {
    Count& c = counts_[name];
    ++c.made;
    // What is not found must be within the bounds.
    CHECK((out.found || out.equivalent));
    if (!out.found)
      ++c.equivalent;
    else if (out.misnamed)
      ++c.misnamed;
    else
      ++(out.named ? c.named : c.unknown);
  }
  int found(const std::string& name) const {
    const Count& c = counts_.at(name);
    return c.made - c.equivalent;
  }
  std::string text() const {
    std::string out;
    Count all;
    const auto line = [](const std::string& name, const Count& c) {
      return detail::cat(name, ": ", c.made, " made, ", c.equivalent,
                         " equivalent within the bounds, ", c.made - c.equivalent,
                         " found; guesses: ", c.named, " right, ", c.unknown, " unknown, ",
                         c.misnamed, " wrong\n");
    };
    for (const auto& [name, c] : counts_) {
      out += line(name, c);
      all.made += c.made, all.equivalent += c.equivalent, all.named += c.named;
      all.unknown += c.unknown, all.misnamed += c.misnamed;
    }
    return out + line("in all", all);
  }

 private:
  std::map<std::string, Count> counts_;
};

// More of what the judge names. Not tried on gradients.
const std::vector<Mutant>& further_mutants() {
  using K = Kernel;
  static const std::vector<Mutant> all = {
      {"causal aligned at the other end", "wrong causal alignment",
       [](K& k) {
         if (k.options.causal == Causal::kNone || k.queries == k.keys) return false;
         const bool top = k.options.causal == Causal::kTopLeft;
         k.options.causal = top ? Causal::kBottomRight : Causal::kTopLeft;
         return true;
       }},
      {"scale applied twice", "scale applied twice",
       [](K& k) { return k.options.scale = k.options.scale * k.options.scale, true; }},
      {"one stale key seen", "one key past the length",
       [](K& k) {
         if (!k.in.kv_lengths || k.in.mask || k.in.q_segment_ids) return false;
         k.change_open([&](Index b, Index, Index, Index j, bool is) {
           return is || j == k.last[static_cast<std::size_t>(b)] + 1;
         });
         for (Index& last : k.last) last += k.decode;  // and so the row stands one later
         return true;
       }},
      {"rows without a key are means, or zero", "fully masked rows",
       [](K& k) {
         FullyMasked& rule = k.options.fully_masked;
         rule = rule == FullyMasked::kUniform ? FullyMasked::kZero : FullyMasked::kUniform;
         return k.keys > 0;
       }},
  };
  return all;
}

// Faults in right outputs: (name, pattern, what is left of the values).
void change_outputs(const Tried& t, const Values& good, Counts& counts) {
  const Expectation& e = t.expected.at(0);  // o
  REQUIRE(e.output == "o");
  const Array& like = t.run.out.at("o");
  if (like.size() == 0) return;
  const Compared c(e, like, BoundKind::kLikely);
  for (const Index tile : {Index{0}, c.tiles() / 2, c.tiles() - 1}) {
    CAPTURE(tile);
    Values bad = good;
    c.for_tile(tile, [&](Index i) { return bad["o"][static_cast<std::size_t>(i)] = 0, true; });
    counts.add("one tile zeroed", judged(t, bad, "tile missing"));
  }
  for (const Index i : {Index{0}, like.size() / 2, like.size() - 1}) {
    CAPTURE(i);
    Values bad = good;
    bad["o"][static_cast<std::size_t>(i)] = std::numeric_limits<double>::quiet_NaN();
    counts.add("one NaN", judged(t, bad, "non-finite"));
  }
}

std::vector<std::string> paths() {
  if (const char* given = std::getenv("KREF_ATTENTION_RUNS")) return run_files(given);
  std::vector<std::string> out = run_paths("attention");
  for (const std::string& path : run_paths("decode")) out.push_back(path);
  return out;
}

TEST_CASE("every fault that moves an output past its bound is found, and no guess is wrong") {
  Counts counts;
  int runs = 0;
  for (const std::string& path : paths()) {
    CAPTURE(path);
    const std::string op = read_run(path).op;
    if (op != "attention" && op != "decode_attention") continue;
    ++runs;
    const Tried t(path);
    const Values good = t.values(*t.kernel);
    for (const Expectation& e : t.expected) {
      CHECK(judge(e, rounded(t.run.out.at(e.output), good.at(e.output))).ok());
    }
    for (const auto* list : {&mutants(), &further_mutants()}) {
      for (const Mutant& mutant : *list) {
        CAPTURE(std::string(mutant.name));
        Kernel kernel = copied(*t.kernel);
        if (!mutant.break_it(kernel)) continue;
        counts.add(mutant.name, judged(t, t.values(kernel), mutant.pattern));
      }
    }
    change_outputs(t, good, counts);
  }
  MESSAGE(runs, " runs\n", counts.text());
  for (const auto* list : {&mutants(), &further_mutants()}) {
    for (const Mutant& mutant : *list) {
      CAPTURE(std::string(mutant.name));
      CHECK(counts.found(mutant.name) > 0);
    }
  }
}

}  // namespace
}  // namespace kref
