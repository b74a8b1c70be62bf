// SPDX-License-Identifier: Apache-2.0
#include "sharding/collective_calls.h"

namespace kref {

Permutation ring(Index n, Index shift) {
  KREF_CHECK(n >= 1, "ring: of ", n, " members, expected at least 1");
  Permutation out;
  for (Index i = 0; i < n; ++i) out.emplace_back(i, ((i + shift) % n + n) % n);
  return out;
}

Ppermute pshuffle_op(const AxisNames& axis_name, const std::vector<Index>& perm) {
  Ppermute out{axis_name, {}, true};
  for (std::size_t i = 0; i < perm.size(); ++i) {
    out.perm.emplace_back(perm[i], static_cast<Index>(i));
  }
  return out;
}

AllToAll pswapaxes_op(const AxisNames& axis_name, Index axis, const AxisIndexGroups& groups) {
  return AllToAll{axis_name, axis, axis, false, groups};
}

Array all_gather(Device& device, const Array& x, const AxisNames& axis_name,
                 const AllGatherOptions& options, CallSite where) {
  return AllGather{axis_name, options.axis, options.tiled, options.axis_index_groups, options.to}(
      device, x, where);
}
Pending all_gather_start(Device& device, const Array& x, const AxisNames& axis_name,
                         const AllGatherOptions& options, CallSite where) {
  return AllGather{axis_name, options.axis, options.tiled, options.axis_index_groups, options.to}
      .start(device, x, where);
}

Array psum(Device& device, const Array& x, const AxisNames& axis_name, const PsumOptions& options,
           CallSite where) {
  return Psum{axis_name, options.axis_index_groups, options.sum}(device, x, where);
}
Pending psum_start(Device& device, const Array& x, const AxisNames& axis_name,
                   const PsumOptions& options, CallSite where) {
  return Psum{axis_name, options.axis_index_groups, options.sum}.start(device, x, where);
}

Array pmean(Device& device, const Array& x, const AxisNames& axis_name, const PsumOptions& options,
            CallSite where) {
  return Pmean{axis_name, options.axis_index_groups, options.sum}(device, x, where);
}
Pending pmean_start(Device& device, const Array& x, const AxisNames& axis_name,
                    const PsumOptions& options, CallSite where) {
  return Pmean{axis_name, options.axis_index_groups, options.sum}.start(device, x, where);
}

Array pmax(Device& device, const Array& x, const AxisNames& axis_name,
           const AxisIndexGroups& groups, CallSite where) {
  return Pmax{axis_name, groups, false}(device, x, where);
}
Pending pmax_start(Device& device, const Array& x, const AxisNames& axis_name,
                   const AxisIndexGroups& groups, CallSite where) {
  return Pmax{axis_name, groups, false}.start(device, x, where);
}

Array pmin(Device& device, const Array& x, const AxisNames& axis_name,
           const AxisIndexGroups& groups, CallSite where) {
  return Pmax{axis_name, groups, true}(device, x, where);
}
Pending pmin_start(Device& device, const Array& x, const AxisNames& axis_name,
                   const AxisIndexGroups& groups, CallSite where) {
  return Pmax{axis_name, groups, true}.start(device, x, where);
}

Array pargmax(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return Pargmax{axis_name, false}(device, x, where);
}
Pending pargmax_start(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return Pargmax{axis_name, false}.start(device, x, where);
}

Array pargmin(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return Pargmax{axis_name, true}(device, x, where);
}
Pending pargmin_start(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return Pargmax{axis_name, true}.start(device, x, where);
}

Array psum_scatter(Device& device, const Array& x, const AxisNames& axis_name,
                   const PsumScatterOptions& options, CallSite where) {
  return PsumScatter{axis_name, options.scatter_dimension, options.tiled, options.axis_index_groups,
                     options.sum}(device, x, where);
}
Pending psum_scatter_start(Device& device, const Array& x, const AxisNames& axis_name,
                           const PsumScatterOptions& options, CallSite where) {
  return PsumScatter{axis_name, options.scatter_dimension, options.tiled, options.axis_index_groups,
                     options.sum}
      .start(device, x, where);
}

Array all_to_all(Device& device, const Array& x, const AxisNames& axis_name, Index split_axis,
                 Index concat_axis, const AllToAllOptions& options, CallSite where) {
  return AllToAll{axis_name, split_axis, concat_axis, options.tiled, options.axis_index_groups}(
      device, x, where);
}
Pending all_to_all_start(Device& device, const Array& x, const AxisNames& axis_name,
                         Index split_axis, Index concat_axis, const AllToAllOptions& options,
                         CallSite where) {
  return AllToAll{axis_name, split_axis, concat_axis, options.tiled, options.axis_index_groups}
      .start(device, x, where);
}

Array ppermute(Device& device, const Array& x, const AxisNames& axis_name, const Permutation& perm,
               CallSite where) {
  return Ppermute{axis_name, perm}(device, x, where);
}
Pending ppermute_start(Device& device, const Array& x, const AxisNames& axis_name,
                       const Permutation& perm, CallSite where) {
  return Ppermute{axis_name, perm}.start(device, x, where);
}

Array pshuffle(Device& device, const Array& x, const AxisNames& axis_name,
               const std::vector<Index>& perm, CallSite where) {
  return pshuffle_op(axis_name, perm)(device, x, where);
}
Pending pshuffle_start(Device& device, const Array& x, const AxisNames& axis_name,
                       const std::vector<Index>& perm, CallSite where) {
  return pshuffle_op(axis_name, perm).start(device, x, where);
}

Array pswapaxes(Device& device, const Array& x, const AxisNames& axis_name, Index axis,
                const AxisIndexGroups& groups, CallSite where) {
  return pswapaxes_op(axis_name, axis, groups)(device, x, where);
}
Pending pswapaxes_start(Device& device, const Array& x, const AxisNames& axis_name, Index axis,
                        const AxisIndexGroups& groups, CallSite where) {
  return pswapaxes_op(axis_name, axis, groups).start(device, x, where);
}

Array pbroadcast(Device& device, const Array& x, const AxisNames& axis_name, Index source,
                 const AxisIndexGroups& groups, CallSite where) {
  return Pbroadcast{axis_name, source, groups}(device, x, where);
}
Pending pbroadcast_start(Device& device, const Array& x, const AxisNames& axis_name, Index source,
                         const AxisIndexGroups& groups, CallSite where) {
  return Pbroadcast{axis_name, source, groups}.start(device, x, where);
}

Array pvary(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return Pvary{axis_name, {}, false}(device, x, where);
}
Pending pvary_start(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return Pvary{axis_name, {}, false}.start(device, x, where);
}

}  // namespace kref
