// SPDX-License-Identifier: Apache-2.0
#include "golden/decode_op.h"

#include <cstring>

#include "golden/attention_op.h"
#include "golden/attention_options.h"
#include "golden/cost.h"
#include "golden/partial.h"
#include "golden/probe.h"
#include "golden/run_launch.h"
#include "sharding/batch_sharded_decode.h"
#include "sharding/shard_map.h"

namespace kref {
namespace {

void validate(const Run& run, bool with_outputs) {
  static const Operation operation = decode_operation();
  check_declared(operation, run, with_outputs);
  const DecodeRun decode = read_decode(run);
  check_decode_placement(run, decode);
  if (!with_outputs) return;
  check_output(run, "o", decode.out_dtype, decode.o_shape());
  check_output(run, "lse", DType::kF32, decode.lse_shape());
  for (const char* name : {"k_cache", "v_cache"}) {
    if (decode.writes != run.out.contains(name)) {
      refuse_run(run, "out.", name,
                 decode.writes ? " is missing: in.k_new is given" : " is given without in.k_new");
    }
  }
  check_output(run, "k_cache", decode.dtype(), decode.k_cache.shape());
  check_output(run, "v_cache", decode.dtype(), decode.v_cache.shape());
}

// decode_attention, or its definition where that is what computes (needs_definition).
LocalDecode local_decode(const DecodeRun& decode) {
  if (!needs_definition(decode.dtype(), decode.options.scale)) return decode_attention;
  return [](const DecodeInputs& in, const MutableArrayRef& o,
            const std::optional<Ref<float, 2>>& lse, const DecodeOptions& options) {
    const reference::DecodeAsAttention as(in, options);
    const reference::AttentionResult r = reference::attention(as.in, as.options);
    const auto copy = [](const Array& from, const MutableArrayRef& to) {
      if (from.bytes() > 0) std::memcpy(to.data, from.data(), from.bytes());
    };
    copy(rounded_array(o.dtype, {o.shape().begin(), o.shape().end()}, r.o), o);
    copy(rounded_array(DType::kF32, {lse->extent(0), lse->extent(1)}, r.lse), *lse);
  };
}

// Over the devices of the mesh, as a TPU would: nothing of the run is looked at but through its
// blocks.
std::map<std::string, Array> compute_sharded(const Run& run, const DecodeRun& decode) {
  const std::string axis = run.in_specs.at("q")[1][0];
  const PartitionSpec heads{none, axis}, batch{axis};
  const BatchShardedDecodeOptions options{
      .attention = decode.options, .out_dtype = decode.out_dtype, .local = local_decode(decode)};
  std::vector<ShardArgument> arguments;
  ShardMapOptions how{.out_specs = {heads, heads, batch, batch}, .launch = run_launch()};
  const auto give = [&](const char* name, const PartitionSpec& spec) {
    arguments.emplace_back(run.in.at(name));
    how.in_specs.each.push_back(spec);
    how.names.push_back(std::string("in.") + name);
  };
  give("q", heads), give("k_cache", batch), give("v_cache", batch), give("lengths", {});
  if (decode.writes) give("k_new", heads), give("v_new", heads);
  const auto body = [&](Device& device, std::span<const Array> in) {
    DecodeBlocks blocks{.q = in[0], .k_cache = in[1], .v_cache = in[2], .lengths = in[3]};
    if (decode.writes) blocks.k_new = in[4], blocks.v_new = in[5];
    const DecodedBlocks step = batch_sharded_decode(device, axis, blocks, options);
    return std::vector<Array>{step.o, step.lse, step.k_cache, step.v_cache};
  };
  const std::vector<Array> out = shard_map(*run.mesh, how, body).call(arguments);
  return {{"o", out[0]}, {"lse", out[1]}, {"k_cache", out[2]}, {"v_cache", out[3]}};
}

std::map<std::string, Array> compute(const Run& run) {
  const DecodeRun decode = read_decode(run);
  std::map<std::string, Array> out;
  if (run.mesh) {
    out = compute_sharded(run, decode);
  } else {
    Array o(decode.out_dtype, decode.o_shape()), lse(DType::kF32, decode.lse_shape());
    local_decode(decode)(decode.in, o.mutable_ref(), lse.mutable_ref().ref<float, 2>(),
                         decode.options);
    out = {{"o", o}, {"lse", lse}, {"k_cache", decode.k_cache}, {"v_cache", decode.v_cache}};
  }
  if (!decode.writes) out.erase("k_cache"), out.erase("v_cache");
  return out;
}

}  // namespace

Operation decode_operation() {
  return {
      .name = "decode_attention",
      .summary = "attention of one new token a sequence against a cache, batch-sharded on a mesh",
      .inputs = {{"q", "B H D", false, "a float type"},
                 {"k_cache", "B S G D", false, "type of q, H a multiple of G"},
                 {"v_cache", "B S G E", false, "type of q"},
                 {"lengths", "B", false, "I32, 0..S: valid keys, the new one included"},
                 {"k_new", "B G D", true, "type of q; written at slot lengths - 1 first"},
                 {"v_new", "B G E", true, "type of q; given with k_new"}},
      .outputs = {{"o", "B H E", false, "out_dtype"},
                  {"lse", "B H", true, "F32: natural log of the sum of exp(logits)"},
                  {"k_cache", "B S G D", true, "with the new token; there if k_new is"},
                  {"v_cache", "B S G E", true, "with the new token; there if v_new is"}},
      .options = {{"scale", "required", "a number: multiplies q.k"},
                  {"window", "null",
                   "[left, right]: sees keys from lengths - 1 - left on; null: no end"},
                  {"soft_cap", "null", "c > 0: c tanh(score / c), before the mask"},
                  {"fully_masked", "zero",
                   "a sequence of length 0: zero (o = 0, lse = -inf), nan; uniform is refused"},
                  {"p_dtype", "F32",
                   "type of the unnormalised probabilities in the product with v"},
                  {"out_dtype", "type of q", "a float type: o is rounded to it once"}},
      .rules = {"Slots past lengths may hold anything, NaN included.",
                "A length of 0 with k_new is refused: lengths count the new token.",
                "Caches are compared exactly (NaN with NaN); the bound of o and lse is that of "
                "attention with one row.",
                "With a mesh: q, k_new, v_new shard heads and the caches shard batch over one "
                "axis, which divides B, H and, with k_new, G; lengths are replicated, o and lse "
                "leave as q came. Nothing is summed over devices: the numbers are those of one.",
                "`run --probe uniform|select|position` makes up inputs whose o is an exact integer "
                "or dyadic number: means, one end of the cache, or one key of it.",
                "`check --partial FILE` judges what a kernel held after each key block too, as of "
                "attention, without the dimension T.",
                "`run` computes with the SIMD kernel in f32; inputs in F64 with the definition."},
      .sources = {"jax.experimental.pallas.ops.tpu.paged_attention (lengths, soft cap)",
                  "ragged paged attention of tpu-inference (windows, the new token in place)"},
      .validate = validate,
      .compute = compute,
      .expect = expect_decode,
      .price = price_decode_run,
      .probe = probe_decode,
      .judge_partials = judge_decode_partials,
  };
}

}  // namespace kref
