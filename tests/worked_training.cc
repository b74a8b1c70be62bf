// SPDX-License-Identifier: Apache-2.0
// Chapters 4 to 6.
#include <cmath>

#include "sharding/planning.h"
#include "sharding/roofline.h"
#include "sharding/serving.h"
#include "sharding/sharded_matmul.h"
#include "sharding/transformer_size.h"
#include "tests/worked_problems.h"

namespace kref {
namespace {

using enum Printed;
constexpr double kDay = 86400, kYear = 365 * kDay;

// Operations a second of `chips` of v5p at a share of their peak.
double rate(double chips, double share = 0.4) {
  return chips * operation_rate(find_chip("v5p"), DType::kBF16) * share;
}

double attention(double queries, double keys) {
  return attention_roofline(find_chip("v5e"), {.batch = 4,
                                               .heads = 64,
                                               .kv_heads = 8,
                                               .queries = queries,
                                               .keys = keys,
                                               .depth = 128,
                                               .width = 128})
      .intensity();
}

std::vector<Worked> chapter_5() {
  const Chip v5p = find_chip("v5p"), v5e = find_chip("v5e");
  const TransformerSize m13 = llama2_13b();
  const double f13 = 13824, tokens = 3e6, pod = 4096;
  // Three arrays a layer are kept: D and twice F.
  const double kept = 2 * m13.layers * (m13.model + 2 * m13.hidden);
  const auto ratio = [&](double x, Overlap overlap) {
    return mixed_ratio(v5p, tokens, f13, pod, x, 2, 1, overlap);
  };
  return {
      {"N.a", "tokens a chip of DP, one axis, v5p", 2550, 2550, data_parallel_tokens(v5p, 1)},
      {"N.a", "two axes", 1275, 1275, data_parallel_tokens(v5p, 2)},
      {"N.a", "three axes", 850, 850, data_parallel_tokens(v5p, 3)},
      {"N.a", "tokens of a pod", 7.6e6, 7.616e6, 8960 * data_parallel_tokens(v5p, 3)},
      {"N.a", "tokens a chip, one axis, v5e", 2189, 2188.9, data_parallel_tokens(v5e, 1)},
      {"N.b", "parameters of the largest model of pure DP", 9e9, 9.6e9,
       largest_replicated_model(v5p), kCoarse},
      {"N.c", "chips that a batch of 40e6 tokens keeps busy", 47000, 47059,
       40e6 / data_parallel_tokens(v5p, 3)},
      {"N.d", "chips for 16e6 tokens", 18823, 18823.5, 16e6 / data_parallel_tokens(v5p, 3)},
      {"N.d", "days of 6.3e24 operations on them at 50 %", 17, 16.9,
       6.3e24 / rate(16e6 / data_parallel_tokens(v5p, 3), 0.5) / kDay},
      {"N.e", "ways of TP at F = 30000", kNoNumber, 11.76, tensor_parallel_chips(v5p, 30000),
       kNoAnswer},
      {"N.e", "F for 8 ways", 20000, 20400, 8 / tensor_parallel_chips(v5p, 1)},
      {"N.f", "ways of TP at F = 50000", 19, 19.6, tensor_parallel_chips(v5p, 50000), kErratum},
      {"N.g", "X_opt at B = 48000, F = 32768, N = 64", 13.9, 13.69,
       optimal_data_axis(48000, 32768, 64, 2), kErratum},
      {"N.g", "the same at B = 49152", 13.9, 13.86, optimal_data_axis(49152, 32768, 64, 2)},
      {"N.g", "the same with one axis each, B = 48000", kNoNumber, 9.68,
       optimal_data_axis(48000, 32768, 64), kNoAnswer},
      {"N.h", "tokens a chip of FSDP+TP, F = 32768", 99, 99.2, mixed_tokens(v5p, 32768, 2)},
      {"N.h", "the same one after the other (February 2025)", 400, 396.9,
       mixed_tokens(v5p, 32768, 2, Overlap::kSum)},
      {"N.h", "F = 30000", 108, 108.4, mixed_tokens(v5p, 30000, 2)},
      {"N.i", "tokens of 16x16x16", 4e5, 406406, 4096 * mixed_tokens(v5p, 32768, 2)},
      {"N.j", "tokens a slice of DP over the network", 71360, 73440, slice_tokens(v5p), kErratum},
      {"N.k", "chips for 2e6 tokens, FSDP", 2400, 2353, 2e6 / data_parallel_tokens(v5p, 3)},
      {"N.k", "FSDP+TP", 18000, 18454, 2e6 / mixed_tokens(v5p, 30000, 2), kCoarse},
      {"N.k", "tokens a chip of two pods", 111, 111.6, 2e6 / (2 * 8960)},
      {"N.1", "MLP parameters of LLaMA-2 13B", 8.5e9, 8.493e9, m13.mlp_parameters()},
      {"N.1", "attention", 4.2e9, 4.194e9, m13.attention_parameters()},
      {"N.1", "vocabulary", 0.3e9, 0.328e9, m13.vocabulary_parameters(), kErratum},
      {"N.1", "all", 13.1e9, 13.015e9, m13.parameters(), kErratum},
      {"N.2", "bytes of weights and moments", 130e9, 1.3015e11,
       m13.parameters() * bytes_per_parameter(ZeroStage::kNone, 1)},
      {"N.2", "bytes of activations, 16e6 tokens", 42e12, 4.194e13, 16e6 * kept},
      {"N.3.1", "the first over the memory of a chip: pure DP does not fit", kNoNumber, 1.3557,
       m13.parameters() / largest_replicated_model(v5p), kNoAnswer},
      {"N.3.2", "bytes of activations, 3e6 tokens", 7.86e12, 7.864e12, tokens * kept},
      {"N.3.2", "bytes of HBM of 16x16x16", 393e12, 3.9322e14, pod * v5p.hbm_bytes},
      {"N.3.2", "tokens that pure FSDP needs", 3.48e6, 3481600, pod * data_parallel_tokens(v5p, 3)},
      {"N.3.3", "tokens a chip that FSDP+TP needs", 235, 235.2, mixed_tokens(v5p, f13, 2)},
      {"N.3.3", "the same in the edition of February 2025", 940, 235.2, mixed_tokens(v5p, f13, 2),
       kErratum},
      {"N.3.3", "tokens a chip that there are", 732, 732.4, tokens / pod},
      {"N.3.3", "X_opt", 1333, 1333.3, optimal_data_axis(tokens, f13, pod, 2)},
      {"N.3.3", "ms of a step at 40 %", 300, 310.5,
       6 * 13e9 * tokens / (pod * find_chip("v5p-4.6").bf16_rate * 0.4) * 1e3, kCoarse},
      {"N.3.3", "compute over collectives at X_opt", kNoNumber, 1.76, ratio(1333.3, Overlap::kMax),
       kNoAnswer},
      {"N.3.3", "at 1024 x 4", kNoNumber, 1.36, ratio(1024, Overlap::kMax), kNoAnswer},
      {"N.3.3", "at 1024 x 4, one after the other", kNoNumber, 0.85, ratio(1024, Overlap::kSum),
       kNoAnswer, 0.01},
  };
}

std::vector<Worked> chapter_6() {
  const Chip v5p = find_chip("v5p");
  const TransformerSize m70 = llama3_70b(), m405 = llama3_405b();
  const double all = 6.3e24, pod = 8960, f = m70.hidden;
  const double checkpoint = 4 * kept_activations(4e6, m70.model, m70.layers, true);
  const double weights = 10 * 70e9, chips_225 = 225;
  const double days_on_pod = 44;  // as the book rounds before it scales
  const double years_on_225 = days_on_pod * pod / chips_225 * kDay / kYear;
  return {
      {"A.1", "MLP parameters of LLaMA-3 70B", 56.3e9, 56.371e9, m70.mlp_parameters()},
      {"A.1", "vocabulary", 2.1e9, 2.101e9, m70.vocabulary_parameters()},
      {"A.1", "attention", 12e9, 12.080e9, m70.attention_parameters()},
      {"A.1", "all", 70.4e9, 70.552e9, m70.parameters()},
      {"A.2", "operations a token", 4.2e11, 4.233e11, m70.training_flops(1)},
      {"A.2", "ms of one token on one v5p", 1, 0.915, m70.training_flops(1) / rate(1, 1) * 1e3,
       kCoarse, 0.01},
      {"A.3", "operations of 15e12 tokens", 6.3e24, 6.3e24, m70.training_flops(15e12), kAgrees,
       0.01},
      {"A.3", "years on one v5p", 435, 435.2, all / rate(1, 1) / kYear},
      {"A.4", "seconds on a pod at 40 %", 3.8e6, 3.830e6, all / rate(pod)},
      {"A.4", "days", 44, 44.3, all / rate(pod) / kDay},
      {"A.5", "bytes of four checkpoints a layer, 4e6 tokens", 20.9e12, 20.97e12, checkpoint},
      {"A.5", "bytes with weights and moments", 21.6e12, 21.67e12, checkpoint + weights},
      {"A.5", "chips that hold them", 225, 226, std::ceil((checkpoint + weights) / v5p.hbm_bytes)},
      {"A.6", "years on 225 chips", 4, 4.80, years_on_225, kErratum},
      {"A.7", "GB a chip of a pod", 2.4, 2.41, (checkpoint + weights) / pod / 1e9},
      {"A.7", "GB with twelve checkpoints", 8, 7.10, (3 * checkpoint + weights) / pod / 1e9,
       kErratum},
      {"A.8", "tokens a chip of a pod, 2^22", 468, 468.1, 4 * std::pow(2.0, 20) / pod},
      {"A.8", "tokens a chip that FSDP needs", 850, 850, data_parallel_tokens(v5p, 3)},
      {"A.9", "tokens a chip that FSDP+TP needs", 113, 113.4, mixed_tokens(v5p, f, 2)},
      {"A.9", "the same in the edition of February 2025", 453, 113.4, mixed_tokens(v5p, f, 2),
       kErratum},
      {"A.9", "X_opt", 1618, 1618.3, optimal_data_axis(4.19e6, f, pod, 2)},
      {"A.10", "tokens a chip of four pods", kNoNumber, 117.0, std::pow(2.0, 22) / (4 * pod),
       kNoAnswer},
      {"A.10", "X_opt in each", kNoNumber, 809.5, optimal_data_axis(std::pow(2.0, 20), f, pod, 2),
       kNoAnswer},
      {"A.10", "days", kNoNumber, 11.1, all / rate(4 * pod) / kDay, kNoAnswer},
      {"A.11", "MLP parameters of LLaMA-3 405B", kNoNumber, 329.8e9, m405.mlp_parameters(),
       kNoAnswer},
      {"A.11", "attention", kNoNumber, 71.9e9, m405.attention_parameters(), kNoAnswer},
      {"A.11", "all", kNoNumber, 405.9e9, m405.parameters(), kNoAnswer},
      {"A.11", "operations a token", kNoNumber, 2.435e12, m405.training_flops(1), kNoAnswer},
      {"A.11", "operations of 15e12 tokens", kNoNumber, 3.65e25, m405.training_flops(15e12),
       kNoAnswer},
      {"A.11", "seconds on eight pods at 40 %", kNoNumber, 2.78e6,
       m405.training_flops(15e12) / rate(8 * pod), kNoAnswer},
  };
}

}  // namespace

std::vector<Worked> size_problems() {
  const TransformerSize q1{.layers = 64,
                           .model = 4096,
                           .hidden = 4 * 4096,
                           .heads = 32,
                           .kv_heads = 32,
                           .head = 128,
                           .vocabulary = 32000};
  const TransformerSize cache{.layers = 64, .kv_heads = 64, .head = 128};
  const double layer = q1.mlp_parameters() + q1.attention_parameters();
  // A [B_X, D_Y] times W [D_Y, F] on X = 4, Y = 8, Z = 4; B = 512, D = 1024, F = 256.
  const MatmulPlacement placed =
      place_matmul(Mesh::parse("X=4,Y=8,Z=4"), {.m = 512, .n = 256, .k = 1024}, {"X", "Y"},
                   {"Y", none}, {{"X"}, {}});
  const double chip_flops = matmul_work(placed, DType::kBF16).flops;
  const double one = 2.0 * 512 * 1024 * 256;
  const double einsum = matmul_roofline(find_chip("v5e"), {.m = 5 * 7, .n = 11.0 * 13 * 17, .k = 6})
                            .flops;  // I J = 6, K L = 5 7, M N O = 11 13 17
  const TransformerSize scores{.layers = 1, .heads = 32, .head = 128};
  return {
      {"F.a", "bytes of an int8 cache of 8192 tokens", 8 * std::pow(2.0, 30), std::pow(2.0, 33),
       8192 * cache.kv_bytes_per_token(1)},
      {"F.b", "bytes of activations of 4e6 tokens", 84e12, 8.389e13,
       kept_activations(4e6, 8192, 64, false)},
      {"F.b", "computed again", 4.2e12, 4.194e12, kept_activations(4e6, 8192, 64, true)},
      {"F.c", "scores over the rest, T = D", 0.125, 0.125, attention_share(4096, 4096)},
      {"F.1", "parameters", 16e9, 17.44e9, q1.parameters(), kErratum},
      {"F.1", "share of attention in a layer", 0.25, 0.25, q1.attention_parameters() / layer},
      {"F.1", "and in all", 0.25, 0.246, q1.attention_parameters() / q1.parameters()},
      {"F.1", "bytes of cache a token", 512 * 1024, 524288, q1.kv_bytes_per_token(1)},
      {"F.2", "operations a chip, 2BDF / XY", one / 32, one / 32, chip_flops},
      {"F.2", "operations of all, 2BDFZ", one * 4, one * 4, chip_flops * 128},
      {"F.3", "operations of an einsum, 2IJKLMNO", 2.0 * 6 * 35 * 2431, 2.0 * 6 * 35 * 2431,
       einsum},
      {"F.4", "intensity of attention, T = S = 1024, G = 8", 1024 * 8 / 9.0, 910.2,
       attention(1024, 1024)},
      {"F.4", "of one token against 8192", 8, 8192 * 8 / 8200.0, attention(1, 8192)},
      {"F.4", "the formula of both", 910.2, 910.2, attention_intensity(1024, 1024, 8)},
      {"F.5", "T at which scores equal projections", 8192, 8192,
       attention_equals_projections(4096)},
      {"F.6", "operations computed again, 4BT^2NH", 4 * 2.0 * 1024 * 1024 * 4096,
       4 * 2.0 * 1024 * 1024 * 4096, scores.attention_flops(2, 1024) / 3},
      {"F.7", "share of the peak, DeepSeek v3", 0.217, 0.216,
       6 * 37e9 * 14.8e12 / (2.79e6 * 3600 * operation_rate(gpu(1.513e15, 3.35e12), DType::kBF16))},
      {"F.8", "B from which 8 of 256 int8 experts are compute-bound", 3840, 3844,
       critical_batch(find_chip("v5e-240"), DType::kI8, DType::kBF16) * 256 / 8},
  };
}

std::vector<Worked> training_problems() {
  std::vector<Worked> all = chapter_5();
  for (const Worked& row : chapter_6()) all.push_back(row);
  return all;
}

}  // namespace kref
