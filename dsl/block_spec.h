// SPDX-License-Identifier: Apache-2.0
// How an operand is cut into blocks, and which block a step works on. The words are those of
// jax.experimental.pallas.BlockSpec.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "dsl/ref.h"

namespace kref {

class Step;

// A dimension of a grid, made by Grid::parallel and Grid::sequential; copied freely. `size` is the
// number of its coordinates (pl.num_programs).
struct Axis {
  int id = -1;
  Index size = 0;
  std::uint32_t grid = 0;  // which grid it belongs to
  const char* name = "";   // lives as long as the program
};

// What an index map may compute from one axis: axis / d % m * s + o with constants, each part
// optional, in this order; or a constant. `/` and `%` are those of whole numbers, of coordinates,
// which are never negative. Any other order throws Error where it is built, since it would have
// to be evaluated differently from what the table of operands prints. Arithmetic over two axes
// does not compile: give the index map as a callable of the step.
class AxisExpr {
 public:
  constexpr AxisExpr() = default;  // the constant 0
  AxisExpr(const Axis& axis) : axis_(axis.id), grid_(axis.grid), name_(axis.name) {}
  template <class I>
  requires(std::is_integral_v<I> && !std::is_same_v<I, bool>) constexpr AxisExpr(I constant)
      : add_(static_cast<Index>(constant)) {}

  // Its value at the coordinates of a step, one for each axis of the grid.
  Index operator()(const Index* at) const {
    if (axis_ < 0) return add_;
    Index v = at[axis_];
    if (div_ != 1) v /= div_;
    if (mod_ != 0) v %= mod_;
    // Unsigned: what does not fit wraps instead of being undefined; such maps are refused.
    return static_cast<Index>(static_cast<std::uint64_t>(v) * static_cast<std::uint64_t>(mul_) +
                              static_cast<std::uint64_t>(add_));
  }
  // True when the value at one coordinate lies in 0..limit-1, without wrapping.
  bool within(Index coordinate, Index limit) const;
  bool constant() const { return axis_ < 0; }
  int axis() const { return axis_; }
  std::uint32_t grid() const { return grid_; }
  // Written with the same axis and constants: the same value at every step.
  bool same(const AxisExpr& e) const {
    return axis_ == e.axis_ && div_ == e.div_ && mod_ == e.mod_ && mul_ == e.mul_ && add_ == e.add_;
  }
  // Never falls, or never rises, along its axis.
  bool monotone() const { return mod_ == 0; }
  // Different coordinates give different values, whatever the size of the axis.
  bool injective() const { return axis_ >= 0 && div_ == 1 && mod_ == 0 && mul_ != 0; }
  // True when the value at every coordinate 0..size-1 lies in 0..limit-1, told from the ends; a
  // sum too large for an Index is outside.
  bool surely_within(Index size, Index limit) const;
  // "h / 4 * 2 + 1".
  std::string text() const;
  const char* name() const { return name_; }

 private:
  friend AxisExpr operator/(AxisExpr e, Index d);
  friend AxisExpr operator%(AxisExpr e, Index m);
  friend AxisExpr operator*(AxisExpr e, Index s);
  friend AxisExpr operator+(AxisExpr e, Index o);
  // Refuses `op operand` unless it comes after what the expression holds already.
  void enter(int stage, char op, Index operand);

  int axis_ = -1;  // -1: the constant add_
  std::uint32_t grid_ = 0;
  int stage_ = 0;  // 1 after /, 2 after %, 3 after *, 4 after +
  Index div_ = 1;
  Index mod_ = 0;  // 0: none
  Index mul_ = 1;
  Index add_ = 0;
  const char* name_ = "";
};

// Error on a divisor or modulus below 1, and on an order other than / % * +.
AxisExpr operator/(AxisExpr e, Index d);
AxisExpr operator%(AxisExpr e, Index m);
AxisExpr operator*(AxisExpr e, Index s);
AxisExpr operator+(AxisExpr e, Index o);
inline AxisExpr operator-(AxisExpr e, Index o) { return e + -o; }
inline AxisExpr operator*(Index s, AxisExpr e) { return e * s; }
inline AxisExpr operator+(Index o, AxisExpr e) { return e + o; }
AxisExpr operator+(AxisExpr a, AxisExpr b) = delete;  // two axes: use a callable of the step
AxisExpr operator-(AxisExpr a, AxisExpr b) = delete;
AxisExpr operator*(AxisExpr a, AxisExpr b) = delete;

namespace detail {

// An index map whose rank is known at run time only: expressions, or a callable.
struct IndexMapData {
  std::array<AxisExpr, kMaxRank> exprs{};
  std::shared_ptr<const void> callable;  // null: exprs
  void (*call)(const void* callable, const Step& step, Index* block) = nullptr;
};

}  // namespace detail

// The block index of a step, one number a dimension: exactly R expressions, {i, k}, or a callable
// Shape<R>(const Step&) for what they cannot say (a page table). A callable must be pure; it may
// ask the step for indices and not for blocks.
template <std::size_t R>
class IndexMap {
 public:
  template <class... E>
  requires(sizeof...(E) == R && (std::is_convertible_v<E, AxisExpr> && ...)) IndexMap(E... exprs) {
    data_.exprs = {AxisExpr(exprs)...};
  }
  template <class F>
  requires(std::is_invocable_r_v<Shape<R>, const F&, const Step&>) IndexMap(F f) {
    data_.callable = std::make_shared<const F>(std::move(f));
    data_.call = [](const void* callable, const Step& step, Index* block) {
      const Shape<R> at = (*static_cast<const F*>(callable))(step);
      for (std::size_t d = 0; d < R; ++d) block[d] = at[d];
    };
  }
  // Every index 0: for an operand with a single block.
  static IndexMap zero() { return IndexMap(Zero{}); }

  const detail::IndexMapData& data() const { return data_; }

 private:
  struct Zero {};
  explicit IndexMap(Zero) {}
  detail::IndexMapData data_;
};

// A block dimension of extent 1 that the kernel does not want to see (Pallas: None, Squeezed). Its
// index counts elements. Ranks are static here, so the block keeps the dimension with extent 1;
// matrix() strips it.
struct Squeezed {};
inline constexpr Squeezed squeezed{};

// Elements of padding that a dimension is taken to have before and after the array.
struct Padding {
  Index low = 0, high = 0;
};

// A dimension whose windows start at any element, so that they may overlap (pl.Element): the index
// counts elements, and with padding index 0 is element -low of the array. What a window holds of
// the padding is poison to read and is dropped when written, as at an edge. A window must lie
// within the padded array.
struct Element {
  constexpr explicit Element(Index extent, Padding around = {}) : size(extent), padding(around) {}
  Index size;
  Padding padding;
};

// Extent of a block in one dimension. No default constructor: a list that is too short must not
// compile. Blocks of other kinds that Pallas has (BoundedSlice, Indirect) belong to its
// emit_pipeline and are not offered.
class BlockDim {
 public:
  template <class I>
  requires(std::is_integral_v<I> && !std::is_same_v<I, bool>) constexpr BlockDim(I extent)
      : extent_(static_cast<Index>(extent)) {}
  constexpr BlockDim(Squeezed) : extent_(1), kind_(Kind::kSqueezed) {}
  constexpr BlockDim(Element e) : extent_(e.size), padding_(e.padding), kind_(Kind::kElement) {}
  constexpr Index extent() const { return extent_; }
  constexpr Padding padding() const { return padding_; }
  constexpr bool is_squeezed() const { return kind_ == Kind::kSqueezed; }
  constexpr bool is_element() const { return kind_ == Kind::kElement; }

 private:
  enum class Kind : std::uint8_t { kBlocked, kSqueezed, kElement };
  Index extent_;
  Padding padding_;
  Kind kind_ = Kind::kBlocked;
};

// May an output come back to a block that it left? kAny: yes, as long as the same coordinates of
// the parallel axes do; the block is then fetched again.
enum class Revisit : std::uint8_t { kImmediate, kAny };

// How a window is kept in VMEM (pl.Buffered): in `count` buffers, 1 or 2; 0 is what a TPU does by
// itself, two where the block moves. Results do not depend on it; VMEM budgets do.
struct Buffered {
  int count = 0;
  Revisit revisit = Revisit::kImmediate;
};

// {.block = {t.m, t.k}, .index = {i, k}}: blocks of that extent, and which of them a step works on;
// block b of a dimension starts at element b * extent. Blocks need not divide the array. Kinds of
// dimensions mix: {squeezed, Element(10, {1, 1}), t.k}.
template <std::size_t R>
struct BlockSpec {
  std::array<BlockDim, R> block;
  IndexMap<R> index;
  Buffered pipeline_mode = {};
};

}  // namespace kref
