// SPDX-License-Identifier: Apache-2.0
#include "sharding/serving.h"

#include <algorithm>
#include <cmath>

namespace kref {

double decode_seconds(const Chip& chip, const DecodeStep& s) {
  const double read = s.parameter_bytes / (s.chips * chip.hbm_rate);
  const double multiplied =
      2 * s.batch * s.parameters / (s.chips * operation_rate(chip, s.compute));
  return s.batch * s.cache_bytes / (s.chips * chip.hbm_rate) + std::max(read, multiplied);
}

double decode_load_seconds(const Chip& chip, const DecodeStep& s) {
  return (s.batch * s.cache_bytes + s.parameter_bytes) / (s.chips * chip.hbm_rate);
}

double decode_model_axis(double f, double batch, double beta) { return f / (batch * beta); }

double latency_model_axis(double batch, double d, double bytes_per_element, double latency_bytes) {
  return batch * d * bytes_per_element / latency_bytes;
}

double fsdp_decode_penalty(const Chip& chip, double y) { return y * hbm_to_link(chip); }

double two_dimensional_seconds(const Chip& chip, double b, double d, double f, double n, double x) {
  // All-gather and reduce-scatter of [B, D / X] over two axes, all-reduce of [B, F / YZ] over one.
  return (2 * b * d / x + 4 * b * f / (n / x)) / chip.axis_rate();
}

double one_dimensional_seconds(const Chip& chip, double b, double d) {
  return 4 * b * d / (3 * chip.axis_rate());
}

double two_dimensional_axis(double d, double f, double n) { return std::sqrt(d * n / (2 * f)); }

double two_dimensional_from(double d, double f) {
  // 2 sqrt(8 D F / N) B / W = 4 B D / (3 W) at this N.
  return 32 * (f / d) * (9.0 / 16);
}

double prefill_servers(double prefill, double step, double batch, double length) {
  return prefill * batch / (step * length);
}

double evicted_tokens(double batch, double prompt, double generated) {
  return batch * (prompt + generated) / generated;
}

double cached_sequences(double chips, const Chip& chip, double parameter_bytes,
                        double sequence_bytes) {
  return (chips * chip.hbm_bytes - parameter_bytes) / sequence_bytes;
}

}  // namespace kref
