// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_op.h"

#include "golden/attention_bound.h"
#include "golden/attention_options.h"
#include "golden/cost.h"
#include "golden/dims.h"
#include "golden/partial.h"
#include "golden/probe.h"
#include "kernels/flash_attention.h"

namespace kref {
namespace {

void validate(const Run& run, bool with_outputs) {
  static const Operation operation = attention_operation();
  check_declared(operation, run, with_outputs);
  refuse_attention_mesh(run);
  const AttentionRun attention = read_attention(run);
  if (!with_outputs) return;
  check_output(run, "o", attention.out_dtype, attention.o_shape());
  check_output(run, "lse", DType::kF32, attention.lse_shape());
}

std::map<std::string, Array> compute(const Run& run) {
  const AttentionRun attention = read_attention(run);
  std::map<std::string, Array> out;
  if (needs_definition(attention.dtype(), attention.options.scale)) {
    const reference::AttentionResult r = reference::attention(attention.in, attention.options);
    out["o"] = rounded_array(attention.out_dtype, attention.o_shape(), r.o);
    out["lse"] = rounded_array(DType::kF32, attention.lse_shape(), r.lse);
    return out;
  }
  Array o(attention.out_dtype, attention.o_shape()), lse(DType::kF32, attention.lse_shape());
  flash_attention(attention.in, o.mutable_ref(), lse.mutable_ref().ref<float, 3>(),
                  attention.options);
  out["o"] = o, out["lse"] = lse;
  return out;
}

}  // namespace

void refuse_attention_mesh(const Run& run) {
  if (!run.mesh) return;
  refuse_run(run, "mesh ", to_string(*run.mesh),
             " is given, but this version runs attention on one device only");
}

Array rounded_array(DType dtype, const std::vector<Index>& shape,
                    const std::vector<double>& values) {
  Array out(dtype, shape);
  with_dtype(dtype, [&]<class T>() {
    T* to = out.mutable_elements<T>().data();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  });
  return out;
}

Operation attention_operation() {
  return {
      .name = "attention",
      .summary = "softmax(scale q k^T + bias) v over the keys a row sees, grouped heads, masks",
      .inputs = {{"q", "B H T D", false, "a float type; BTHD layout: [B, T, H, D]"},
                 {"k", "B G S D", false, "type of q, H a multiple of G: head h reads h / (H/G)"},
                 {"v", "B G S E", false, "type of q"},
                 {"bias", "B|1 H|1 T|1 S", true, "F32 or type of q"},
                 {"mask", "B|1 H|1 T|1 S", true, "BOOL, true = visible"},
                 {"q_segment_ids", "B T", true, "I32; given with kv_segment_ids"},
                 {"kv_segment_ids", "B S", true, "I32; a row sees keys of its own segment"},
                 {"q_lengths", "B", true, "I32, 0..T: rows past it give o = 0, lse = -inf"},
                 {"kv_lengths", "B", true, "I32, 0..S: keys past it are not seen"},
                 {"sinks", "H", true, "F32: a natural logit without a value, one a head"}},
      .outputs = {{"o", "B H T E", false, "out_dtype, in the layout of q"},
                  {"lse", "B H T", true,
                   "F32: log of the sum of exp(logits), the sink's included"}},
      .options =
          {{"scale", "required", "a number: multiplies q.k"},
           {"layout", "BHTD", "BHTD or BTHD, of q, k, v and o; bias, mask and lse do not change"},
           {"bias_order", "after_scale",
            "after_scale: q.k * scale + bias; before_scale: (q.k + bias) * scale"},
           {"causal", "none",
            "none; top_left: row i sees keys <= i; bottom_right: row i sits at S - T + i"},
           {"window", "null",
            "[left, right]: sees position - left .. position + right, both included; null: no end"},
           {"soft_cap", "null", "c > 0: c tanh(score / c), after scale and bias, before the mask"},
           {"fully_masked", "zero",
            "a row that sees no key: zero (o = 0, lse = -inf), uniform (mean over all S), nan"},
           {"negative_segments", "match", "match; never: a negative id matches nothing"},
           {"p_dtype", "F32", "type of the unnormalised probabilities in the product with v"},
           {"lse_base", "e", "\"e\" or \"2\""},
           {"out_dtype", "type of q", "a float type: o is rounded to it once"}},
      .rules =
          {"Keys that a row does not see take no part: they and their bias may hold NaN, and so "
           "may rows past q_lengths.",
           "A key whose bias is -inf stays visible: weight 0, or logit -c under soft_cap. A row "
           "whose visible keys are all at -inf is a row that sees no key.",
           "lse of a row that sees no key: -inf under zero and uniform, NaN under nan. Past "
           "q_lengths: o = 0, lse = -inf always.",
           "A sink is neither scaled nor capped and joins maximum, denominator and lse. A row that "
           "sees nothing else has o = 0, lse = sink.",
           "bottom_right uses the array sizes S and T, not the lengths. A window without causal is "
           "aligned top-left.",
           "p_dtype: a shift or a normalisation before the rounding is within the bound.",
           "The bound follows the error of the scores (D, |scale| sum |q||k| + |bias|) into each "
           "element of o; see golden/attention_bound.h.",
           "`run --probe uniform|select|position` makes up inputs whose o is an exact integer or "
           "dyadic number: means, one end of what a row sees, or one key of it.",
           "`check --partial FILE` judges what a kernel held after each of N key blocks too, and "
           "names the first one at which a value departs: o [N, B, H, T, E] (as o; any float type) "
           "and perhaps lse [N, B, H, T], or unnormalised acc [N, B, H, T, E], m and l [N, B, H, "
           "T] "
           "(natural). Rows that have seen no key yet are not judged; sinks are in all, the last "
           "or none of the states.",
           "`run` computes with the SIMD kernel in f32; inputs in F64 with the definition. A mesh "
           "is "
           "refused in this version."},
      .sources =
          {"jax.nn.dot_product_attention (bias, mask, lengths, windows)",
           "jax.experimental.pallas.ops.tpu.flash_attention (bias_order before_scale)",
           "jax.experimental.pallas.ops.tpu.splash_attention (soft cap, sinks, segments, lse)",
           "FlashAttention-2 (bottom_right alignment)"},
      .validate = validate,
      .compute = compute,
      .expect = expect_attention,
      .price = price_attention_run,
      .probe = probe_attention,
      .judge_partials = judge_attention_partials,
  };
}

}  // namespace kref
