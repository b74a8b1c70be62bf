// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_vjp_op.h"

#include "golden/attention_options.h"
#include "golden/attention_vjp_bound.h"
#include "golden/cost.h"
#include "golden/dims.h"
#include "kernels/flash_attention_vjp.h"

namespace kref {
namespace {

// The inputs that have a cotangent: each in the element type and shape of the input.
constexpr const char* kDifferentiated[] = {"q", "k", "v", "bias", "sinks"};

void validate(const Run& run, bool with_outputs) {
  static const Operation operation = attention_vjp_operation();
  check_declared(operation, run, with_outputs);
  refuse_attention_mesh(run);
  read_attention_vjp(run);
  if (!with_outputs) return;
  for (const std::string name : kDifferentiated) {
    const std::string ct = "ct." + name;
    const auto input = run.in.find(name);
    if (input != run.in.end()) {
      check_output(run, ct, input->second.dtype(), input->second.shape());
    } else if (run.out.contains(ct)) {
      refuse_run(run, "out.", ct, " is given, but there is no in.", name);
    }
  }
}

std::map<std::string, Array> compute(const Run& run) {
  const AttentionVjpRun vjp = read_attention_vjp(run);
  std::map<std::string, Array> out;
  if (!needs_definition(vjp.primal.dtype(), vjp.primal.options.scale)) {
    for (const std::string name : kDifferentiated) {
      const auto input = run.in.find(name);
      if (input != run.in.end()) {
        out["ct." + name] = Array(input->second.dtype(), input->second.shape());
      }
    }
    const auto to = [&](const char* name) { return out.at(name).mutable_ref(); };
    AttentionGradientOutputs gradients{to("ct.q"), to("ct.k"), to("ct.v")};
    if (out.contains("ct.bias")) gradients.bias = to("ct.bias");
    if (out.contains("ct.sinks")) gradients.sinks = to("ct.sinks");
    flash_attention_vjp(vjp.primal.in, vjp.ct, gradients, vjp.primal.options);
    return out;
  }
  const reference::AttentionGradients g =
      reference::attention_vjp(vjp.primal.in, vjp.ct, vjp.primal.options);
  const auto add = [&](const std::string& name, const std::vector<double>& values) {
    const auto input = run.in.find(name);
    if (input == run.in.end()) return;
    const auto shape = input->second.shape();
    out["ct." + name] = rounded_array(input->second.dtype(), {shape.begin(), shape.end()}, values);
  };
  add("q", g.q), add("k", g.k), add("v", g.v), add("bias", g.bias), add("sinks", g.sinks);
  return out;
}

}  // namespace

AttentionVjpRun read_attention_vjp(const Run& run) {
  AttentionVjpRun out{read_attention(run), {.o = run.in.at("ct.o").ref()}};
  const AttentionRun& primal = out.primal;
  const auto fits = [&](const char* name, DType type, const std::vector<Index>& shape) {
    check_array(run, std::string("in.") + name, run.in.at(name), type, shape);
  };
  fits("ct.o", primal.out_dtype, primal.o_shape());
  if (!run.in.contains("ct.lse")) return out;
  fits("ct.lse", DType::kF32, primal.lse_shape());
  out.ct.lse = run.in.at("ct.lse").ref();
  return out;
}

Operation attention_vjp_operation() {
  Operation op = attention_operation();
  op.name = "attention.vjp";
  op.summary = "the cotangents of q, k, v, bias and sinks of attention for those of o and lse";
  op.inputs.push_back({"ct.o", "B H T E", false, "out_dtype, in the layout of q"});
  op.inputs.push_back({"ct.lse", "B H T", true, "F32, of lse in its base; absent: 0"});
  op.outputs = {
      {"ct.q", "B H T D", false, "type and layout of q"},
      {"ct.k", "B G S D", false, "type and layout of k"},
      {"ct.v", "B G S E", false, "type and layout of v"},
      {"ct.bias", "B|1 H|1 T|1 S", true, "type and shape of bias; only where it is given"},
      {"ct.sinks", "H", true, "F32; only where sinks are given"}};
  op.rules = {
      "As attention: the same keys are seen, and what no row sees may hold NaN, so may q and ct.o "
      "of "
      "rows past q_lengths.",
      "Gradients of what no row sees are 0, and so are those through a row that sees no key: its o "
      "and lse are constants. But under uniform its o is the mean of all v: ct.v gets ct.o / S.",
      "ct.k and ct.v are sums over the query heads of their kv head; ct.bias over the dimensions "
      "along which bias is broadcast, and scaled under before_scale.",
      "A cotangent of a base-2 lse counts log2 e times that of the natural one.",
      "p_dtype has no part in the gradients. Of 16-bit inputs probabilities and score gradients "
      "may "
      "be rounded to that type before products, and o to out_dtype: the bound covers it.",
      "The bound follows the errors of scores, exp, sums and the difference dp - delta into each "
      "element; see golden/attention_vjp_bound.h.",
      "`cost` prices two steps: a forward pass that leaves o and lse, and the gradients, five "
      "products (s, dp, dv, dq, dk) of what is seen; those of a bias form s and dp once more.",
      "`run` computes with the SIMD kernel in f32; inputs in F64 with the definition. A mesh is "
      "refused in this version."};
  op.sources = {"jax.vjp of jax.nn.dot_product_attention",
                "jax.experimental.pallas.ops.tpu.flash_attention and splash_attention, backward",
                "FlashAttention-2 (recomputation from lse, delta = rowsum(o ct.o))"};
  op.validate = validate;
  op.compute = compute;
  op.expect = expect_attention_vjp;
  op.price = price_attention_vjp_run;
  op.judge_partials = nullptr;
  return op;
}

}  // namespace kref
