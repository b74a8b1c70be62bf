// SPDX-License-Identifier: Apache-2.0
// A run of one of the collectives of run files, or of the reverse-mode twin of one, read and
// checked (spec/runs.md section 3 `collectives`).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "golden/run.h"
#include "sharding/collectives.h"

namespace kref {

enum class Collective {
  kAllGather,
  kPsum,
  kPmean,
  kPmax,
  kPmin,
  kPsumScatter,
  kAllToAll,
  kPpermute,
};

// Any of them as a value of the sharding layer, whose rules of shape and type they follow.
using CollectiveValue = std::variant<AllGather, Psum, Pmean, Pmax, PsumScatter, AllToAll, Ppermute>;

// What a run asks for, out of its tensors, options and placement. Dimensions count from 0.
struct CollectiveRun {
  Collective which = Collective::kPsum;
  bool vjp = false;
  Mesh mesh;                           // of one device when the run has none
  std::vector<std::string> axis_name;  // first major; none: the identity
  // The option, empty when absent; and for each group the indices along the flattened axes, by
  // rank: one group of all without the option.
  AxisIndexGroups given_groups, groups;
  Index axis = 0;                             // all_gather
  Index scatter_dimension = 0;                // psum_scatter
  Index split_axis = 0, concat_axis = 0;      // all_to_all
  bool tiled = false;                         // of these three
  std::vector<std::pair<Index, Index>> perm;  // ppermute: (source, destination), 0 .. n - 1
  CollectiveValue value;                      // of the same options

  PartitionSpec in_spec, out_spec;
  DType x_dtype = DType::kF32, y_dtype = DType::kF32;
  std::vector<Index> x_shape, y_shape;  // of the global arrays
  std::vector<Index> x_local, y_local;  // of one device's blocks

  // Devices of a group; of the first one where they differ (psum, pmax, pmin).
  Index group_size() const { return static_cast<Index>(groups[0].size()); }
};

// The collective that an operation "psum" or "psum.vjp" is of; nothing for other operations.
std::optional<Collective> collective_of(const std::string& op);
// Its name without ".vjp".
const char* name_of(Collective which);
// The sums: what comes out is rounded, or wraps.
constexpr bool is_sum(Collective which) {
  return which == Collective::kPsum || which == Collective::kPmean ||
         which == Collective::kPsumScatter;
}

// Reads and checks everything but the tensors that come out (and ct.y, which goes into a vjp).
// Error that names what is wrong.
CollectiveRun read_collective(const Run& run);

}  // namespace kref
