// SPDX-License-Identifier: Apache-2.0
#include "golden/collective_terms.h"

#include <algorithm>

namespace kref {
namespace {

std::vector<Index> strides_of(const std::vector<Index>& shape) {
  std::vector<Index> strides(shape.size());
  detail::dense_strides("collective", shape.data(), shape.size(), strides.data());
  return strides;
}

// Index along `axes`, flattened, of the device with these coordinates.
Index flat_index(const Mesh& mesh, std::span<const std::string> axes,
                 const std::vector<Index>& coordinates) {
  Index index = 0;
  for (const std::string& axis : axes) {
    index = index * mesh.size(axis) + coordinates[mesh.index(axis)];
  }
  return index;
}

// `coordinates` with the given flattened index along `axes` in place of their own.
std::vector<Index> moved_to(const Mesh& mesh, const std::vector<std::string>& axes, Index index,
                            std::vector<Index> coordinates) {
  for (std::size_t a = axes.size(); a-- > 0;) {
    const Index size = mesh.size(axes[a]);
    coordinates[mesh.index(axes[a])] = index % size;
    index /= size;
  }
  return coordinates;
}

// Where the block of the device with these coordinates begins in the flattened array.
Index block_start(const Mesh& mesh, const PartitionSpec& spec, const std::vector<Index>& local,
                  const std::vector<Index>& strides, const std::vector<Index>& coordinates) {
  Index start = 0;
  for (std::size_t d = 0; d < local.size(); ++d) {
    start += flat_index(mesh, spec[d], coordinates) * local[d] * strides[d];
  }
  return start;
}

}  // namespace

CollectiveTerms::CollectiveTerms(const CollectiveRun& run)
    : run_(run), x_strides_(strides_of(run.x_shape)), y_strides_(strides_of(run.y_shape)) {
  set_offsets();
}

bool CollectiveTerms::representative(const std::vector<Index>& coordinates) const {
  for (std::size_t a = 0; a < coordinates.size(); ++a) {
    if (coordinates[a] != 0 && !run_.out_spec.names(run_.mesh.axes()[a].name)) return false;
  }
  return true;
}

void CollectiveTerms::select(Index d, Index piece, Index stride) {
  const auto at = static_cast<std::size_t>(d);
  select_ = static_cast<int>(d);
  for (Index c = 0; c < run_.y_local[at]; ++c) {
    offsets_[at][static_cast<std::size_t>(c)] = c % piece * stride;
    member_.push_back(c / piece);
  }
}

bool CollectiveTerms::empty() const {
  return std::find(run_.y_local.begin(), run_.y_local.end(), 0) != run_.y_local.end();
}

void CollectiveTerms::set_offsets() {
  const CollectiveRun& run = run_;
  // An array without elements may have extents that no table holds.
  if (empty()) return;
  const bool gather = run.which == Collective::kAllGather,
             scatter = run.which == Collective::kPsumScatter,
             exchange = run.which == Collective::kAllToAll, moves = !run.axis_name.empty();
  // The steps of x's dimensions as y has them: untiled, one is gone, or a new one has no step.
  std::vector<Index> strides = x_strides_;
  if (moves && !run.tiled) {
    if (scatter) strides.erase(strides.begin() + run.scatter_dimension);
    if (exchange) strides.erase(strides.begin() + run.split_axis);
    if (exchange) strides.insert(strides.begin() + run.concat_axis, 0);
    if (gather) strides.insert(strides.begin() + run.axis, 0);
  }
  for (std::size_t d = 0; d < strides.size(); ++d) {
    offsets_.emplace_back();
    for (Index c = 0; c < run.y_local[d]; ++c) offsets_[d].push_back(c * strides[d]);
  }
  if (!moves || !(gather || exchange)) return;

  const Index d = gather ? run.axis : run.concat_axis;
  const auto at = static_cast<std::size_t>(d);
  if (!run.tiled) return select(d, 1, 0);
  // A dimension that is split and joined again has pieces of 1 / n.
  const Index parts = exchange && run.split_axis == d ? run.group_size() : 1;
  select(d, std::max<Index>(1, run.x_local[at] / parts), strides[at]);
}

BlockTerms CollectiveTerms::of_device(Index device) const {
  const CollectiveRun& run = run_;
  const std::vector<Index> here = run.mesh.coordinates(device);
  BlockTerms terms;
  terms.first = block_start(run.mesh, run.out_spec, run.y_local, y_strides_, here);
  const Index own = flat_index(run.mesh, run.axis_name, here);
  const std::vector<Index>* group = nullptr;
  Index rank = 0;
  for (const std::vector<Index>& g : run.groups) {
    const auto at = std::find(g.begin(), g.end(), own);
    if (at != g.end()) group = &g, rank = at - g.begin();
  }
  KREF_DCHECK(group != nullptr);
  const auto add = [&](Index index) {
    const std::vector<Index> there = moved_to(run.mesh, run.axis_name, index, here);
    terms.bases.push_back(block_start(run.mesh, run.in_spec, run.x_local, x_strides_, there));
  };
  // Of each member's block this device gets the part that begins so much later.
  const auto later = [&](Index d) {
    const auto at = static_cast<std::size_t>(d);
    const auto n = static_cast<Index>(group->size());
    const Index elements = run.tiled ? rank * (run.x_local[at] / n) : rank;
    for (Index& base : terms.bases) base += elements * x_strides_[at];
  };
  if (run.axis_name.empty()) {
    add(0);
  } else if (run.which == Collective::kPpermute) {
    for (const auto& [source, destination] : run.perm) {
      if (destination == own) add(source);
    }
  } else {
    for (const Index index : *group) add(index);
    if (run.which == Collective::kPsumScatter) later(run.scatter_dimension);
    if (run.which == Collective::kAllToAll) later(run.split_axis);
  }
  return terms;
}

std::string CollectiveTerms::varies_along() const {
  if (empty()) return "";
  std::vector<std::vector<Index>> bases;
  for (Index device = 0; device < run_.mesh.device_count(); ++device) {
    bases.push_back(of_device(device).bases);
    // A sum does not care for the order.
    if (select_ < 0) std::sort(bases.back().begin(), bases.back().end());
  }
  for (std::size_t a = 0; a < run_.mesh.axes().size(); ++a) {
    const MeshAxis& axis = run_.mesh.axes()[a];
    if (run_.out_spec.names(axis.name)) continue;
    for (Index device = 0; device < run_.mesh.device_count(); ++device) {
      std::vector<Index> coordinates = run_.mesh.coordinates(device);
      coordinates[a] = 0;
      const Index other = run_.mesh.device(coordinates);
      if (bases[static_cast<std::size_t>(device)] != bases[static_cast<std::size_t>(other)]) {
        return axis.name;
      }
    }
  }
  return "";
}

}  // namespace kref
