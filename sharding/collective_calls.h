// SPDX-License-Identifier: Apache-2.0
// The collectives as functions, spelled as in jax.lax: sugar for the values of collectives.h.
//
//   const Array full = all_gather(device, x, "X", {.axis = 1, .tiled = true});
//   Pending travelling = ppermute_start(device, x, "X", ring(n, 1));
#pragma once

#include "sharding/collectives.h"

namespace kref {

struct AllGatherOptions {
  Index axis = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
  GatherTo to = GatherTo::kVarying;
};
Array all_gather(Device& device, const Array& x, const AxisNames& axis_name,
                 const AllGatherOptions& options = {}, CallSite where = CallSite::here());
// (the author of collective_calls completes this: psum, pmean, pmax, pmin, pargmax, pargmin,
// psum_scatter, all_to_all, ppermute, pshuffle, pswapaxes, pbroadcast, pvary, and x_start of each)

}  // namespace kref
