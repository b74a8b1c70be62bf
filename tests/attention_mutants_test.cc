// SPDX-License-Identifier: Apache-2.0
// Wrong attention kernels against the judge: where a fault changes the output it has to be found.
#include "tests/attention_mutants.h"

#include <doctest/doctest.h>

namespace kref {
namespace {

AttentionResult run_kernel(Kernel& k) {
  const auto [in, options] = request_of(k);
  AttentionResult r = attention(in, options);
  if (k.zeros) {
    std::fill(r.o.begin(), r.o.end(), 0.0);
    std::fill(r.lse.begin(), r.lse.end(), 0.0);
  }
  return r;
}

std::map<std::string, Array> outputs(const Run& run, Kernel kernel) {
  const AttentionResult r = run_kernel(kernel);
  std::map<std::string, Array> out;
  for (const auto& [name, array] : run.out) out[name] = rounded(array, name == "o" ? r.o : r.lse);
  return out;
}

TEST_CASE("every fault that changes an output is found") {
  int made = 0, found = 0;
  std::map<std::string, int> per_mutant;
  const std::vector<std::string> paths = run_paths("attention");
  for (const std::string& path : paths) {
    CAPTURE(path);
    const Run run = read_run(path);
    const AttentionRun attention = read_attention(run);
    const std::vector<Expectation> expected = attention_operation().expect(run);
    const auto good = outputs(run, right_kernel(attention));
    CHECK(right(expected, good));
    for (const Mutant& mutant : mutants()) {
      CAPTURE(std::string(mutant.name));
      Kernel kernel = right_kernel(attention);
      if (!mutant.break_it(kernel)) continue;
      const auto bad = outputs(run, kernel);
      if (std::none_of(good.begin(), good.end(),
                       [&](const auto& g) { return differ(g.second, bad.at(g.first)); })) {
        continue;
      }
      ++made;
      const bool caught = !right(expected, bad);
      found += caught;
      per_mutant[mutant.name] += caught;
      // Its scores lie far beyond the cap of 0.5, with and without the scale: the outputs differ by
      // a tenth of what honest rounding may do.
      const bool too_small =
          path.find("a033") != std::string::npos && std::string(mutant.name) == "scale missing";
      CHECK((caught || too_small));
    }
  }
  MESSAGE(found, " of ", made, " faults found in ", paths.size(), " runs");
  for (const Mutant& mutant : mutants()) {
    CAPTURE(std::string(mutant.name));
    CHECK(per_mutant[mutant.name] > 0);
  }
}

}  // namespace
}  // namespace kref
