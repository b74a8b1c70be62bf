// SPDX-License-Identifier: Apache-2.0
// A collective matmul in a typed body (typed_shard_map.h), whose cotangents are collective matmuls
// too, paired by custom_vjp.
#pragma once

#include "sharding/collective_matmul.h"
#include "sharding/value.h"

namespace kref {

// z = x y, of the blocks that specs.x and specs.y describe, as specs.z describes it, by a ring over
// options.axis_name. The bits of collective_matmul, backward of collective_matmul_vjp. Along axes
// that no spec names x and y may vary: each group of devices has a product of its own, and the
// cotangent of an operand that does not vary there is summed. Not used of the options: launch.
//
// Error, before a device starts: as plan_ring and place_matmul, those of the backward products when
// a derivative is asked for; blocks that do not make one product; an operand that is unreduced,
// reduced, or varies along an axis that the other specs name and its own does not; operands stored
// transposed; a z that keeps partial sums; check_vma off, where nothing proves these states.
Value collective_matmul(const Value& x, const Value& y, const MatmulSpecs& specs,
                        const CollectiveMatmulOptions& options, CallSite where = CallSite::here());

}  // namespace kref
