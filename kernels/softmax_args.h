// SPDX-License-Identifier: Apache-2.0
// What the vector code of softmax_update and attention_gradient is handed: raw pointers, strides in
// elements.
#pragma once

#include "kernels/softmax_ops.h"

namespace kref::detail {

struct SoftmaxArgs {
  ScoreRule rule;
  Index rows, keys;
  const std::int32_t *begin, *end;
  const bool* chosen;  // null: none
  Index chosen_stride;
  const void* bias;  // null: none
  DType bias_type;
  Index bias_stride;  // 0: one row for all
  float* bias_row;    // room for a row of bias in f32, keys rounded up to 16
  float* p;
  Index p_stride;
  // The state; none in attention_gradient.
  float* maximum = nullptr;
  Index maximum_stride = 0;
  float* sums = nullptr;
  Index sums_stride = 0;
  float* acc = nullptr;
  Index acc_stride = 0, width = 0;  // width: E
};

struct GradientArgs {
  SoftmaxArgs scores;
  const float *lse, *delta;  // one a row
  float* ds;
  Index ds_stride;
  float factor;
};

// Without a state. The room for a row of bias is the calling thread's, until its next call.
SoftmaxArgs softmax_args(const ScoreRule& rule, const BlockMask& mask, const ArrayRef& bias,
                         Ref<float, 2> p);

}  // namespace kref::detail
