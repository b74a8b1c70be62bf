// SPDX-License-Identifier: Apache-2.0
// Chapters 7 and 8.
#include <cmath>

#include "sharding/link_cost.h"
#include "sharding/planning.h"
#include "sharding/roofline.h"
#include "sharding/serving.h"
#include "sharding/transformer_size.h"
#include "tests/worked_problems.h"

namespace kref {
namespace {

using enum Printed;
using enum DType;
constexpr double kMilli = 1e3, kMicro = 1e6;

struct TableRow {
  double batch, ms, tokens;
};
// As printed, with caches of 6.7 and of 1.34 GB.
constexpr TableRow kLarge[] = {{1, 4.98, 200.61},   {8, 12.13, 659.30},  {16, 20.30, 787.99},
                               {32, 36.65, 873.21}, {64, 69.33, 923.13}, {240, 249.09, 963.53}};
constexpr TableRow kSmall[] = {{1, 4.17, 239.94},    {8, 5.60, 1429.19},   {16, 7.23, 2212.48},
                               {32, 10.50, 3047.62}, {64, 17.04, 3756.62}, {240, 52.99, 4529.34}};

void add_table(std::vector<Worked>& rows, const char* id, std::span<const TableRow> table,
               double cache) {
  for (const TableRow& row : table) {
    const DecodeStep step{
        .chips = 8, .batch = row.batch, .parameter_bytes = 26e9, .cache_bytes = cache};
    const double seconds = decode_load_seconds(find_chip("v5e-240"), step);
    rows.push_back(
        {id, "ms of a step of LLaMA-2 13B", row.ms, row.ms, seconds * kMilli, kAgrees, 2e-3});
    rows.push_back(
        {id, "tokens a second", row.tokens, row.tokens, row.batch / seconds, kAgrees, 1e-5});
  }
}

TransformerSize model_q() {
  return {.layers = 64,
          .model = 4096,
          .hidden = 16384,
          .heads = 32,
          .kv_heads = 8,
          .head = 256,
          .vocabulary = 32128,
          .tied = true};
}

// ms to read all parameters and caches.
double read_ms(double chips, double parameters, double batch = 0, double cache = 0,
               const char* chip = "v5e") {
  return decode_load_seconds(find_chip(chip), {.chips = chips,
                                               .batch = batch,
                                               .parameter_bytes = parameters,
                                               .cache_bytes = cache}) *
         kMilli;
}

}  // namespace

std::vector<Worked> inference_problems() {
  const Chip v5e = find_chip("v5e"), v5e_240 = find_chip("v5e-240");
  const DecodeStep b4{.chips = 16,
                      .batch = 4,
                      .parameters = 30e9,
                      .parameter_bytes = 30e9,
                      .cache_bytes = 100e3 * 8192};
  DecodeStep b256 = b4;
  b256.batch = 256;
  const TransformerSize q = model_q();
  TransformerSize moe = q;
  moe.experts = 16, moe.chosen = 2;
  const double q_bytes = q.parameters(), moe_bytes = moe.parameters(), pod = 128;
  const double n = 512, d = 4096, f = 4 * d;
  std::vector<Worked> rows = {
      {"I.a", "critical batch in bf16", 240, 240.2, critical_batch(v5e_240, kBF16, kBF16)},
      {"I.a", "int8 weights", 120, 120.1, critical_batch(v5e_240, kI8, kBF16)},
      {"I.a", "all int8", 240, 243.2, critical_batch(v5e, kI8, kI8)},
      {"I.a", "of an H100", 280, 295.2, hbm_intensity(gpu(9.89e14, 3.35e12)), kCoarse},
      {"I.b", "ms of a step of 30e9 int8, 4x4, B = 4", 2.5, 2.57, decode_seconds(v5e, b4) * kMilli,
       kCoarse},
      {"I.c", "B = 256", 21, 21.05, decode_seconds(v5e, b256) * kMilli},
      {"I.d", "Y_max at F = 16384, B = 32, beta 8", 64, 64, decode_model_axis(16384, 32, 8)},
      {"I.d", "with the beta of v5e, 9", kNoNumber, 56.9,
       decode_model_axis(16384, 32, hbm_to_link(v5e)), kNoAnswer},
      {"I.e", "bytes of 8192 tokens of LLaMA-2 13B, bf16", 6.7e9, 6710886400,
       8192 * llama2_13b().kv_bytes_per_token(2)},
      {"I.h", "bytes below which 8 ways are latency-bound", 360e3, 360e3, 8 * latency_bytes(v5e)},
      {"I.h", "ways at which [16, 8192] int8 is", kNoNumber, 131072 / 45e3,
       latency_model_axis(16, 8192, 1, latency_bytes(v5e)), kNoAnswer},
      {"I.i", "us to read a layer's weights, 4 ways", 365, 327,
       read_ms(4, 2 * (2.0 * 8192 * 32768), 0, 0, "v5e-240") * 1e3, kErratum},
      {"I.1", "parameters", 18.4e9, 18385207296, q.parameters()},
      {"I.1", "int8 bytes of cache a token", 262e3, 262144, q.kv_bytes_per_token(1)},
      {"I.2", "sequences of 128e3 tokens beside it on 4x4", 7, 7.09,
       cached_sequences(16, v5e, 18.4e9, 262e3 * 128e3)},
      {"I.2", "sequences of 131072 tokens: only 6", 7, 6.92,
       cached_sequences(16, v5e, 18.4e9, q.kv_bytes_per_token(1) * 131072), kErratum},
      {"I.2", "with one kv head", 56, 56.7, cached_sequences(16, v5e, 18.4e9, 262e3 * 128e3 / 8)},
      {"I.3", "ms to read the parameters", 1.3, 1.419, read_ms(16, q_bytes), kErratum},
      {"I.4", "ways of TP in int8 an axis", kNoNumber, 7.5, tensor_parallel_chips(v5e, 16384),
       kNoAnswer},
      {"I.4", "ms of a step, B = 7, 128e3 tokens", kNoNumber, 19.5,
       read_ms(16, q_bytes, 7, 262e3 * 128e3), kNoAnswer},
      {"I.5", "parameters with 16 experts", 212e9, 211.66e9, moe.parameters()},
      {"I.5", "of which a token takes", 31.2e9, 31.27e9, moe.active_parameters()},
      {"I.5", "times as many as without", 11.5, 11.51, moe.parameters() / q.parameters()},
      {"I.5", "critical batch", 1920, 1921.9, critical_batch(v5e_240, kBF16, kBF16) * 16 / 2},
      {"I.5", "bytes of cache a token, as before", 262144, 262144, moe.kv_bytes_per_token(1)},
      {"I.6", "GB a chip of 8x16, int8", kNoNumber, 1.654, moe_bytes / pod / 1e9, kNoAnswer},
      {"I.6", "ms to read them", kNoNumber, 2.04, read_ms(pod, moe_bytes), kNoAnswer},
      {"I.6", "GB that stay free", kNoNumber, 14.35, (v5e.hbm_bytes - moe_bytes / pod) / 1e9,
       kNoAnswer},
      {"I.6", "chips of memory that they need", kNoNumber, 13.2, moe_bytes / v5e.hbm_bytes,
       kNoAnswer},
      {"I.6", "ms in bf16", kNoNumber, 4.08, read_ms(pod, 2 * moe_bytes), kNoAnswer},
      {"I.6", "chips of memory in bf16", kNoNumber, 26.5, 2 * moe_bytes / v5e.hbm_bytes, kNoAnswer},
      {"I.7", "X of the 2D split, sqrt(N / 8)", std::sqrt(n / 8), std::sqrt(n / 8),
       two_dimensional_axis(d, f, n)},
      {"I.7", "its us at B = 64, 11.3 BD / (sqrt(N) W)",
       11.3 * 64 * d / (std::sqrt(n) * 9e10) * kMicro,
       std::sqrt(128) * 64 * d / (std::sqrt(n) * 9e10) * kMicro,
       two_dimensional_seconds(v5e, 64, d, f, n, two_dimensional_axis(d, f, n)) * kMicro},
      {"I.7", "chips from which it is faster", 81, 72, two_dimensional_from(d, f), kErratum},
      {"I.7", "its time over the other at 72", kNoNumber, 1,
       two_dimensional_seconds(v5e, 64, d, f, 72, 3) / one_dimensional_seconds(v5e, 64, d),
       kNoAnswer},
      {"I.8", "times by which FSDP slows decoding 16 ways", kNoNumber, 144,
       fsdp_decode_penalty(v5e, 16), kNoAnswer},
  };
  add_table(rows, "I.f", kLarge, 6.7e9);
  add_table(rows, "I.g", kSmall, 1.34e9);
  return rows;
}

std::vector<Worked> serving_problems() {
  const Chip v5e = find_chip("v5e"), v5p = find_chip("v5p");
  const TransformerSize m70 = llama3_70b(), m405 = llama3_405b();
  // Rounded as the book has them: 160 and 324 kB of cache a token.
  const double token = 160e3, context = 8192, b32 = 32 * token * context;
  const double step = 19e-3, decoded = 512;
  const Roofline matrix = matmul_roofline(v5e, {.m = 64, .n = 28672, .k = 8192, .compute = kBF16});
  const double weight = 2.0 * 8192 * 28672;
  const auto qps = [&](double batch, double chips) { return batch / (step * decoded) / chips; };
  const auto caches = [&](double chips, double parameters, double bytes) {
    return cached_sequences(chips, v5e, parameters, bytes * context);
  };
  const auto per_dollar = [](double rate, double price) { return rate * 3600 / price; };
  const double step_8 = read_ms(8, 70e9, 32, token * context);
  return {
      {"J.1", "int8 bytes of cache a token", 160e3, 163840, m70.kv_bytes_per_token(1)},
      {"J.1", "of 32768 tokens", 5.3e9, 5.369e9, 32768 * m70.kv_bytes_per_token(1)},
      {"J.1", "chips of memory for 240 sequences", 86, 85.6,
       (240 * token * 32e3 + 140e9) / v5e.hbm_bytes},
      {"J.2", "bytes of 32 caches of 8192 tokens", 41.9e9, 41.94e9, b32},
      {"J.2", "chips of memory", 7, 7.0, (b32 + 70e9) / v5e.hbm_bytes},
      {"J.3", "ms of a step on 4x2", 17, 17.28, step_8},
      {"J.3", "tokens a second", 1882, 1851, 32 / step_8 * kMilli},
      {"J.3", "tokens a second and chip", 235, 231.4, 32 / step_8 * kMilli / 8},
      {"J.3", "ms on 4x4", 8.5, 8.64, read_ms(16, 70e9, 32, token * context)},
      {"J.4", "ways of TP, two axes, v5e", 26, 26.2, tensor_parallel_chips(v5e, 28672, 2)},
      {"J.4", "with the alpha of v5p", kNoNumber, 22.5, tensor_parallel_chips(v5p, 28672, 2),
       kNoAnswer},
      {"J.5", "chips of memory, bf16", 8.75, 8.75, 140e9 / v5e.hbm_bytes},
      {"J.5", "int8", 4.38, 4.38, 70e9 / v5e.hbm_bytes},
      {"J.5", "int4", 2.81, 2.19, 35e9 / v5e.hbm_bytes, kErratum},
      {"J.5", "caches beside bf16 on 4x4", 43, 43.7, caches(16, 140e9, 324e3)},
      {"J.5", "beside int8 on 4x2", 43, 43.7, caches(8, 70e9, 162e3)},
      {"J.5", "beside int4 on 2x2", 43, 43.7, caches(4, 35e9, 81e3)},
      {"J.6", "ms of a step when memory is full", 19, 19.75, v5e.hbm_bytes / v5e.hbm_rate * kMilli,
       kCoarse},
      {"J.6", "ms of int4 parameters alone", 10, 10.7, read_ms(4, 35e9, 0, 0, "v5e-240"), kCoarse},
      {"J.7", "queries a second and chip, bf16", 0.27, 0.276, qps(43, 16)},
      {"J.7", "int8", 0.55, 0.553, qps(43, 8)},
      {"J.7", "int4", 1.11, 1.105, qps(43, 4)},
      {"J.8", "queries a second and chip, B = 140, bf16", 0.44, 0.450, qps(140, 32)},
      {"J.8", "int8", 0.90, 0.899, qps(140, 16)},
      {"J.8", "int4", 1.80, 1.799, qps(140, 8)},
      {"J.9", "us of links of one product, 4x8, B = 64", 11, 11.65,
       2.0 * 64 * 8192 / v5e.axis_rate() * kMicro, kCoarse},
      {"J.9", "us to read its weight", 18, 18.12, weight / 32 / v5e.hbm_rate * kMicro},
      {"J.9", "us to multiply", 4, 4.77, matrix.compute / 32 * kMicro, kCoarse},
      {"J.9", "Y_max, beta 8", 56, 56, decode_model_axis(28672, 64, 8)},
      {"J.10", "seconds of a prefill of 8192 on 16 chips, 40 %", 0.91, 0.9096,
       2 * 70e9 * 8192 / (16 * v5e.bf16_rate * 0.4)},
      {"J.11", "tokens evicted a step", 96, 96, evicted_tokens(32, 8192, 4096)},
      {"J.12", "prefill servers a decoding one", 3, 2.99, prefill_servers(0.91, step, 32, decoded)},
      {"J.12", "at B = 43", kNoNumber, 4.02, prefill_servers(0.91, step, 43, decoded), kNoAnswer},
      {"J.13", "operations a dollar, H100", 3.3e17, 3.30e17, per_dollar(9.89e14, 10.8)},
      {"J.13", "v5p", 3.9e17, 3.93e17, per_dollar(v5p.bf16_rate, 4.2)},
      {"J.13", "v5e", 5.8e17, 5.91e17, per_dollar(v5e.bf16_rate, 1.2), kErratum},
      {"J.14", "operations a token of LLaMA-3 405B", kNoNumber, 8.118e11,
       m405.training_flops(1) / 3, kNoAnswer},
      {"J.14", "ms of one on one v5e", kNoNumber, 4.12,
       m405.training_flops(1) / 3 / v5e.bf16_rate * kMilli, kNoAnswer},
      {"J.14", "seconds to read bf16 parameters", kNoNumber, 1.0,
       read_ms(1, 2 * m405.parameters()) / kMilli, kNoAnswer},
      {"J.15", "bytes of cache a token of LLaMA-3 8B", kNoNumber, 65536,
       llama3_8b().kv_bytes_per_token(1), kNoAnswer},
      {"J.15", "chips of memory for 240 sequences of 8192", kNoNumber, 8.55,
       (240 * context * llama3_8b().kv_bytes_per_token(1) + llama3_8b().parameters()) /
           v5e.hbm_bytes,
       kNoAnswer},
      {"J.16", "chips of memory of 405B in int8", kNoNumber, 26,
       std::ceil(m405.parameters() / v5e.hbm_bytes), kNoAnswer},
      {"J.16", "ms to read them on 4x8", kNoNumber, 15.66, read_ms(32, m405.parameters()),
       kNoAnswer},
      {"J.16", "on 8x8", kNoNumber, 7.83, read_ms(64, m405.parameters()), kNoAnswer},
  };
}

}  // namespace kref
