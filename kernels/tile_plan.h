// SPDX-License-Identifier: Apache-2.0
// How a verb walks its operands: shapes are matched by numpy's broadcasting, neighbouring
// dimensions are merged where every operand allows it, and what is left is handed to the vector
// code as planes of rows.
#pragma once

#include <array>
#include <cstddef>

#include "dsl/array.h"

namespace kref::detail {

// Up to three inputs and one output.
inline constexpr std::size_t kMaxOperands = 4;

// One operand within a plane. Element (r, c) stands at data + r * row_stride + c * step elements.
struct Side {
  void* data = nullptr;
  Index row_stride = 0;
  Index step = 1;  // 1, or 0 when one element is broadcast along the row

  template <class T>
  T* row(Index r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
};

struct Plane {
  Index rows = 0, cols = 0;
  std::array<Side, kMaxOperands> side;
};

// An operand as the verb got it; the name appears in messages.
struct Operand {
  const char* name;
  ArrayRef view;
};

// The common walk of the operands. The last one is written and sets the shape; the others have
// that shape, or extent 1, or fewer leading dimensions. Error otherwise, naming verb and operand.
class TilePlan {
 public:
  enum class Inner {
    kColumns,  // the innermost dimension is the row, where it is contiguous
    kRows,     // it counts rows of one element: a plane has 1 column
  };
  TilePlan(const char* verb, const Operand* operands, std::size_t count,
           Inner inner = Inner::kColumns);

  // Calls f(const Plane&) for each plane; not at all when the shape is empty.
  template <class F>
  void for_each(F&& f) const {
    if (empty_) return;
    Plane plane = first_;
    Shape<kMaxRank> at{};
    for (;;) {
      f(static_cast<const Plane&>(plane));
      std::size_t d = outer_;
      for (; d-- > 0;) {
        const bool more = ++at[d] < extents_[d];
        for (std::size_t o = 0; o < count_; ++o) {
          advance(plane.side[o], o, strides_[o][d] * (more ? 1 : 1 - extents_[d]));
        }
        if (more) break;
        at[d] = 0;
      }
      if (d == static_cast<std::size_t>(-1)) return;
    }
  }

 private:
  void advance(Side& side, std::size_t operand, Index elements) const {
    side.data = static_cast<char*>(side.data) + elements * element_bytes_[operand];
  }

  std::size_t count_ = 0, outer_ = 0;  // operands; dimensions walked outside the planes
  bool empty_ = false;
  Shape<kMaxRank> extents_{};
  std::array<Shape<kMaxRank>, kMaxOperands> strides_{};
  std::array<Index, kMaxOperands> element_bytes_{};
  Plane first_;
};

}  // namespace kref::detail
