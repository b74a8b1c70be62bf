// SPDX-License-Identifier: Apache-2.0
#include "sharding/matmul_placement.h"

#include <algorithm>
#include <span>
#include <utility>

#include "dsl/array.h"
#include "sharding/spelling.h"

namespace kref {
namespace {

using Axes = std::vector<std::string>;
using AxesView = std::span<const std::string>;

using DimKind = MatmulDim::Kind;

// Dimension d of z.
MatmulDim dim_of(const MatmulShape& shape, std::size_t d) {
  if (d < shape.batch.size()) return {DimKind::kBatch, d};
  return {d == shape.batch.size() ? DimKind::kRows : DimKind::kColumns};
}

// The specs of one matmul, read dimension by dimension of the result.
class Placer {
 public:
  Placer(const Mesh& mesh, const MatmulShape& shape, const PartitionSpec& x, const PartitionSpec& y,
         const OutSpec& z, OneSidedK one_sided)
      : shape_(shape), x_(x), y_(y), z_(z), one_sided_(one_sided), rank_(shape.batch.size() + 2) {
    check_spec(x, shape.x(), mesh, "in_specs.x");
    check_spec(y, shape.y(), mesh, "in_specs.y");
    check_spec(z, shape.z(), mesh, "out_specs.z");
    KREF_CHECK(rank_ + z.unreduced.size() <= kMaxRank, "out_specs.z: ", to_string(z),
               " gives z the rank ", rank_ + z.unreduced.size(), ", expected at most ", kMaxRank);
    placement_.mesh = mesh;
    placement_.shape = placement_.local = shape;
    placement_.out = z;
  }

  MatmulPlacement place() {
    check_batch();
    place_contraction();
    for (std::size_t d = 0; d < rank_; ++d) place_dim(d);
    finish();
    return std::move(placement_);
  }

 private:
  // Axes of dimension d of z in the operand it comes from: columns from y, all else from x.
  AxesView own_axes(std::size_t d) const {
    const std::size_t batch = shape_.batch.size();
    if (d + 1 < rank_) return x_[d < batch ? d : batch + (shape_.trans_x ? 1 : 0)];
    return y_[y_batch() + (shape_.trans_y ? 0 : 1)];
  }
  AxesView x_contraction() const { return x_[shape_.batch.size() + (shape_.trans_x ? 0 : 1)]; }
  AxesView y_contraction() const { return y_[y_batch() + (shape_.trans_y ? 1 : 0)]; }
  std::size_t y_batch() const { return shape_.shared_y ? 0 : shape_.batch.size(); }

  std::string in_specs() const {
    return detail::cat("in_specs.x ", to_string(x_), ", in_specs.y ", to_string(y_));
  }

  void check_batch() const {
    for (std::size_t d = 0; d < y_batch(); ++d) {
      KREF_CHECK(std::ranges::equal(x_[d], y_[d]), "batch dimension ", d, " is sharded over ",
                 axes_string(x_[d]), " in x and over ", axes_string(y_[d]),
                 " in y, expected the same (", in_specs(), ")");
    }
  }

  void place_contraction() {
    const AxesView xk = x_contraction(), yk = y_contraction();
    if (!xk.empty() && !yk.empty()) {
      KREF_CHECK(std::ranges::is_permutation(xk, yk),
                 "contracting dimensions sharded over different axes, ", axes_string(xk), " and ",
                 axes_string(yk), " (", in_specs(), "); gather one side first");
      KREF_CHECK(std::ranges::equal(xk, yk),
                 "contracting dimensions sharded over the same axes in different orders, ",
                 axes_string(xk), " and ", axes_string(yk), " (", in_specs(),
                 "); gather one side first");
      multiply_blocks(xk);
      placement_.which = MatmulCase::kBothSides;
    } else if (!xk.empty() || !yk.empty()) {
      placement_.which = MatmulCase::kOneSide;
      const AxesView axes = xk.empty() ? yk : xk;
      if (one_sided_ == OneSidedK::kGather) {
        add(MatmulStep::Kind::kAllGather, xk.empty() ? "y" : "x", {DimKind::kContraction}, axes);
      } else {
        const char* whole = xk.empty() ? "x" : "y";
        const PartitionSpec& spec = xk.empty() ? x_ : y_;
        for (const std::string& axis : axes) {
          KREF_CHECK(!spec.names(axis), whole, " is sharded over '", axis,
                     "', so that its contracting dimension can not be sliced over it (", in_specs(),
                     "); gather the other side");
        }
        add(MatmulStep::Kind::kSlice, whole, {DimKind::kContraction}, axes);
        multiply_blocks(axes);
      }
    }
    for (const std::string& axis : z_.unreduced) {
      KREF_CHECK(contains(placement_.contraction, axis), "out_specs.z: ", to_string(z_),
                 " is unreduced over '", axis,
                 "', which does not shard the contracting dimension of both x and y (", in_specs(),
                 ")");
    }
  }

  // Each device multiplies its blocks of K, whose products are partial sums.
  void multiply_blocks(AxesView axes) {
    placement_.contraction.assign(axes.begin(), axes.end());
    placement_.local.k /= block_count(axes, placement_.mesh);
  }

  // Compares dimension d of z with the operand it comes from. Axes that both start with stay as
  // they are; the operand's others are gathered, z's others are sliced off or scattered to.
  void place_dim(std::size_t d) {
    const AxesView own = own_axes(d), wanted = z_.spec[d];
    const auto [own_end, wanted_end] = std::ranges::mismatch(own, wanted);
    const AxesView gathered(own_end, own.end()), extra(wanted_end, wanted.end());
    for (const std::string& axis : gathered) check_gathered(d, axis);

    const char* operand = d + 1 < rank_ ? "x" : "y";
    const MatmulDim dim = dim_of(shape_, d);
    if (!gathered.empty()) {
      add(MatmulStep::Kind::kAllGather, operand, dim, gathered);
      if (placement_.which == MatmulCase::kNoContraction) {
        placement_.which = MatmulCase::kFreeConflict;
      }
    }
    // Slices before the first scattering are taken from the operands, later ones from z.
    const auto first_scattered = std::ranges::find_if(
        extra, [&](const std::string& axis) { return contains(placement_.contraction, axis); });
    const AxesView sliced(extra.begin(), first_scattered);
    if (!sliced.empty()) {
      add(MatmulStep::Kind::kSlice, operand, dim, sliced);
      if (d < y_batch()) add(MatmulStep::Kind::kSlice, "y", dim, sliced);
    }
    for (auto axis = first_scattered; axis != extra.end(); ++axis) {
      const auto kind = contains(placement_.contraction, *axis) ? MatmulStep::Kind::kPsumScatter
                                                                : MatmulStep::Kind::kSlice;
      if (axis != first_scattered && after_.back().kind == kind) {
        after_.back().axes.push_back(*axis);
      } else {
        after_.push_back({kind, "z", dim, {*axis}});
      }
    }
    local_size(d) /= block_count(AxesView(own.begin(), own_end), placement_.mesh) *
                     block_count(sliced, placement_.mesh);
  }

  // An axis of dimension d that z does not have there (at that place): it must have it elsewhere.
  void check_gathered(std::size_t d, const std::string& axis) const {
    const std::string subject =
        detail::cat("out_specs.z: ", to_string(z_), " shards ", to_string(dim_of(shape_, d)),
                    " over ", axes_string(z_.spec[d]), ", but ", in_specs(), " shard them over ",
                    axes_string(own_axes(d)));
    KREF_CHECK(!contains(z_.spec[d], axis), subject,
               ": the axes that an operand brings come first");
    KREF_CHECK(z_.spec.names(axis), subject, ": the result is not gathered, expected '", axis,
               "' in out_specs.z");
    KREF_CHECK(d >= y_batch(), subject, ": a batch dimension of both operands keeps its axes");
  }

  void finish() {
    add(MatmulStep::Kind::kMultiply, "z", {}, {});
    Axes summed;  // over which the sum is left on every device
    for (const std::string& axis : placement_.contraction) {
      if (!contains(z_.unreduced, axis) && !z_.spec.names(axis)) summed.push_back(axis);
    }
    if (!summed.empty()) add(MatmulStep::Kind::kPsum, "z", {}, summed);
    for (MatmulStep& step : after_) placement_.steps.push_back(std::move(step));
    if (!z_.unreduced.empty()) add(MatmulStep::Kind::kKeepPartial, "z", {}, z_.unreduced);
  }

  Index& local_size(std::size_t d) {
    MatmulShape& local = placement_.local;
    if (d < local.batch.size()) return local.batch[d];
    return d + 1 < rank_ ? local.m : local.n;
  }

  void add(MatmulStep::Kind kind, const char* operand, MatmulDim dim, AxesView axes) {
    placement_.steps.push_back({kind, operand, dim, Axes(axes.begin(), axes.end())});
  }

  const MatmulShape& shape_;
  const PartitionSpec &x_, &y_;
  const OutSpec& z_;
  OneSidedK one_sided_;
  std::size_t rank_;  // of z without leading dimensions
  MatmulPlacement placement_;
  std::vector<MatmulStep> after_;  // steps that follow the multiplication
};

// [*batch, rows, columns], the last two swapped when stored transposed.
std::vector<Index> stored(std::vector<Index> batch, Index rows, Index columns, bool transposed) {
  batch.push_back(transposed ? columns : rows);
  batch.push_back(transposed ? rows : columns);
  return batch;
}

}  // namespace

std::vector<Index> MatmulShape::x() const { return stored(batch, m, k, trans_x); }
std::vector<Index> MatmulShape::y() const {
  return stored(shared_y ? std::vector<Index>() : batch, k, n, trans_y);
}
std::vector<Index> MatmulShape::z() const { return stored(batch, m, n, false); }

MatmulPlacement place_matmul(const Mesh& mesh, const MatmulShape& shape, const PartitionSpec& x,
                             const PartitionSpec& y, const OutSpec& z, OneSidedK one_sided) {
  return Placer(mesh, shape, x, y, z, one_sided).place();
}

ContractionRange MatmulPlacement::contraction_range(Index device) const {
  const Index block = block_index(contraction, mesh, device);
  return {block * local.k, (block + 1) * local.k};
}

std::vector<std::vector<ContractionRange>> contraction_parts(const MatmulPlacement& placement) {
  const Index blocks = block_count(placement.contraction, placement.mesh);
  const Index sums = block_count(placement.out.unreduced, placement.mesh);
  std::vector<std::vector<ContractionRange>> parts(static_cast<std::size_t>(sums));
  for (Index block = 0; block < blocks; ++block) {
    // The block's index along each contraction axis, then flattened over the unreduced ones.
    std::vector<Index> at(placement.contraction.size());
    Index rest = block;
    for (std::size_t a = at.size(); a-- > 0;) {
      const Index size = placement.mesh.size(placement.contraction[a]);
      at[a] = rest % size;
      rest /= size;
    }
    Index sum = 0;
    for (const std::string& axis : placement.out.unreduced) {
      const auto a = std::ranges::find(placement.contraction, axis) - placement.contraction.begin();
      sum = sum * placement.mesh.size(axis) + at[static_cast<std::size_t>(a)];
    }
    const Index k = placement.local.k;
    parts[static_cast<std::size_t>(sum)].push_back({block * k, (block + 1) * k});
  }
  return parts;
}

}  // namespace kref
