// SPDX-License-Identifier: Apache-2.0
// The collectives of jax.lax on Values, spelled as there. Each is refused where the operand's state
// does not allow it (collective_state.h), and where its shape does not (collectives.h), before any
// device starts. Options and their defaults are those on arrays (collective_calls.h). There
// is no ragged_all_to_all of Values.
#pragma once

#include <utility>
#include <vector>

#include "sharding/collective_calls.h"
#include "sharding/value.h"

namespace kref {

// Any of the linear collectives as a value: apply(Psum{"X"}, x).
Value apply(const LinearCollective& op, const Value& x, CallSite where = CallSite::here());

// The sum, in every device along the axes. An invarying x is counted once a device.
Value psum(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups = {},
           CallSite where = CallSite::here());
Value pmean(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups = {},
            CallSite where = CallSite::here());
Value all_gather(const Value& x, const AxisNames& axis_name, const AllGatherOptions& options = {},
                 CallSite where = CallSite::here());

// The block of the sum that this member owns.
Value psum_scatter(const Value& x, const AxisNames& axis_name,
                   const PsumScatterOptions& options = {}, CallSite where = CallSite::here());
Value all_to_all(const Value& x, const AxisNames& axis_name, Index split_axis, Index concat_axis,
                 const AllToAllOptions& options = {}, CallSite where = CallSite::here());
Value pswapaxes(const Value& x, const AxisNames& axis_name, Index axis,
                const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Value ppermute(const Value& x, const AxisNames& axis_name,
               const std::vector<std::pair<Index, Index>>& perm, CallSite where = CallSite::here());
Value pshuffle(const Value& x, const AxisNames& axis_name, const std::vector<Index>& perm,
               CallSite where = CallSite::here());
Value pbroadcast(const Value& x, const AxisNames& axis_name, Index source,
                 const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());

// Extrema have no derivative; the result of pargmax and pargmin is s32.
Value pmax(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups = {},
           CallSite where = CallSite::here());
Value pmin(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups = {},
           CallSite where = CallSite::here());
Value pargmax(const Value& x, const AxisNames& axis_name, CallSite where = CallSite::here());
Value pargmin(const Value& x, const AxisNames& axis_name, CallSite where = CallSite::here());

// jax.lax.pcast(x, axis_name, to=...): moves nothing. Error: a pair of states that no cast joins,
// axes in different states. In unchecked mode there are no states: x itself.
Value pcast(const Value& x, const AxisNames& axis_name, AxisState to,
            CallSite where = CallSite::here());
// pcast to varying.
Value pvary(const Value& x, const AxisNames& axis_name, CallSite where = CallSite::here());

}  // namespace kref
