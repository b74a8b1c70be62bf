// SPDX-License-Identifier: Apache-2.0
// What attention and its gradients take, against numbers worked out by hand.
#include <doctest/doctest.h>

#include "golden/cost.h"
#include "kernels/flash_attention_vjp.h"
#include "sharding/launch.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using doctest::Approx;

// Two sequences, four heads on two kv heads, eight rows and keys of 16 and 12 elements.
constexpr AttentionCost kSmall{.batch = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .queries = 8,
                               .keys = 8,
                               .depth = 16,
                               .width = 12,
                               .visible = 36.0 / 64};
constexpr double kPairs = 2 * 4 * 36;
// Bytes of q and o; of k and v.
constexpr double kRows = 2 * 4 * 8 * (16 + 12) * 2, kKeys = 2 * 2 * 8 * (16 + 12) * 2;
constexpr double kLse = 2 * 4 * 8 * 4;

TEST_CASE("the gradients take five products of the visible pairs, the forward pass two") {
  const Chip v5e = find_chip("v5e");
  const Roofline forward = attention_roofline(v5e, kSmall);
  CHECK(forward.flops == 2 * kPairs * (16 + 12));
  CHECK(forward.hbm_bytes == kRows + kKeys);
  CHECK(forward.transcendentals == kPairs);

  AttentionCost cost = kSmall;
  cost.backward = true;
  const Roofline backward = attention_roofline(v5e, cost);
  // s, dq, dk along 16 elements; dp, dv along 12.
  CHECK(backward.flops == 2 * kPairs * (3 * 16 + 2 * 12));
  CHECK(backward.hbm_bytes == 2 * kRows + 2 * kKeys + kLse);
  CHECK(backward.transcendentals == kPairs);
  CHECK(backward.compute == Approx(2 * 288 * 72 / 1.97e14));
  CHECK(backward.hbm == backward.hbm_bytes / v5e.hbm_rate);

  cost.bias_gradient = true, cost.soft_cap = true;
  const Roofline bias = attention_roofline(v5e, cost);
  CHECK(bias.flops == 2 * kPairs * (4 * 16 + 3 * 12));
  CHECK(bias.hbm_bytes == 3 * kRows + 3 * kKeys + 2 * kLse);
  CHECK(bias.transcendentals == 4 * kPairs);
  cost.query_block = cost.key_block = 4;
  CHECK(says(refusal([&] { attention_roofline(v5e, cost); }), "blocks of a backward pass"));
}

TEST_CASE("with few elements a head the vector units take longer than the matrix units") {
  AttentionCost cost{.batch = 1, .heads = 1, .kv_heads = 1, .queries = 1024, .keys = 1024};
  cost.depth = cost.width = 2;
  const Roofline r = attention_roofline(find_chip("v5e"), cost);
  // 4 units of 8 x 128 lanes at 1.5 GHz.
  CHECK(r.compute == Approx(1024.0 * 1024 / (4 * 1024 * 1.5e9)));
  CHECK(r.compute > r.flops / 1.97e14);
  Roofline sum = r;
  sum += r;
  CHECK(sum.transcendentals == 2 * r.transcendentals);
}

Array bf16s(std::vector<Index> shape) { return Array(DType::kBF16, shape); }

// kSmall on a device; with what a forward pass left, or without.
void gradients(bool residuals) {
  const Array q = bf16s({2, 4, 8, 16}), k = bf16s({2, 2, 8, 16}), v = bf16s({2, 2, 8, 12}),
              o = bf16s({2, 4, 8, 12}), lse(DType::kF32, std::vector<Index>{2, 4, 8});
  Array dq = bf16s({2, 4, 8, 16}), dk = bf16s({2, 2, 8, 16}), dv = bf16s({2, 2, 8, 12});
  const AttentionOptions options{.scale = 1.0, .causal = Causal::kTopLeft};
  const AttentionInputs in{.q = q, .k = k, .v = v};
  const AttentionGradientOutputs out{dq.mutable_ref(), dk.mutable_ref(), dv.mutable_ref()};
  if (residuals) {
    flash_attention_vjp(in, {.o = o, .lse = lse}, {.o = o}, out, options);
  } else {
    flash_attention_vjp(in, {.o = o}, out, options);
  }
}

TEST_CASE("a backward pass advances the virtual clock, with elements and without") {
  for (const bool shapes : {false, true}) {
    CAPTURE(shapes);
    RunLog log;
    LaunchOptions options;
    options.log = &log;
    const ShapesOnly scope(shapes);
    launch(
        Mesh::parse("X=1"),
        [](Device&) {
          gradients(true);
          gradients(false);
        },
        options);
    const TimedRun run = time_run(log, lay_out(find_chip("v5e"), log.mesh, {}));
    // Each told once: what the kernel is built of does not count again.
    REQUIRE(run.work.size() == 3);
    const char* const gradients_of = "gradients of attention of 2 x 4 heads, 8 rows, 8 keys";
    CHECK(run.work[0].what == gradients_of);
    CHECK(run.work[1].what == "attention of 2 x 4 heads, 8 rows, 8 keys");
    CHECK(run.work[2].what == gradients_of);
    CHECK(run.work[0].unit.flops == Approx(2 * kPairs * 72));
    CHECK(run.work[1].unit.flops == Approx(2 * kPairs * 28));
    CHECK(run.work[2].unit.flops == run.work[0].unit.flops);
    CHECK(run.work[0].unit.hbm_bytes == 2 * kRows + 2 * kKeys + kLse);
    CHECK(run.seconds() > 0);
  }
}

PricedRun priced(const std::vector<NamedShape>& more, const nlohmann::json& set = {}) {
  Run run;
  run.origin = "test", run.op = "attention.vjp";
  run.set = {{"scale", 1.0}};
  if (!set.is_null()) run.set.update(set);
  std::vector<NamedShape> shapes = {
      {"q", "bf16[4,64,4096,128]"}, {"k", "bf16[4,8,4096,128]"}, {"v", "bf16[4,8,4096,64]"}};
  shapes.insert(shapes.end(), more.begin(), more.end());
  add_shapes(run, shapes);
  return price_run(run, {.chip = find_chip("v5e")});
}

TEST_CASE("attention.vjp is priced as a forward pass and its gradients") {
  const double pairs = 4.0 * 64 * 4096 * 4096, rows = 4 * 64 * 4096, keys = 4 * 8 * 4096;
  const std::vector<CostStep> steps = priced({}).cost.steps;
  REQUIRE(steps.size() == 2);
  const Roofline forward = steps[0].unit, backward = steps[1].unit;
  CHECK(steps[0].what == "attend");
  CHECK(steps[1].what == "gradients");
  CHECK(forward.flops == 2 * pairs * (128 + 64));
  CHECK(forward.hbm_bytes == (rows + keys) * (128 + 64) * 2 + rows * 4);
  CHECK(backward.flops == 2 * pairs * (3 * 128 + 2 * 64));
  CHECK(backward.hbm_bytes == 2 * (rows + keys) * (128 + 64) * 2 + rows * 4);

  const auto causal = priced({}, {{"causal", "top_left"}}).cost.steps;
  CHECK(causal[1].unit.flops / backward.flops == Approx(4097.0 / 8192));
  // The cotangent of lse is read, the bias in both passes, and its gradient written.
  const auto more =
      priced({{"ct.lse", "f32[4,64,4096]"}, {"bias", "f32[1,64,4096,4096]"}}).cost.steps;
  const double bias = 64.0 * 4096 * 4096 * 4;
  CHECK(more[0].unit.hbm_bytes == forward.hbm_bytes + bias);
  CHECK(more[1].unit.flops == 2 * pairs * (4 * 128 + 3 * 64));
  CHECK(more[1].unit.hbm_bytes ==
        3 * (rows + keys) * (128 + 64) * 2 + 2 * rows * 4 + rows * 4 + 3 * bias);
  // Lengths of which nothing is known are those without lengths, and cost their own bytes.
  const auto lengths = priced({{"q_lengths", "i32[4]"}, {"kv_lengths", "i32[4]"}}).cost.steps;
  CHECK(lengths[1].unit.flops == backward.flops);
  CHECK(lengths[1].unit.hbm_bytes == backward.hbm_bytes + 32);
  CHECK(says(refusal([] { priced({{"ct.o", "bf16[4,64,4096,128]"}}); }), "in.ct.o"));
}

}  // namespace
}  // namespace kref
