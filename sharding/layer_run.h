// SPDX-License-Identifier: Apache-2.0
// What layer.cc launches beside layer_forward and layer_backward. Internal to sharding/.
#pragma once

#include "sharding/layer.h"

namespace kref::detail {

// As layer_forward and layer_backward, of forward_steps or backward_steps, for launches whose
// devices all run the same steps: none meets a body of somebody's own, so that large products which
// are summed over devices need not be made first (product_sum.h).
void layer_pass(Device& device, const LayerOptions& options, const std::vector<LayerStep>& steps,
                LayerArrays& arrays, LayerMeter* meter, CallSite where);

// Of such a launch too. Backward in several parts: makes ct.x and the cotangents of the weights.
void layer_accumulate(Device& device, const LayerOptions& options, LayerArrays& arrays,
                      LayerMeter* meter, CallSite where);

}  // namespace kref::detail
