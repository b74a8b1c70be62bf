// SPDX-License-Identifier: Apache-2.0
// What the vector code of softmax_update is handed: raw pointers, strides in elements.
#pragma once

#include "kernels/softmax_ops.h"

namespace kref::detail {

struct SoftmaxArgs {
  ScoreRule rule;
  Index rows, keys, width;  // width: E
  const std::int32_t *begin, *end;
  const bool* chosen;  // null: none
  Index chosen_stride;
  const void* bias;  // null: none
  DType bias_type;
  Index bias_stride;  // 0: one row for all
  float* bias_row;    // room for a row of bias in f32, keys rounded up to 16
  float* p;
  Index p_stride;
  float* maximum;
  Index maximum_stride;
  float* sums;
  Index sums_stride;
  float* acc;
  Index acc_stride;
};

}  // namespace kref::detail
