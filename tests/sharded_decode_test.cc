// SPDX-License-Identifier: Apache-2.0
// Decode attention over devices with the cache sharded over the batch: the bits of one device.
#include <doctest/doctest.h>

#include "sharding/batch_sharded_decode.h"
#include "sharding/run_log.h"
#include "sharding/sequence_sharded_decode.h"
#include "sharding/shard_map.h"
#include "tests/decode_steps.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// q over Y and Z, the caches' batch over Z and their heads over Y: "" leaves Y out.
std::array<Array, 4> batch_sharded(const Mesh& mesh, bool with_y, const Decode& c) {
  const PartitionSpec heads = with_y ? P{none, axes("Y", "Z")} : P{none, "Z"};
  const PartitionSpec cache = with_y ? P{"Z", none, "Y"} : P{"Z"};
  const auto body = [&](Device& device, const Array& q, const Array& k, const Array& v,
                        const Array& lengths, const Array& k_new, const Array& v_new) {
    const DecodedBlocks out = batch_sharded_decode(
        device, "Z",
        {.q = q, .k_cache = k, .v_cache = v, .lengths = lengths, .k_new = k_new, .v_new = v_new},
        {.attention = c.options});
    return std::array<Array, 4>{out.o, out.lse, out.k_cache, out.v_cache};
  };
  const auto step = shard_map(mesh,
                              {.in_specs = {heads, cache, cache, P(), heads, heads},
                               .out_specs = {heads, heads, cache, cache}},
                              body);
  return step(c.q, c.k, c.v, c.lengths, c.k_new, c.v_new);
}

TEST_CASE("a cache sharded over the batch gives the bits of one device") {
  // mesh, Y there, B, K, M: K divides into Y Z parts because the new token's heads do.
  const std::tuple<const char*, bool, Index, Index, Index> cases[] = {
      {"Z=1", false, 3, 2, 2},        {"Z=2", false, 2, 2, 4},     {"Z=4", false, 4, 4, 2},
      {"Z=8", false, 16, 8, 1},       {"X=2,Z=3", false, 6, 3, 2}, {"Y=2,Z=2", true, 4, 4, 4},
      {"Z=2,X=2,Y=2", true, 2, 4, 3}, {"Y=2,Z=4", true, 4, 8, 2},  {"Y=4,Z=2", true, 6, 8, 1},
      {"Y=1,Z=5", true, 5, 5, 3},
  };
  unsigned seed = 0;
  for (const auto& [mesh, with_y, B, K, M] : cases) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Decode c({B, 7, K, M}, ++seed, type);
      if (seed % 3 == 0) c.options.window.left = 2;
      if (seed % 4 == 0) c.options.soft_cap = 1.5;
      const DecodedBlocks expected = c.whole();
      const auto found = batch_sharded(Mesh::parse(mesh), with_y, c);
      const std::string where = std::string(mesh) + " " + name_of(type);
      CAPTURE(where);
      CHECK(same_bits(found[0], expected.o));
      CHECK(same_bits(found[1], expected.lse));
      CHECK(same_bits(found[2], expected.k_cache));
      CHECK(same_bits(found[3], expected.v_cache));
    }
  }
}

// The way back as the book prints it: o as [B/Z, K/Y, M, E], split along M.
Array by_groups(Device& device, const Array& o, Index groups) {
  const Index B = o.extent(0), N = o.extent(1), E = o.extent(2);
  const Index shape[] = {B, groups, N / groups, E};
  const Array grouped(o.dtype(), shape, o.owner(), o.data());
  const Array back = all_to_all(device, grouped, "Z", 2, 0, {.tiled = true});
  const Index flat[] = {back.extent(0), back.extent(1) * back.extent(2), E};
  return Array(back.dtype(), flat, back.owner(), back.data());
}

TEST_CASE("behaviour 73: heads go back as q had them, not cut group by group") {
  // Y, Z, K, M; whether the book's way back is right: it is where a device has one kv head.
  const std::tuple<Index, Index, Index, Index, bool> cases[] = {
      {2, 2, 2, 4, true}, {2, 2, 4, 4, false}, {1, 2, 2, 4, false}, {2, 1, 4, 4, true}};
  for (const auto& [Y, Z, K, M, book_is_right] : cases) {
    const Decode c({2 * Z, 6, K, M}, 7);
    const Mesh mesh = Mesh::parse("Y=" + std::to_string(Y) + ",Z=" + std::to_string(Z));
    const PartitionSpec heads{none, axes("Y", "Z")}, cache{"Z", none, "Y"};
    const Index groups = K / Y;
    const auto body = [&](Device& device, const Array& q, const Array& k, const Array& v,
                          const Array& lengths) {
      const Array own = heads_to_batch(device, q, "Z");
      Array o(DType::kF32, std::vector<Index>{own.extent(0), own.extent(1), v.extent(3)});
      decode_attention({.q = own, .k_cache = k, .v_cache = v, .lengths = lengths}, o.mutable_ref(),
                       {}, c.options);
      return std::pair<Array, Array>{batch_to_heads(device, o, "Z"), by_groups(device, o, groups)};
    };
    const auto both = shard_map(
        mesh, {.in_specs = {heads, cache, cache, P{"Z"}}, .out_specs = {heads, heads}}, body);
    const auto [ours, books] = both(c.q, c.k, c.v, c.lengths);
    Array expected(DType::kF32, std::vector<Index>{c.B, K * M, c.E});
    decode_attention({.q = c.q, .k_cache = c.k, .v_cache = c.v, .lengths = c.lengths},
                     expected.mutable_ref(), {}, c.options);
    CAPTURE(to_string(mesh));
    CHECK(same_bits(ours, expected));
    CHECK(same_bits(books, expected) == book_is_right);
  }
}

TEST_CASE("a KvCache a device: token after token, as on one device") {
  const Mesh mesh = Mesh::parse("Z=2");
  const Index B = 4, K = 2, N = 4, D = 5, E = 3, steps = 6, S = 4;  // it rolls after 4 tokens
  std::vector<Decode> tokens;
  for (Index t = 0; t < steps; ++t)
    tokens.emplace_back(std::tuple{B, S, K, N / K}, 20u + static_cast<unsigned>(t));
  const KvCache::Sizes sizes{B, S, K, D, E}, own{B / 2, S, K, D, E};
  KvCache whole(DType::kF32, sizes, KvCache::Full::kRoll);
  std::vector<KvCache> caches;
  for (int z = 0; z < 2; ++z) caches.emplace_back(DType::kF32, own, KvCache::Full::kRoll);
  static_assert(!std::is_copy_constructible_v<KvCache>);  // two owners of the same slots
  for (const Decode& c : tokens) {
    whole.append(c.k_new, c.v_new);
    Array expected(DType::kF32, std::vector<Index>{B, N, E});
    decode_attention(whole.inputs(c.q), expected.mutable_ref(), {}, c.options);
    const auto step =
        shard_map(mesh, {.in_specs = P{none, "Z"}, .out_specs = P{none, "Z"}},
                  [&](Device& device, const Array& q, const Array& k, const Array& v) {
                    KvCache& cache = caches[static_cast<std::size_t>(device.index())];
                    cache.append(heads_to_batch(device, k, "Z"), heads_to_batch(device, v, "Z"));
                    Array o(DType::kF32, std::vector<Index>{B / 2, N, E});
                    decode_attention(cache.inputs(heads_to_batch(device, q, "Z")), o.mutable_ref(),
                                     {}, c.options);
                    return batch_to_heads(device, o, "Z");
                  });
    CHECK(same_bits(step(c.q, c.k_new, c.v_new), expected));
  }
}

TEST_CASE("operands that do not fit are refused by name") {
  const Mesh mesh = Mesh::parse("Z=2");
  const auto told = [&](Decode c, bool token, bool by_slots) {
    return refusal([&] {
      launch(mesh, [&](Device& device) {
        if (by_slots) {
          SequenceBlocks b{.q = c.q, .k_cache = c.k, .v_cache = c.v, .lengths = c.lengths};
          if (token) b.k_new = c.k_new;
          sequence_sharded_decode(device, "Z", b, c.options);
        } else {
          DecodeBlocks b{.q = c.q, .k_cache = c.k, .v_cache = c.v, .lengths = c.lengths};
          if (token) b.k_new = c.k_new;
          batch_sharded_decode(device, "Z", b, {.attention = c.options});
        }
      });
    });
  };
  const Decode good({4, 6, 2, 2}, 3);
  CHECK(says(told(good, false, false), "k_cache is F32[4,6,2,5] with B/n = 4, expected the B = 4"));
  CHECK(says(told(good, true, false), "batch_sharded_decode: v_new is missing; k_new needs it"));
  CHECK(says(told(good, true, true), "sequence_sharded_decode: v_new is missing; k_new needs it"));
  Decode wrong = good;
  wrong.lengths = filled(DType::kI32, {3}, [](Index) { return 1.0; });
  CHECK(says(told(wrong, false, false), "lengths is I32[3], expected I32[4]"));
  CHECK(says(told(wrong, false, true), "lengths is I32[3], expected I32[4]"));
  wrong.lengths = filled(DType::kI32, {4}, [](Index b) { return b == 2 ? 13.0 : 1.0; });
  CHECK(says(told(wrong, false, true), "lengths[2] is 13, expected 0 to S = 12"));
  for (const bool of_k : {true, false}) {
    wrong = good;
    (of_k ? wrong.k : wrong.v) = of_k ? Decode({3, 6, 2, 2}, 3).k : Decode({3, 6, 2, 2}, 3).v;
    CHECK(says(told(wrong, false, true),
               of_k ? "k_cache is F32[3,6,2,5] with B = 3, expected the B = 4 sequences of q"
                    : "v_cache is F32[3,6,2,3] with B = 3, expected the B = 4 sequences of q"));
  }
  wrong = good;
  wrong.options.window.left = -1;
  CHECK(says(told(wrong, false, true), "the left side of the window is -1, expected 0 or more"));
  CHECK(says(refusal([&] {
               with_token("k_new", good.k, good.k_new,
                          filled(DType::kI32, {4}, [](Index b) { return b == 1 ? 7.0 : 1.0; }));
             }),
             "the length of sequence 1 is 7, expected 0 to S = 6"));
  wrong = Decode({4, 6, 2, 2}, 4);
  wrong.lengths.mutable_elements<std::int32_t>()[3] = 0;
  const auto both =
      shard_map(mesh,
                {.in_specs = {P{none, "Z"}, P{"Z"}, P{"Z"}, P(), P{none, "Z"}, P{none, "Z"}},
                 .out_specs = P{none, "Z"}},
                [&](Device& device, const Array& q, const Array& k, const Array& v,
                    const Array& lengths, const Array& k_new, const Array& v_new) {
                  return batch_sharded_decode(device, "Z", {q, k, v, lengths, k_new, v_new},
                                              {.attention = wrong.options})
                      .o;
                });
  CHECK(says(
      refusal([&] { both(wrong.q, wrong.k, wrong.v, wrong.lengths, wrong.k_new, wrong.v_new); }),
      "lengths[3] is 0 beside k_new"));
  CHECK(says(refusal([&] { with_token("k_new", good.k, good.v_new, good.lengths); }),
             "k_new is F32[4,2,3], expected F32[4,2,5]"));
}

TEST_CASE("a step on shapes alone needs its lengths and is priced, or refuses") {
  const Decode whole({4, 6, 2, 2}, 3);
  RunLog log;
  const auto step = [&](const Array& lengths, bool by_slots) {
    const auto none = [](std::vector<Index> shape) {
      return Array(DType::kF32, shape, nullptr, nullptr);
    };
    const ShapesOnly shapes;
    const Array q = none({4, 2, 5}), k = none({2, 6, 2, 5}), v = none({2, 6, 2, 3});
    LaunchOptions options;
    if (!by_slots) options.log = &log;
    launch(
        Mesh::parse("Z=2"),
        [&](Device& device) {
          if (by_slots) {
            sequence_sharded_decode(device, "Z", {q, k, v, lengths}, whole.options);
          } else {
            const Array k_new = none({4, 1, 5}), v_new = none({4, 1, 3});
            const DecodedBlocks out = batch_sharded_decode(
                device, "Z", {q, k, v, lengths, k_new, v_new}, {.attention = whole.options});
            CHECK(to_string(out.o.ref()) == "F32[4,2,3]");
            CHECK(out.o.data() == nullptr);
          }
        },
        options);
  };
  step(whole.lengths, false);
  for (Index d = 0; d < 2; ++d) {
    double keys = 0;
    for (Index b = 2 * d; b < 2 * d + 2; ++b) keys += whole.lengths.at(b) / 2;
    double told = 0;
    for (const LogEvent& e : log.devices[static_cast<std::size_t>(d)].events()) {
      if (e.work) told += std::get<AttentionWork>(*e.work).keys;
    }
    CHECK(told == keys);
  }
  CHECK(says(refusal([&] { step(whole.lengths, true); }), "does not run on shapes alone"));
  const Array no_lengths(DType::kI32, std::vector<Index>{4}, nullptr, nullptr);
  log = {};
  CHECK(says(refusal([&] { step(no_lengths, false); }),
             "batch_sharded_decode: lengths has no elements under ShapesOnly"));
}

}  // namespace
}  // namespace kref
