// SPDX-License-Identifier: Apache-2.0
// Probes against index errors: each changes a bit.
#include <doctest/doctest.h>

#include <memory>
#include <set>

#include "tests/probe_cases.h"

namespace kref {
namespace {

// An input with its elements moved: element i of the result is element from(i) of the dimension.
Array moved(const Array& a, std::size_t d, const std::function<Index(Index)>& from) {
  Array out(a.dtype(), a.shape());
  Index inner = 1;
  for (std::size_t e = d + 1; e < a.rank(); ++e) inner *= a.extent(e);
  with_dtype(a.dtype(), [&]<class T>() {
    const std::span<const T> source = a.elements<T>();
    const std::span<T> to = out.mutable_elements<T>();
    for (Index i = 0; i < a.size(); ++i) {
      const Index at = i / inner % a.extent(d);
      to[static_cast<std::size_t>(i)] =
          source[static_cast<std::size_t>(i + (from(at) - at) * inner)];
    }
  });
  return out;
}

// Index errors that are other inputs to a right kernel. False: they do not apply.
struct InputMutant {
  const char* name;
  std::function<bool(Run&)> break_it;
};

const std::vector<InputMutant>& input_mutants() {
  const auto next = [](Index n) { return [n](Index i) { return (i + 1) % n; }; };
  const auto keys = [](const Run& r) -> std::size_t {
    return r.op == "decode_attention" || r.set.value("layout", "") == "BTHD" ? 1 : 2;
  };
  const auto move = [next](Run& r, const char* name, std::size_t d) {
    const auto at = r.in.find(name);
    if (at == r.in.end() || at->second.extent(d) == 1) return false;
    at->second = moved(at->second, d, next(at->second.extent(d)));
    return true;
  };
  static const std::vector<InputMutant> all = {
      {"values one key late",
       [=](Run& r) { return move(r, r.in.contains("v") ? "v" : "v_cache", keys(r)); }},
      {"values of the next batch",
       [=](Run& r) { return move(r, r.in.contains("v") ? "v" : "v_cache", 0); }},
      {"values of the next column",
       [=](Run& r) { return move(r, r.in.contains("v") ? "v" : "v_cache", 3); }},
      {"segments one key late", [=](Run& r) { return move(r, "kv_segment_ids", 1); }},
      {"segments one row late", [=](Run& r) { return move(r, "q_segment_ids", 1); }},
      {"lengths of the next sequence",
       [=](Run& r) {
         if (r.in.contains("k_new")) return false;
         return move(r, r.in.contains("lengths") ? "lengths" : "kv_lengths", 0);
       }},
      {"a stale slot is seen",
       [](Run& r) {
         const char* name = r.in.contains("lengths") ? "lengths" : "kv_lengths";
         const auto at = r.in.find(name);
         if (at == r.in.end() || r.in.contains("k_new")) return false;
         Array more(DType::kI32, at->second.shape());
         for (std::size_t b = 0; b < static_cast<std::size_t>(more.size()); ++b) {
           const std::int32_t n = at->second.elements<std::int32_t>()[b];
           more.mutable_elements<std::int32_t>()[b] = b == 0 ? n + 1 : n;
         }
         at->second = more;
         return true;
       }},
      {"the new token is not written",
       [](Run& r) { return r.in.erase("k_new") + r.in.erase("v_new") > 0; }},
  };
  return all;
}

// Further faults of the kernel than those that the judge is tried on.
const std::vector<Mutant>& further_mutants() {
  static const std::vector<Mutant> all = {
      {"causal aligned at the other end", "",
       [](Kernel& k) {
         if (k.options.causal == Causal::kNone || k.queries == k.keys) return false;
         const bool top = k.options.causal == Causal::kTopLeft;
         k.options.causal = top ? Causal::kBottomRight : Causal::kTopLeft;
         return true;
       }},
      {"window by whole blocks of 16", "",
       [](Kernel& k) {
         if (!k.left) return false;
         const Index left = *k.left;
         k.change_open([&](Index b, Index, Index i, Index j, bool is) {
           return is && j >= (k.position(b, i) - left) / 16 * 16;
         });
         k.left.reset();
         return true;
       }},
      {"keys of the last block of 16 missing", "",
       [](Kernel& k) {
         k.change_open([&](Index, Index, Index, Index j, bool is) {
           return is && j < (k.keys - 1) / 16 * 16;
         });
         return true;
       }},
  };
  return all;
}

TEST_CASE("every index error changes a bit") {
  const std::set<std::string> not_of_indices = {
      "scale missing", "soft cap missing",
      "bias missing",  "bias on the wrong side of the scale",
      "sinks missing", "lse in the other base",
      "zeros"};
  std::map<std::string, std::vector<int>> changed;  // runs, runs changed by each kind
  const auto count = [&](const std::string& name, const auto& differs) {
    std::vector<int>& counts = changed[name];
    counts.resize(4);
    ++counts[0];
    for (std::size_t kind = 0; kind < 3; ++kind) counts[kind + 1] += differs[kind];
    CHECK(differs[0]);  // the others see what they are made for
  };
  for (const ProbeConfig& config : configs()) {
    CAPTURE(std::string(config.name));
    std::vector<std::unique_ptr<Probed>> probes;
    for (const ProbeKind kind : kKinds) {
      probes.push_back(std::make_unique<Probed>(probe_of(config, kind)));
    }
    for (const auto* list : {&mutants(), &further_mutants()}) {
      for (const Mutant& mutant : *list) {
        if (not_of_indices.contains(mutant.name)) continue;
        CAPTURE(std::string(mutant.name));
        std::vector<bool> differs;
        bool same = true;  // what rows see, and of which head
        for (const auto& probe : probes) {
          const Kernel good = probe->kernel();
          Kernel bad = copied(good);
          if (!mutant.break_it(bad)) break;
          differs.push_back(differ(probe->o(good), probe->o(bad)));
          for (Index h = 0; bad.kv_head && h < bad.heads; ++h) {
            same = same && bad.kv_head(h) == h / (bad.heads / bad.groups);
          }
          same = same && !differ(good.visible, bad.visible);
        }
        if (differs.size() == 3 && !same) count(mutant.name, differs);
      }
    }
    for (const InputMutant& mutant : input_mutants()) {
      CAPTURE(std::string(mutant.name));
      std::vector<bool> differs;
      for (const auto& probe : probes) {
        Run run = probe->run;
        if (!mutant.break_it(run)) break;
        differs.push_back(differ(probe->o(), Probed(run).o()));
      }
      if (differs.size() == 3) count(mutant.name, differs);
    }
  }
  std::string text;
  for (const auto& entry : changed) {
    const std::vector<int>& n = entry.second;
    text += detail::cat(entry.first, ": changes bits in ", n[1], " uniform, ", n[2], " select, ",
                        n[3], " position probes of ", n[0], "\n");
  }
  MESSAGE(changed.size(), " index errors\n", text);
  CHECK(changed.size() >= 20);
}

}  // namespace
}  // namespace kref
