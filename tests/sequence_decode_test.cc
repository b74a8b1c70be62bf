// SPDX-License-Identifier: Apache-2.0
// Decode attention over devices with the cache sharded over its slots: what the definition allows,
// and integers exactly.
#include <doctest/doctest.h>

#include "golden/decode_op.h"
#include "golden/judge.h"
#include "sharding/sequence_sharded_decode.h"
#include "sharding/shard_map.h"
#include "tests/decode_steps.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

std::array<Array, 4> sequence_sharded(const Mesh& mesh, const Decode& c, bool writes) {
  const PartitionSpec cache{none, "Z"};
  const auto body = [&](Device& device, const Array& q, const Array& k, const Array& v,
                        const Array& lengths, const Array& k_new, const Array& v_new) {
    SequenceBlocks blocks{.q = q, .k_cache = k, .v_cache = v, .lengths = lengths};
    if (writes) blocks.k_new = k_new, blocks.v_new = v_new;
    const SequenceDecoded out = sequence_sharded_decode(device, "Z", blocks, c.options);
    return std::array<Array, 4>{out.o, out.lse, out.k_cache, out.v_cache};
  };
  const auto step = shard_map(mesh,
                              {.in_specs = {P(), cache, cache, P(), P(), P()},
                               .out_specs = {P(), P(), cache, cache},
                               .check_replicas = true},
                              body);
  return step(c.q, c.k, c.v, c.lengths, c.k_new, c.v_new);
}

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

TEST_CASE("slots that are not valid, NaN included, have no influence on any device") {
  const Decode clean({2, 8, 2, 2}, 90);
  Decode dirty = clean;
  for (Index b = 0; b < 2; ++b) {
    for (Index s = clean.lengths.elements<std::int32_t>()[static_cast<std::size_t>(b)]; s < 8;
         ++s) {
      for (Index i = 0; i < clean.K * clean.D; ++i)
        dirty.k.mutable_elements<float>()[static_cast<std::size_t>((b * 8 + s) * clean.K * clean.D +
                                                                   i)] = NAN;
      for (Index i = 0; i < clean.K * clean.E; ++i)
        dirty.v.mutable_elements<float>()[static_cast<std::size_t>((b * 8 + s) * clean.K * clean.E +
                                                                   i)] = NAN;
    }
  }
  const Mesh mesh = Mesh::parse("Z=4");
  const auto a = sequence_sharded(mesh, clean, true), b = sequence_sharded(mesh, dirty, true);
  CHECK(same_bits(a[0], b[0]));
  CHECK(same_bits(a[1], b[1]));
}

TEST_CASE("equal weights over all devices give means exactly") {
  for (const Index n : {1, 2, 4}) {
    Decode c({2, 16, 1, 2}, 1);
    c.q = full({2, 2, 5}, 0);
    c.v =
        filled(DType::kF32, {2, 16, 1, 3}, [](Index i) { return static_cast<double>(i / 3 % 16); });
    c.lengths.mutable_elements<std::int32_t>()[0] = 16;  // mean of 0..15
    c.lengths.mutable_elements<std::int32_t>()[1] = 4;   // of 0..3
    const auto found = sequence_sharded(Mesh::parse("Z=" + std::to_string(n)), c, false);
    for (Index i = 0; i < 6; ++i) {
      CHECK(found[0].at(i) == 7.5);
      CHECK(found[0].at(6 + i) == 1.5);
    }
  }
}

}  // namespace
}  // namespace kref
