// SPDX-License-Identifier: Apache-2.0
// Step: what the body of a grid sees of one step: where it is, and the blocks of the operands.
#pragma once

#include <span>

#include "dsl/block_spec.h"

namespace kref {

namespace detail {

// Handles name an operand of one grid with its element type and rank; copied freely.
template <class T, std::size_t R, int kKind>
struct Handle {
  std::uint32_t grid = 0;
  std::uint32_t id = 0;
  const char* name = "";  // lives as long as the program
};

struct Program;

struct View {
  void* data = nullptr;
  const Index* extents = nullptr;
  const Index* strides = nullptr;
};

// What a step can ask of one operand. Views are made on first use where that saves a copy.
struct OperandView {
  View whole, inside;
  const Index* margins = nullptr;  // elements of the block before the array, a dimension
  bool whole_ready = false;
  bool inside_ready = false;
  // out, in_out: the steps in which the views were last taken, inside without whole before it.
  Index whole_at = -1, inside_at = -1;
};

// The part of a worker that Step's inline members touch.
struct StepData {
  const Program* grid_program = nullptr;
  std::uint32_t grid = 0;
  Index number = 0;
  const Index* at = nullptr;     // coordinates, one an axis
  OperandView* views = nullptr;  // one an operand; null while an index map is evaluated
  void* worker = nullptr;
};

// The slow paths and failures of Step, compiled once.
void make_whole(StepData& data, std::uint32_t id);
void make_inside(StepData& data, std::uint32_t id);
[[noreturn]] void foreign_axis(const StepData& data, const char* axis);
[[noreturn]] void foreign_handle(const StepData& data, const char* operand);
[[noreturn]] void no_blocks(const StepData& data, const char* operand);
[[noreturn]] void inside_before_whole(const StepData& data, const char* operand);
// A scalar-prefetch table, at the step's place in a batch. Also while an index map is evaluated.
View table_of(const StepData& data, std::uint32_t id);
[[noreturn]] void outside_table(const StepData& data, const char* table, const View& view,
                                std::span<const Index> at);

}  // namespace detail

// A scalar-prefetch table in a body or an index map: t(i, j) is an element. Error on an index
// outside it, which no build skips: tables come from users' data.
template <class T, std::size_t R>
class Table {
 public:
  template <class... I>
  requires(sizeof...(I) == R && (std::is_convertible_v<I, Index> && ...)) T operator()(
      I... index) const {
    const std::array<Index, R> at{static_cast<Index>(index)...};
    Index offset = 0;
    for (std::size_t d = 0; d < R; ++d) {
      if (at[d] < 0 || at[d] >= view_.extents[d]) [[unlikely]]
        detail::outside_table(data_, name_, view_, at);
      offset += at[d] * view_.strides[d];
    }
    return static_cast<const T*>(view_.data)[offset];
  }
  Index extent(std::size_t d) const { return view_.extents[d]; }

 private:
  friend class Step;
  Table(const detail::StepData& data, const detail::View& view, const char* name)
      : data_(data), view_(view), name_(name) {}
  const detail::StepData& data_;
  detail::View view_;
  const char* name_;
};

// Operands of a grid, as Grid::in, out, in_out, scratch and prefetch return them. T without const.
template <class T, std::size_t R>
using In = detail::Handle<T, R, 0>;
template <class T, std::size_t R>
using Out = detail::Handle<T, R, 1>;
template <class T, std::size_t R>
using InOut = detail::Handle<T, R, 2>;
template <class T, std::size_t R>
using Scratch = detail::Handle<T, R, 3>;
template <class T, std::size_t R>
using Prefetch = detail::Handle<T, R, 4>;

// One step. Handed to the body by reference; it and every Ref taken from it end with the step.
//
// s[h] is the whole block. At the edge of an array the part outside it reads as poison (NaN, the
// minimum of an integer type, false) and what is written there is dropped. s.valid(h) is the part
// of the block that lies inside the array, at most as large. Both show the same data.
//
// An output block holds poison when a step comes to it, never the array's contents, and keeps what
// is written to it while the following steps stay on it. An in_out block holds the array's.
// Within one step s[h] of an out or in_out must not follow s.valid(h) (Error): an edge block that
// has been handed out in place cannot gain a margin any more. The other order is fine, and
// s.extents(h) tells the size of the valid part without handing it out.
//
// Errors: an axis or a handle of another grid; in an index map, asking for a block. A table of
// Grid::prefetch is there for both.
class Step {
 public:
  explicit Step(detail::StepData& data) : data_(data) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Coordinate on an axis, 0..axis.size-1 (pl.program_id).
  Index index(const Axis& axis) const {
    if (axis.grid != data_.grid) [[unlikely]]
      detail::foreign_axis(data_, axis.name);
    return data_.at[axis.id];
  }
  bool first(const Axis& axis) const { return index(axis) == 0; }
  bool last(const Axis& axis) const { return index(axis) == axis.size - 1; }
  // Place in the order of the contract, from 0: lexicographic, the last axis fastest.
  Index number() const { return data_.number; }

  template <class T, std::size_t R>
  Ref<const T, R> operator[](const In<T, R>& h) const {
    return ref<const T, R>(whole(h.grid, h.id, h.name));
  }
  template <class T, std::size_t R>
  Ref<T, R> operator[](const Out<T, R>& h) const {
    return ref<T, R>(whole(h.grid, h.id, h.name));
  }
  template <class T, std::size_t R>
  Ref<T, R> operator[](const InOut<T, R>& h) const {
    return ref<T, R>(whole(h.grid, h.id, h.name));
  }
  // Scratch: the thread's own, kept from step to step. Poison at the first step, and as good as
  // that whenever a parallel axis moves: another thread may run that step.
  template <class T, std::size_t R>
  Ref<T, R> operator[](const Scratch<T, R>& h) const {
    return ref<T, R>(whole(h.grid, h.id, h.name));
  }

  template <class T, std::size_t R>
  Table<T, R> operator[](const Prefetch<T, R>& h) const {
    if (h.grid != data_.grid) [[unlikely]]
      detail::foreign_handle(data_, h.name);
    return Table<T, R>(data_, detail::table_of(data_, h.id), h.name);
  }

  // Extents of the part of the block that lies inside the array, of an in, out or in_out.
  template <class T, std::size_t R, int kKind>
  requires(kKind < 3) Shape<R> extents(const detail::Handle<T, R, kKind>& h)
  const { return shape<R>(view(h.grid, h.id, h.name).inside.extents); }
  // Where that part begins in the block: 0 but for the low padding of Element dimensions.
  template <class T, std::size_t R, int kKind>
  requires(kKind < 3) Shape<R> margins(const detail::Handle<T, R, kKind>& h)
  const { return shape<R>(view(h.grid, h.id, h.name).margins); }

  template <class T, std::size_t R>
  Ref<const T, R> valid(const In<T, R>& h) const {
    return ref<const T, R>(inside(h.grid, h.id, h.name, false));
  }
  template <class T, std::size_t R>
  Ref<T, R> valid(const Out<T, R>& h) const {
    return ref<T, R>(inside(h.grid, h.id, h.name, true));
  }
  template <class T, std::size_t R>
  Ref<T, R> valid(const InOut<T, R>& h) const {
    return ref<T, R>(inside(h.grid, h.id, h.name, true));
  }

 private:
  detail::OperandView& view(std::uint32_t grid, std::uint32_t id, const char* name) const {
    if (grid != data_.grid) [[unlikely]]
      detail::foreign_handle(data_, name);
    if (data_.views == nullptr) [[unlikely]]
      detail::no_blocks(data_, name);
    return data_.views[id];
  }
  const detail::View& whole(std::uint32_t grid, std::uint32_t id, const char* name) const {
    detail::OperandView& v = view(grid, id, name);
    if (v.inside_at == data_.number) [[unlikely]]
      detail::inside_before_whole(data_, name);
    v.whole_at = data_.number;
    if (!v.whole_ready) detail::make_whole(data_, id);
    return v.whole;
  }
  const detail::View& inside(std::uint32_t grid, std::uint32_t id, const char* name,
                             bool writes) const {
    detail::OperandView& v = view(grid, id, name);
    if (writes && v.whole_at != data_.number) v.inside_at = data_.number;
    if (!v.inside_ready) detail::make_inside(data_, id);
    return v.inside;
  }
  template <std::size_t R>
  static Shape<R> shape(const Index* values) {
    Shape<R> out;
    for (std::size_t d = 0; d < R; ++d) out[d] = values[d];
    return out;
  }
  template <class T, std::size_t R>
  static Ref<T, R> ref(const detail::View& v) {
    return Ref<T, R>(static_cast<T*>(v.data), shape<R>(v.extents), shape<R>(v.strides));
  }

  detail::StepData& data_;
};

}  // namespace kref
