// SPDX-License-Identifier: Apache-2.0
// How a reshaped array is sharded.
#include <algorithm>

#include "dsl/array.h"
#include "sharding/arithmetic_rules.h"

namespace kref {
namespace {

// Dimensions of one side: extents, and where they stand.
struct Dims {
  std::vector<Index> extents;
  std::vector<std::size_t> place;
};

Dims without_ones(std::span<const Index> shape) {
  Dims out;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    out.extents.push_back(shape[d]);
    out.place.push_back(d);
  }
  return out;
}

class Reshape {
 public:
  Reshape(const GlobalType& operand, std::span<const Index> new_sizes, const Mesh& mesh)
      : operand_(operand), new_sizes_(new_sizes), mesh_(mesh) {
    result_.entries.resize(new_sizes.size());
  }

  PartitionSpec spec() {
    const Dims from = without_ones(operand_.shape), to = without_ones(new_sizes_);
    // Dimensions in order, in the smallest runs that hold the same number of elements.
    std::size_t i = 0, j = 0;
    int changed = 0;
    while (i < from.extents.size() || j < to.extents.size()) {
      // Runs of an empty array are not unique: only those one to one are known.
      refuse_unless(i < from.extents.size() && j < to.extents.size());
      std::size_t i_end = i + 1, j_end = j + 1;
      Index in = from.extents[i], out = to.extents[j];
      while (in != out) {
        refuse_unless(in > 0 && out > 0);
        if (in < out) {
          refuse_unless(i_end < from.extents.size());
          in *= from.extents[i_end++];
        } else {
          refuse_unless(j_end < to.extents.size());
          out *= to.extents[j_end++];
        }
      }
      const auto run_in = std::span(from.place).subspan(i, i_end - i);
      const auto run_out = std::span(to.place).subspan(j, j_end - j);
      if (run_in.size() > 1 || run_out.size() > 1) ++changed;
      refuse_unless(changed <= 1 && (run_in.size() == 1 || run_out.size() == 1));
      hand_out(axes_of(run_in), run_out);
      i = i_end;
      j = j_end;
    }
    return result_;
  }

 private:
  // The axes of some dimensions, one after the other; those that split none must be the last.
  std::vector<std::string> axes_of(std::span<const std::size_t> dims) const {
    std::vector<std::string> out;
    bool whole = false;
    for (const std::size_t d : dims) {
      const std::span<const std::string> axes = operand_.placement.spec[d];
      refuse_unless(axes.empty() || !whole);
      whole = whole || axes.empty();
      out.insert(out.end(), axes.begin(), axes.end());
    }
    return out;
  }

  // Each dimension takes axes, first major, until its extent is used up.
  void hand_out(const std::vector<std::string>& axes, std::span<const std::size_t> dims) {
    std::size_t next = 0;
    for (const std::size_t d : dims) {
      if (dims.size() == 1) {
        // A dimension that stays keeps its axes whatever they leave of it.
        Index left = new_sizes_[d];
        for (const std::string& axis : axes) {
          refuse_unless(left % mesh_.size(axis) == 0);
          left /= mesh_.size(axis);
        }
        result_.entries[d] = axes;
        return;
      }
      for (Index left = new_sizes_[d]; left > 1 && next < axes.size(); ++next) {
        refuse_unless(left % mesh_.size(axes[next]) == 0);
        left /= mesh_.size(axes[next]);
        result_.entries[d].push_back(axes[next]);
      }
    }
    refuse_unless(next == axes.size());
  }

  void refuse_unless(bool supported) const {
    KREF_CHECK(supported,
               "This reshape is not supported: give the sharding of the output (reshard before or "
               "after). Got operand type ",
               to_string(operand_, mesh_), ", new sizes ", shape_string(new_sizes_));
  }

  const GlobalType& operand_;
  std::span<const Index> new_sizes_;
  const Mesh& mesh_;
  PartitionSpec result_;
};

}  // namespace

GlobalType reshape_type(const GlobalType& operand, std::span<const Index> new_sizes,
                        const Mesh& mesh) {
  check_placement(operand.placement, operand.shape, mesh, "reshape");
  const Index before =
      detail::checked_product("reshape", operand.shape.data(), operand.shape.size());
  const Index after = detail::checked_product("reshape", new_sizes.data(), new_sizes.size());
  KREF_CHECK(before == after, "reshape: ", shape_string(operand.shape), " has ", before,
             " elements, ", shape_string(new_sizes), " has ", after);
  GlobalType out = operand;
  out.shape.assign(new_sizes.begin(), new_sizes.end());
  out.placement.spec = {};
  bool split = false;
  for (std::size_t d = 0; d < operand.shape.size(); ++d) {
    split = split || !operand.placement.spec[d].empty();
  }
  if (split) out.placement.spec = Reshape(operand, new_sizes, mesh).spec();
  return out;
}

}  // namespace kref
