// SPDX-License-Identifier: Apache-2.0
// jax.vmap of a grid: a batch axis in front of the grid's own, which index maps, bodies and
// num_programs do not see.
//
//   Grid grid("affine");
//   const Batch b = grid.vmap("b", 3);                    // before the axes
//   const Axis i = grid.parallel("i", 3);
//   const auto xb = grid.in("x", b(x, 1), spec);          // x is [12, 3]: a body sees vectors
//   const auto wb = grid.in("w", w, spec);                // the same for all
//   const auto zb = grid.out("z", b(z), spec);            // z is [3, 12]
#pragma once

#include <span>

#include "dsl/tensor.h"

namespace kref {

namespace detail {

// One batch dimension of an array, and the axis of the grid that goes along it.
struct BatchAxis {
  int id = -1;
  std::uint32_t grid = 0;
  Index extent = 0, stride = 0;
};

// Error when `axis` is no dimension of the array, or its extent not the batch's.
void check_batch_dimension(const char* batch, Index size, std::span<const Index> extents,
                           Index axis);

}  // namespace detail

// An array of rank R + N as a body sees it: N dimensions belong to batches. Any strides.
template <class T, std::size_t R, std::size_t N>
struct Batched {
  T* data = nullptr;
  Shape<R> extents{}, strides{};
  std::array<detail::BatchAxis, N> axes;
};

// A batch of a grid, made by Grid::vmap; copied freely. b(x, axis) says that dimension `axis` of x,
// counted among those that no batch has yet, is its; Error where the extent is another.
class Batch {
 public:
  template <class T, std::size_t R, std::size_t N>
  Batched<T, R - 1, N + 1> operator()(const Batched<T, R, N>& x, Index axis = 0) const {
    static_assert(R > 0, "Batch: every dimension belongs to a batch already");
    detail::check_batch_dimension(name_, size_, x.extents, axis);
    Batched<T, R - 1, N + 1> out;
    out.data = x.data;
    for (std::size_t d = 0, to = 0; d < R; ++d) {
      if (d == static_cast<std::size_t>(axis)) continue;
      out.extents[to] = x.extents[d], out.strides[to] = x.strides[d];
      ++to;
    }
    for (std::size_t n = 0; n < N; ++n) out.axes[n] = x.axes[n];
    const auto d = static_cast<std::size_t>(axis);
    out.axes[N] = {id_, grid_, x.extents[d], x.strides[d]};
    return out;
  }
  template <class T, std::size_t R>
  Batched<T, R - 1, 1> operator()(Ref<T, R> x, Index axis = 0) const {
    return (*this)(Batched<T, R, 0>{x.data(), x.extents(), x.strides(), {}}, axis);
  }
  template <class T, std::size_t R>
  Batched<const T, R - 1, 1> operator()(const Tensor<T, R>& x, Index axis = 0) const {
    return (*this)(x.ref(), axis);
  }
  template <class T, std::size_t R>
  Batched<T, R - 1, 1> operator()(Tensor<T, R>& x, Index axis = 0) const {
    return (*this)(x.ref(), axis);
  }
  template <class T, std::size_t R>
  void operator()(const Tensor<T, R>&& x, Index axis = 0) const = delete;

  Index size() const { return size_; }

 private:
  friend class Grid;
  Batch(int id, std::uint32_t grid, Index size, const char* name)
      : id_(id), grid_(grid), size_(size), name_(name) {}

  int id_;
  std::uint32_t grid_;
  Index size_;
  const char* name_;
};

}  // namespace kref
