// SPDX-License-Identifier: Apache-2.0
// Where the elements of a collective's result come from, by index arithmetic on the global arrays
// alone: the judge's own account of it, which shares nothing with the engine that runs collectives.
#pragma once

#include <span>
#include <vector>

#include "golden/collective_run.h"

namespace kref {

// One device's block of y: where it begins in the flattened y, and where each member's part of it
// begins in the flattened x, by rank; none where ppermute leaves zeros.
struct BlockTerms {
  Index first = 0;
  std::vector<Index> bases;
};

class CollectiveTerms {
 public:
  // Views `run`, which must outlive it.
  explicit CollectiveTerms(const CollectiveRun& run);

  // Calls visit(y, bases, o) for every element of the global y: its flat index, and the elements of
  // the flattened x that it is made of: b + o for each b of `bases`, which ascend in rank; none
  // where ppermute leaves zeros. An output that out_specs leave replicated over an axis is that of
  // the devices with index 0 along it, as under check_vma=False.
  template <class Visit>
  void for_each(Visit&& visit) const;

  // The first mesh axis, if any, along which the devices' values of y differ though out_specs do
  // not name it; empty when there is none. (In structure: values may be equal by chance.)
  std::string varies_along() const;

 private:
  bool empty() const;  // y has no elements
  BlockTerms of_device(Index device) const;
  // Is it the one whose values stand for all that hold the same block?
  bool representative(const std::vector<Index>& coordinates) const;

  // What all devices have in common. Element (c_0, c_1, ..) of a block of y comes from the elements
  // b + o of the flattened x, where o is the sum of offsets_[d][c_d] and b is one of the bases:
  // that of member_[c_d] with d = select_, or each of them when select_ is -1.
  void set_offsets();
  // Dimension d of y is made of pieces of `piece` elements, one a member.
  void select(Index d, Index piece, Index stride);

  const CollectiveRun& run_;
  std::vector<Index> x_strides_, y_strides_;
  std::vector<std::vector<Index>> offsets_;
  int select_ = -1;
  std::vector<Index> member_;
};

template <class Visit>
void CollectiveTerms::for_each(Visit&& visit) const {
  if (empty()) return;
  const std::size_t rank = run_.y_local.size();
  for (Index device = 0; device < run_.mesh.device_count(); ++device) {
    if (!representative(run_.mesh.coordinates(device))) continue;
    const BlockTerms terms = of_device(device);
    std::vector<Index> at(rank, 0);
    for (;;) {
      Index y = terms.first, offset = 0;
      for (std::size_t d = 0; d < rank; ++d) {
        y += at[d] * y_strides_[d];
        offset += offsets_[d][static_cast<std::size_t>(at[d])];
      }
      std::span<const Index> bases = terms.bases;
      if (select_ >= 0) {
        const auto index = static_cast<std::size_t>(at[static_cast<std::size_t>(select_)]);
        bases = bases.subspan(static_cast<std::size_t>(member_[index]), 1);
      }
      visit(y, bases, offset);
      std::size_t d = rank;
      while (d > 0 && ++at[d - 1] == run_.y_local[d - 1]) at[--d] = 0;
      if (d == 0) break;
    }
  }
}

}  // namespace kref
