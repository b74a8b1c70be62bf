// SPDX-License-Identifier: Apache-2.0
// The collectives as functions, spelled as in jax.lax: sugar for the values of collectives.h, which
// say what each does and refuses. x_start(...) is the asynchronous form, whose result .done()
// takes.
//
//   const Array full = all_gather(device, x, "X", {.axis = 1, .tiled = true});
//   Pending travelling = ppermute_start(device, x, "X", ring(n, 1));
//   ...
//   const Array next = travelling.done();
#pragma once

#include "sharding/collectives.h"

namespace kref {

// Options of all_gather.
struct AllGatherOptions {
  Index axis = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
  GatherTo to = GatherTo::kVarying;
};
// Every member's block along a dimension, on every member.
Array all_gather(Device& device, const Array& x, const AxisNames& axis_name,
                 const AllGatherOptions& options = {}, CallSite where = CallSite::here());
Pending all_gather_start(Device& device, const Array& x, const AxisNames& axis_name,
                         const AllGatherOptions& options = {}, CallSite where = CallSite::here());

// Options of psum and pmean.
struct PsumOptions {
  AxisIndexGroups axis_index_groups = {};
  SumOptions sum = {};
};
// The sum over the group; and divided by its size.
Array psum(Device& device, const Array& x, const AxisNames& axis_name,
           const PsumOptions& options = {}, CallSite where = CallSite::here());
Pending psum_start(Device& device, const Array& x, const AxisNames& axis_name,
                   const PsumOptions& options = {}, CallSite where = CallSite::here());
Array pmean(Device& device, const Array& x, const AxisNames& axis_name,
            const PsumOptions& options = {}, CallSite where = CallSite::here());
Pending pmean_start(Device& device, const Array& x, const AxisNames& axis_name,
                    const PsumOptions& options = {}, CallSite where = CallSite::here());

// The largest, the smallest value over the group.
Array pmax(Device& device, const Array& x, const AxisNames& axis_name,
           const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Pending pmax_start(Device& device, const Array& x, const AxisNames& axis_name,
                   const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Array pmin(Device& device, const Array& x, const AxisNames& axis_name,
           const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Pending pmin_start(Device& device, const Array& x, const AxisNames& axis_name,
                   const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());

// The lowest rank that has it.
Array pargmax(Device& device, const Array& x, const AxisNames& axis_name,
              CallSite where = CallSite::here());
Pending pargmax_start(Device& device, const Array& x, const AxisNames& axis_name,
                      CallSite where = CallSite::here());
Array pargmin(Device& device, const Array& x, const AxisNames& axis_name,
              CallSite where = CallSite::here());
Pending pargmin_start(Device& device, const Array& x, const AxisNames& axis_name,
                      CallSite where = CallSite::here());

// Options of psum_scatter.
struct PsumScatterOptions {
  Index scatter_dimension = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
  SumOptions sum = {};
};
// The own block of the sum.
Array psum_scatter(Device& device, const Array& x, const AxisNames& axis_name,
                   const PsumScatterOptions& options = {}, CallSite where = CallSite::here());
Pending psum_scatter_start(Device& device, const Array& x, const AxisNames& axis_name,
                           const PsumScatterOptions& options = {},
                           CallSite where = CallSite::here());

// Options of all_to_all.
struct AllToAllOptions {
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
};
// The own slice of every member's array.
Array all_to_all(Device& device, const Array& x, const AxisNames& axis_name, Index split_axis,
                 Index concat_axis, const AllToAllOptions& options = {},
                 CallSite where = CallSite::here());
Pending all_to_all_start(Device& device, const Array& x, const AxisNames& axis_name,
                         Index split_axis, Index concat_axis, const AllToAllOptions& options = {},
                         CallSite where = CallSite::here());

// Pairs (source, destination) of ppermute.
using Permutation = std::vector<std::pair<Index, Index>>;
// Member i to member i + shift, modulo n.
Permutation ring(Index n, Index shift);

// To the destination of each pair the array of its source.
Array ppermute(Device& device, const Array& x, const AxisNames& axis_name, const Permutation& perm,
               CallSite where = CallSite::here());
Pending ppermute_start(Device& device, const Array& x, const AxisNames& axis_name,
                       const Permutation& perm, CallSite where = CallSite::here());

// To member i the array of perm[i].
Array pshuffle(Device& device, const Array& x, const AxisNames& axis_name,
               const std::vector<Index>& perm, CallSite where = CallSite::here());
Pending pshuffle_start(Device& device, const Array& x, const AxisNames& axis_name,
                       const std::vector<Index>& perm, CallSite where = CallSite::here());

// The group changes places with dimension `axis`.
Array pswapaxes(Device& device, const Array& x, const AxisNames& axis_name, Index axis,
                const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Pending pswapaxes_start(Device& device, const Array& x, const AxisNames& axis_name, Index axis,
                        const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());

// The array of one member on every member.
Array pbroadcast(Device& device, const Array& x, const AxisNames& axis_name, Index source,
                 const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Pending pbroadcast_start(Device& device, const Array& x, const AxisNames& axis_name, Index source,
                         const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());

// The array itself, from here on taken to vary.
Array pvary(Device& device, const Array& x, const AxisNames& axis_name,
            CallSite where = CallSite::here());
Pending pvary_start(Device& device, const Array& x, const AxisNames& axis_name,
                    CallSite where = CallSite::here());

}  // namespace kref
