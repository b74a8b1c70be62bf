// SPDX-License-Identifier: Apache-2.0
// Grid: a kernel declared as a table (axes, operands, blocks, index maps) and run step by step,
// with the execution model of jax.experimental.pallas.pallas_call on a TPU.
//
//   Grid grid("add");
//   const Axis i = grid.parallel("i", cdiv(n, 128));
//   const auto xb = grid.in("x", x, {.block = {128}, .index = {i}});
//   const auto zb = grid.out("z", z, {.block = {128}, .index = {i}});
//   grid.run([&](const Step& s) { ... s[xb] ... s[zb] ... });
//
// Order. Steps run in lexicographic order of the coordinates, the last axis fastest. Parallel axes
// come first and are spread over threads, each with its own windows and scratch; a body must not
// carry anything from one parallel coordinate to another, and then no result depends on the number
// of threads. A grid without axes is one step, with an axis of size 0 none.
//
// Operands. An input's block is fetched when its index changes. An output's holds poison when its
// index changes and is written back when it is left; to come back to it later, or from another
// coordinate of a parallel axis, is refused. in_out: fetched and written back. Operands over the
// same memory (an output aliased to an input; that is told from the memory, there is no list of
// pairs to get wrong): at each step blocks are fetched, the body runs, blocks that the next step
// leaves are stored; each operand has a window of its own. An output's window starts as poison then
// as well; use in_out to update an array in place. Points of the parallel axes have no order, so
// that none may read through an alias what another one writes: maps given as data are refused where
// they would, a grid with a callable in such a pair runs on one thread.
//
// Rules, each an Error that names grid, operand, axis, block and step: see the declarations below.
// What data says about index maps is checked before the first step. A callable of an output is
// asked for all steps before the first body runs; a fault of it counts at its step, as do those of
// inputs. Pitfalls: `return` early from a body and the store of the last step is skipped; "first"
// along a parallel axis is not "first on this thread"; a Ref ends with its step.
#pragma once

#include <memory>
#include <string_view>

#include "dsl/array.h"
#include "dsl/step.h"
#include "dsl/tensor.h"
#include "dsl/trace.h"

namespace kref {

// What Grid::check does beyond its rules.
struct CheckOptions {
  std::uint64_t seed = 1;       // of the order of the parallel axes' coordinates
  bool tpu_shapes = false;      // refuse block shapes that no TPU accepts (pallas_semantics 4.6)
  std::int64_t vmem_bytes = 0;  // refuse windows (two each where the block moves) and scratch that
                                // together need more; 0: no limit
  const char* chip = nullptr;   // the same with the VMEM of a chip: v2, v3, v4i, v4, v5e, v5p, v6e,
                                // 7, 7x, 8i, 8t; null: none
};

// The seed of the checks that KREF_CHECKS=full makes of every later Grid::run; 1 unless set.
void set_check_seed(std::uint64_t seed);

namespace detail {

enum class Kind : std::uint8_t { kIn, kOut, kInOut, kScratch };
struct Program;
struct Body {
  const void* object;
  void (*call)(const void* object, const Step& step);
};

}  // namespace detail

class Grid {
 public:
  explicit Grid(std::string_view name);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  // A dimension of the grid, slowest first. Error when size is negative, when a name occurs twice,
  // on a parallel axis after a sequential one, on more than 16 axes, and after run.
  Axis parallel(std::string_view name, Index size);
  Axis sequential(std::string_view name, Index size);

  // Operands: arrays of rank 0 to 6 with any element type and outer strides. Error on a block
  // extent below 1 (0 is fine where the array has extent 0), an axis of another grid, a name that
  // occurs twice, sizes that 64 bits do not count, after run; for out and in_out also on an array
  // whose elements share memory, and on memory shared with another operand unless both are the same
  // view: an alias, whose element types and shapes must agree.
  template <class T, std::size_t R>
  In<std::remove_const_t<T>, R> in(std::string_view name, Ref<T, R> x, const BlockSpec<R>& spec) {
    using U = std::remove_const_t<T>;
    return declare<In<U, R>, R>(detail::Kind::kIn, name, mutable_ref(x), spec);
  }
  template <class T, std::size_t R>
  Out<T, R> out(std::string_view name, Ref<T, R> x,
                const BlockSpec<R>& spec) requires(!std::is_const_v<T>) {
    return declare<Out<T, R>, R>(detail::Kind::kOut, name, mutable_ref(x), spec);
  }
  template <class T, std::size_t R>
  InOut<T, R> in_out(std::string_view name, Ref<T, R> x,
                     const BlockSpec<R>& spec) requires(!std::is_const_v<T>) {
    return declare<InOut<T, R>, R>(detail::Kind::kInOut, name, mutable_ref(x), spec);
  }
  // The whole array as one block.
  template <class T, std::size_t R>
  In<std::remove_const_t<T>, R> in(std::string_view name, Ref<T, R> x) {
    return in(name, x, whole(x));
  }
  template <class T, std::size_t R>
  Out<T, R> out(std::string_view name, Ref<T, R> x) requires(!std::is_const_v<T>) {
    return out(name, x, whole(x));
  }
  template <class T, std::size_t R>
  InOut<T, R> in_out(std::string_view name, Ref<T, R> x) requires(!std::is_const_v<T>) {
    return in_out(name, x, whole(x));
  }
  // The same for tensors.
  template <class T, std::size_t R>
  In<T, R> in(std::string_view name, const Tensor<T, R>& x, const BlockSpec<R>& spec) {
    return in(name, x.ref(), spec);
  }
  template <class T, std::size_t R>
  In<T, R> in(std::string_view name, const Tensor<T, R>& x) {
    return in(name, x.ref());
  }
  template <class T, std::size_t R>
  void in(std::string_view name, const Tensor<T, R>&& x, const BlockSpec<R>& spec) = delete;
  template <class T, std::size_t R>
  void in(std::string_view name, const Tensor<T, R>&& x) = delete;  // would not outlive the line
  template <class T, std::size_t R>
  Out<T, R> out(std::string_view name, Tensor<T, R>& x, const BlockSpec<R>& spec) {
    return out(name, x.ref(), spec);
  }
  template <class T, std::size_t R>
  Out<T, R> out(std::string_view name, Tensor<T, R>& x) {
    return out(name, x.ref());
  }
  template <class T, std::size_t R>
  InOut<T, R> in_out(std::string_view name, Tensor<T, R>& x, const BlockSpec<R>& spec) {
    return in_out(name, x.ref(), spec);
  }
  template <class T, std::size_t R>
  InOut<T, R> in_out(std::string_view name, Tensor<T, R>& x) {
    return in_out(name, x.ref());
  }

  // Memory of each thread's own: scratch<float>("acc", {t.m, t.n}). Error on a negative extent, a
  // name that occurs twice, after run.
  template <ElementType T, std::size_t R>
  Scratch<T, R> scratch(std::string_view name, const Index (&extents)[R]) {
    return scratch<T>(name, std::to_array(extents));
  }
  template <ElementType T, std::size_t R>
  Scratch<T, R> scratch(std::string_view name, const Shape<R>& extents) {
    static_assert(R <= kMaxRank && !std::is_const_v<T>);
    Scratch<T, R> h;
    declare_scratch(name, dtype_of<T>, extents, h.id, h.name);
    h.grid = id_;
    return h;
  }
  template <ElementType T>
  Scratch<T, 0> scratch(std::string_view name) {
    return scratch<T>(name, Shape<0>{});
  }

  // Calls body(step) for every step. A block that lies inside its array is viewed in place, others
  // are copied; a body cannot tell. May be called again. With KREF_CHECKS=full in the environment:
  // check(body). Inside a parallel region of OpenMP: on the calling thread alone.
  // An exception thrown by the body ends the run and comes out of it; of several the one of the
  // lowest step. An Error, say of a verb, gets grid and step in front of its text. The contents of
  // the outputs are then unspecified.
  template <class F>
  requires std::is_invocable_v<const F&, const Step&> Trace run(const F& body) {
    return run_erased(erase(body));
  }

  // The same under strict rules, slowly and on one thread; the outputs are those of run, bit for
  // bit. Every window is a copy, scratch is poison at every coordinate of the parallel axes. The
  // body runs twice over all steps: in order with poison as everywhere, and with the coordinates of
  // each parallel axis permuted and another poison. Error when an element of an output is never
  // written, when it differs between the two (something uninitialised, from outside an array or
  // carried along a parallel axis reached it), or when a body writes outside its block. A body that
  // changes what it captured sees itself called twice.
  template <class F>
  requires std::is_invocable_v<const F&, const Step&> Trace
  check(const F& body, const CheckOptions& options = {}) {
    return check_erased(erase(body), options);
  }

  // The table of operands as text: name, kind, element type, array shape, block, index map, number
  // of blocks, bytes a block.
  std::string describe() const;

  const std::string& name() const;
  // Number of steps of the grid declared so far.
  Index steps() const;

 private:
  template <class T, std::size_t R>
  static MutableArrayRef mutable_ref(Ref<T, R> x) {
    using U = std::remove_const_t<T>;
    // An input is never written: its windows are handed out as const.
    return Ref<U, R>(const_cast<U*>(x.data()), x.extents(), x.strides());
  }
  template <class T, std::size_t R>
  static BlockSpec<R> whole(Ref<T, R> x) {
    return whole_of(x.extents(), std::make_index_sequence<R>());
  }
  template <std::size_t R, std::size_t... D>
  static BlockSpec<R> whole_of(const Shape<R>& extents, std::index_sequence<D...>) {
    return {.block = {BlockDim(extents[D])...}, .index = IndexMap<R>::zero()};
  }
  template <class H, std::size_t R>
  H declare(detail::Kind kind, std::string_view name, const MutableArrayRef& array,
            const BlockSpec<R>& spec) {
    H h;
    declare_operand(kind, name, array, std::span<const BlockDim>(spec.block), spec.index.data(),
                    h.id, h.name);
    h.grid = id_;
    return h;
  }
  template <class F>
  static detail::Body erase(const F& body) {
    return {&body, [](const void* f, const Step& step) { (*static_cast<const F*>(f))(step); }};
  }
  Axis declare_axis(std::string_view name, Index size, bool parallel);
  void declare_operand(detail::Kind kind, std::string_view name, const MutableArrayRef& array,
                       std::span<const BlockDim> block, const detail::IndexMapData& map,
                       std::uint32_t& id, const char*& kept_name);
  void declare_scratch(std::string_view name, DType type, std::span<const Index> extents,
                       std::uint32_t& id, const char*& kept_name);
  Trace run_erased(detail::Body body);
  Trace check_erased(detail::Body body, const CheckOptions& options);

  std::uint32_t id_;
  std::unique_ptr<detail::Program> program_;
};

}  // namespace kref
