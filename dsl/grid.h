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
// Tables. prefetch declares an array that is there before the first step, for index maps (callables
// of the step) and bodies: {.index = [=](const Step& s) { return Shape<2>{s[pages](s.index(i)), 0};
// }}. Blocks that start at any element, padding, buffer counts: dsl/block_spec.h; vmap:
// dsl/batch.h.
//
// Rules, each an Error that names grid, operand, axis, block and step: see the declarations below.
// What data says about index maps is checked before the first step. A callable of an output is
// asked for all steps before the first body runs; a fault of it counts at its step, as do those of
// inputs. Pitfalls: `return` early from a body and the store of the last step is skipped; "first"
// along a parallel axis is not "first on this thread"; a Ref ends with its step.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>

#include "dsl/batch.h"
#include "dsl/check_options.h"
#include "dsl/declaration.h"
#include "dsl/grid_cost.h"
#include "dsl/step.h"
#include "dsl/tensor.h"
#include "dsl/trace.h"

namespace kref {

// The body of a grid: called with each step, and returns nothing; what it makes goes to its blocks.
template <class F>
concept StepBody = std::is_invocable_v<const F&, const Step&> &&
    std::is_void_v<std::invoke_result_t<const F&, const Step&>>;

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
  // A quotient of floats would be cut off without a word: cdiv(n, block).
  template <std::floating_point F>
  Axis parallel(std::string_view name, F size) = delete;
  template <std::floating_point F>
  Axis sequential(std::string_view name, F size) = delete;

  // A batch of that many: an axis in front of all others that no index map or body sees. Error as
  // for axes, and after one. Dimensions of a batch count towards the rank 6 of an array.
  Batch vmap(std::string_view name, Index size);

  // Operands: arrays of rank 0 to 6 with any element type and outer strides. Error on a block
  // extent below 1 (0 is fine where the array has extent 0), an Element window larger than the
  // padded array, negative padding, an axis of another grid, a number of buffers other than 1 and
  // 2, Revisit::kAny with 2 of them, on an input or with Element dimensions, a name that occurs
  // twice, sizes that 64 bits do not count, after run; for out and in_out also on an array
  // whose elements share memory, and on memory shared with another operand unless both are the same
  // view: an alias, whose element types and shapes must agree.
  template <class T, std::size_t R>
  In<std::remove_const_t<T>, R> in(std::string_view name, Ref<T, R> x, const BlockSpec<R>& spec) {
    return in(name, unbatched(x), spec);
  }
  template <class T, std::size_t R>
  Out<T, R> out(std::string_view name, Ref<T, R> x,
                const BlockSpec<R>& spec) requires(!std::is_const_v<T>) {
    return out(name, unbatched(x), spec);
  }
  template <class T, std::size_t R>
  InOut<T, R> in_out(std::string_view name, Ref<T, R> x,
                     const BlockSpec<R>& spec) requires(!std::is_const_v<T>) {
    return in_out(name, unbatched(x), spec);
  }
  // Of a batch: what is written must be of every one.
  template <class T, std::size_t R, std::size_t N>
  In<std::remove_const_t<T>, R> in(std::string_view name, const Batched<T, R, N>& x,
                                   const BlockSpec<R>& spec) {
    return declare<In<std::remove_const_t<T>, R>>(detail::Kind::kIn, name, x, spec);
  }
  template <class T, std::size_t R, std::size_t N>
  Out<T, R> out(std::string_view name, const Batched<T, R, N>& x,
                const BlockSpec<R>& spec) requires(!std::is_const_v<T>) {
    return declare<Out<T, R>>(detail::Kind::kOut, name, x, spec);
  }
  template <class T, std::size_t R, std::size_t N>
  InOut<T, R> in_out(std::string_view name, const Batched<T, R, N>& x,
                     const BlockSpec<R>& spec) requires(!std::is_const_v<T>) {
    return declare<InOut<T, R>>(detail::Kind::kInOut, name, x, spec);
  }
  // An input whose window a body may write, as Pallas lets it: the array keeps its contents, and
  // what was written is there until the block is fetched again. Along parallel axes it always is.
  template <class T, std::size_t R>
  InOut<std::remove_const_t<T>, R> in_window(std::string_view name, Ref<T, R> x,
                                             const BlockSpec<R>& spec) {
    return declare<InOut<std::remove_const_t<T>, R>>(detail::Kind::kIn, name, unbatched(x), spec,
                                                     true);
  }
  template <class T, std::size_t R>
  InOut<T, R> in_window(std::string_view name, const Tensor<T, R>& x, const BlockSpec<R>& spec) {
    return in_window(name, x.ref(), spec);
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

  // A table that index maps and bodies read (scalar prefetch): any element type and rank. Error as
  // for operands, and on memory that an output shares.
  template <class T, std::size_t R, std::size_t N>
  Prefetch<std::remove_const_t<T>, R> prefetch(std::string_view name, const Batched<T, R, N>& x) {
    return declare<Prefetch<std::remove_const_t<T>, R>>(
        detail::Kind::kPrefetch, name, x, whole_of(x.extents, std::make_index_sequence<R>()));
  }
  template <class T, std::size_t R>
  Prefetch<std::remove_const_t<T>, R> prefetch(std::string_view name, Ref<T, R> x) {
    return prefetch(name, unbatched(x));
  }
  template <class T, std::size_t R>
  Prefetch<T, R> prefetch(std::string_view name, const Tensor<T, R>& x) {
    return prefetch(name, x.ref());
  }
  template <class T, std::size_t R>
  void prefetch(std::string_view name, const Tensor<T, R>&& x) = delete;

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
  requires StepBody<F> Trace run(const F& body) { return run_erased(erase(body)); }

  // The same under strict rules, slowly; the outputs are those of run, bit for bit. Every window is
  // a copy (an input's in the second pass), scratch is poison at every coordinate of the parallel
  // axes. The body runs over all steps in order with poison as everywhere, then with coordinates of
  // each parallel axis permuted and another poison. Error, the same for any number of threads, when
  // an element of an output is never written, when it differs between the two (something
  // uninitialised, from outside an array or carried along a parallel axis reached it), or when a
  // body writes outside its block. A body that changes what it captured sees itself called again.
  template <class F>
  requires StepBody<F> Trace check(const F& body, const CheckOptions& options = {}) {
    return check_erased(erase(body), options);
  }

  // What the grid takes; with a body also what its verbs compute. The body runs once, on one
  // thread, over arrays that are then as they were. Errors as of run.
  GridCost cost();
  template <class F>
  requires StepBody<F> GridCost cost(const F& body) {
    const detail::Body erased = erase(body);
    return cost_erased(&erased);
  }

  // What the TPU compiler has against it, for a chip of CheckOptions; an interpreter, and this
  // library, run it all the same. Error on a chip that is not known, and as of run on its rules.
  std::vector<TpuWarning> tpu_report(const char* chip = "v5e");

  // The table of operands as text: name, kind, element type, array shape, block, index map, number
  // of blocks, bytes a block.
  std::string describe() const;

  const std::string& name() const;
  // Number of steps of the grid declared so far.
  Index steps() const;

 private:
  template <class T, std::size_t R>
  static Batched<T, R, 0> unbatched(Ref<T, R> x) {
    return {x.data(), x.extents(), x.strides(), {}};
  }
  template <class T, std::size_t R>
  static BlockSpec<R> whole(Ref<T, R> x) {
    return whole_of(x.extents(), std::make_index_sequence<R>());
  }
  template <std::size_t R, std::size_t... D>
  static BlockSpec<R> whole_of(const Shape<R>& extents, std::index_sequence<D...>) {
    return {.block = {BlockDim(extents[D])...}, .index = IndexMap<R>::zero()};
  }
  template <class H, class T, std::size_t R, std::size_t N>
  H declare(detail::Kind kind, std::string_view name, const Batched<T, R, N>& x,
            const BlockSpec<R>& spec, bool own_window = false) {
    static_assert(R + N <= kMaxRank, "Grid: rank above 6, the dimensions of batches included");
    MutableArrayRef array;
    array.dtype = dtype_of<std::remove_const_t<T>>;
    array.rank = R;
    for (std::size_t d = 0; d < R; ++d) {
      array.extents[d] = x.extents[d], array.strides[d] = x.strides[d];
    }
    // An input is never written: its windows are handed out as const, or are copies.
    array.data = const_cast<std::remove_const_t<T>*>(x.data);
    H h;
    declare_operand(
        {kind, name, array, spec.block, spec.index.data(), spec.pipeline_mode, x.axes, own_window},
        h.id, h.name);
    h.grid = id_;
    return h;
  }
  template <class F>
  static detail::Body erase(const F& body) {
    return {&body, [](const void* f, const Step& step) { (*static_cast<const F*>(f))(step); }};
  }
  Axis declare_axis(std::string_view name, Index size, bool parallel);
  void declare_operand(const detail::Declaration& operand, std::uint32_t& id,
                       const char*& kept_name);
  void declare_scratch(std::string_view name, DType type, std::span<const Index> extents,
                       std::uint32_t& id, const char*& kept_name);
  Trace run_erased(detail::Body body);
  Trace check_erased(detail::Body body, const CheckOptions& options);
  GridCost cost_erased(const detail::Body* body);

  std::uint32_t id_;
  std::unique_ptr<detail::Program> program_;
};

}  // namespace kref
