// SPDX-License-Identifier: Apache-2.0
// Decode attention over devices with the cache sharded over its slots: what the definition allows.
#include <doctest/doctest.h>

#include "golden/decode_op.h"
#include "golden/judge.h"
#include "tests/sequence_steps.h"

namespace kref {
namespace {

TEST_CASE("a cache sharded over its slots is within the bound of the definition") {
  unsigned seed = 50;
  for (const char* mesh : {"Z=1", "Z=2", "Z=3", "X=2,Z=4", "Z=8"}) {
    for (int option = 0; option < 6; ++option) {
      Decode c({3, 24, 2, 2}, ++seed, option == 5 ? DType::kBF16 : DType::kF32);
      Run run;
      run.op = "decode_attention";
      run.set["scale"] = 0.5;
      if (option == 1) c.options.window.left = 4, run.set["window"] = {4, nullptr};
      if (option == 2) c.options.soft_cap = 0.7, run.set["soft_cap"] = 0.7;
      if (option == 3) c.lengths.mutable_elements<std::int32_t>()[1] = 0;
      if (option == 4) {
        c.options.fully_masked = FullyMasked::kNaN, run.set["fully_masked"] = "nan";
        c.lengths.mutable_elements<std::int32_t>()[2] = 0;
      }
      const bool writes = option != 3 && option != 4;
      run.in = {{"q", c.q}, {"k_cache", c.k}, {"v_cache", c.v}, {"lengths", c.lengths}};
      if (writes) run.in["k_new"] = c.k_new, run.in["v_new"] = c.v_new;
      const auto found = sequence_sharded(Mesh::parse(mesh), c, writes);
      run.out = {{"o", found[0]}, {"lse", found[1]}};
      if (writes) run.out["k_cache"] = found[2], run.out["v_cache"] = found[3];
      CAPTURE(mesh);
      CAPTURE(option);
      decode_operation().validate(run, true);
      for (const Expectation& e : decode_operation().expect(run)) {
        CAPTURE(e.output);
        CHECK(judge(e, run.out.at(e.output)).ok());
      }
    }
  }
}

}  // namespace
}  // namespace kref
