// SPDX-License-Identifier: Apache-2.0
// What layer.cc launches beside layer_forward and layer_backward. Internal to sharding/.
#pragma once

#include "sharding/layer.h"

namespace kref::detail {

// Backward in several parts: makes ct.x and the cotangents of the weights.
void layer_accumulate(Device& device, const LayerOptions& options, LayerArrays& arrays,
                      LayerMeter* meter, CallSite where);

}  // namespace kref::detail
