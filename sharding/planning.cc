// SPDX-License-Identifier: Apache-2.0
#include "sharding/planning.h"

#include <algorithm>
#include <cmath>

#include "dsl/check.h"

namespace kref {

double data_parallel_tokens(const Chip& chip, double axes) { return link_intensity(chip) / axes; }

double tensor_parallel_chips(const Chip& chip, double f, double axes) {
  return axes * f / link_intensity(chip);
}

double mixed_tokens(const Chip& chip, double f, double axes_product, Overlap overlap) {
  const double alpha = link_intensity(chip);
  return (overlap == Overlap::kSum ? 4 : 1) * alpha * alpha / (axes_product * f);
}

double slice_tokens(const Chip& chip) { return dcn_intensity(chip); }

double expert_tokens(const Chip& chip, double axes, double experts, double chosen) {
  return experts / chosen * data_parallel_tokens(chip, axes);
}

double optimal_data_axis(double tokens, double f, double chips, double axes_ratio) {
  return std::sqrt(tokens / f * axes_ratio * chips);
}

double mixed_ratio(const Chip& chip, double tokens, double f, double chips, double data_axis,
                   double axes_x, double axes_y, Overlap overlap) {
  const double alpha = link_intensity(chip);
  const double y = chips / data_axis;
  // T_math / T of each: 4BDF/(NC) against 4DF/(Y W M_X) and 4BD/(X W M_Y).
  const double weights = tokens * axes_x / (data_axis * alpha);
  const double activations = f * axes_y / (y * alpha);
  return overlap == Overlap::kMax ? std::min(weights, activations)
                                  : 1 / (1 / weights + 1 / activations);
}

LayerBytes layer_bytes(LayerStrategy strategy, double b, double d, double f, double x, double y,
                       bool gather_input_again) {
  const double activations = (gather_input_again ? 6 : 4) * b * d;
  switch (strategy) {
    case LayerStrategy::kDp:
      return {0, 8 * d * f};
    case LayerStrategy::kFsdp:
      return {4 * d * f, 8 * d * f};
    case LayerStrategy::kTp:
      return {4 * b * d, activations};
    case LayerStrategy::kFsdpTp:
      return {4 * b * d / x + 4 * d * f / y, activations / x + 8 * d * f / y};
    case LayerStrategy::kStationary:
      return {4 * b * d / x + 4 * b * f / y, activations / x + 4 * b * f / y};
    default:
      return {};
  }
}

double bytes_per_parameter(ZeroStage stage, double x, double gradient_bytes) {
  constexpr double kWeights = 2, kMoments = 8;
  switch (stage) {
    case ZeroStage::kNone:
      return kWeights + kMoments + gradient_bytes;
    case ZeroStage::kOptimizer:
      return kWeights + gradient_bytes + kMoments / x;
    case ZeroStage::kGradients:
      return kWeights + (gradient_bytes + kMoments) / x;
    default:
      return (kWeights + kMoments + gradient_bytes) / x;
  }
}

double zero_traffic(ZeroStage stage) { return stage == ZeroStage::kWeights ? 3 : 2; }

double largest_replicated_model(const Chip& chip) {
  return chip.hbm_bytes / bytes_per_parameter(ZeroStage::kNone, 1);
}

double pipeline_bubble(double stages, double microbatches) {
  return (stages - 1) / (microbatches + stages - 1);
}

double critical_batch(const Chip& chip, DType weights, DType compute) {
  // 2 operations a row and weight against the bytes of the weight.
  return operation_rate(chip, compute) / chip.hbm_rate * static_cast<double>(size_of(weights)) / 2;
}

double exact_critical_batch(const Chip& chip, double d, double f, DType weights, DType activations,
                            DType compute) {
  const auto w = static_cast<double>(size_of(weights)),
             a = static_cast<double>(size_of(activations));
  const double rate = 2 * d * f * chip.hbm_rate / operation_rate(chip, compute) - (d + f) * a;
  KREF_CHECK(rate > 0, "a product [B, ", static_cast<Index>(d), "] [", static_cast<Index>(d), ", ",
             static_cast<Index>(f),
             "] is bound by HBM at every B: its activations alone take longer than its operations");
  return d * f * w / rate;
}

double hidden_columns(const Chip& chip, bool both_ways) {
  return link_intensity(chip) * (both_ways ? 1 : 2);
}

}  // namespace kref
