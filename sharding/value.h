// SPDX-License-Identifier: Apache-2.0
// Value: what a typed body computes with: an array of one device whose type is known before any
// device runs: element type, local shape, state along each mesh axis (jax's avals under
// shard_map(check_vma=True)).
//
// A typed body is called once, without data: its operations are checked and recorded, then the
// devices run what was recorded. So loops of C++ unroll, and a condition cannot depend on data.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/array.h"
#include "sharding/axis_state.h"
#include "sharding/call_site.h"
#include "sharding/collectives.h"

namespace kref {

namespace detail {
class Graph;
class Primitive;
}  // namespace detail

// A handle; copies are the same value. Belongs to one call of a body; of no use afterwards.
class Value {
 public:
  Value() = default;
  Value(detail::Graph& graph, Index node);

  // Error of a Value that no operation gave or whose call has ended, as for all that follows.
  DType dtype() const;
  std::span<const Index> shape() const;  // of one device
  Index extent(std::size_t d) const { return shape()[d]; }
  std::size_t rank() const { return shape().size(); }
  Index size() const;
  ValueState state() const;
  const Mesh& mesh() const;
  // "f32[2,2]{V:(i,j)}".
  std::string type() const;

  // For the implementation of operations.
  detail::Graph& graph() const;
  bool belongs_to(const detail::Graph& graph) const { return graph_.lock().get() == &graph; }
  Index node() const { return node_; }

 private:
  std::weak_ptr<detail::Graph> graph_;  // which ends with the call
  Index node_ = -1;
};

// What a typed body is handed first: the source of values that come from no argument.
class Tracer {
 public:
  explicit Tracer(detail::Graph& graph);

  // Error of all that follows when the call has ended.
  const Mesh& mesh() const;
  Index axis_size(const AxisNames& axes) const { return kref::axis_size(mesh(), axes); }
  // The same array on every device: invarying.
  Value constant(const Array& array, CallSite where = CallSite::here()) const;
  Value zeros(DType dtype, const std::vector<Index>& shape,
              CallSite where = CallSite::here()) const;
  // jax.lax.axis_index: s32 scalar, varying along the axes.
  Value axis_index(const AxisNames& axes, CallSite where = CallSite::here()) const;

  // For the implementation of operations.
  detail::Graph& graph() const;

 private:
  std::weak_ptr<detail::Graph> graph_;  // as a Value's
};

// ---- Arithmetic, element by element
// Shapes are equal, or one is a scalar's. Operands of different states are brought to one
// (axis_state.h, promote); what unreduced and reduced ones may be combined with:
// arithmetic_rules.h.
Value add(const Value& a, const Value& b, CallSite where = CallSite::here());
Value sub(const Value& a, const Value& b, CallSite where = CallSite::here());
Value mul(const Value& a, const Value& b, CallSite where = CallSite::here());
Value div(const Value& a, const Value& b, CallSite where = CallSite::here());
inline Value operator+(const Value& a, const Value& b) { return add(a, b, {}); }
inline Value operator-(const Value& a, const Value& b) { return sub(a, b, {}); }
inline Value operator*(const Value& a, const Value& b) { return mul(a, b, {}); }
inline Value operator/(const Value& a, const Value& b) { return div(a, b, {}); }
// By a number, which has no state of its own. Error for an unreduced x (the number would have to be
// reduced).
Value scale(const Value& x, double factor, CallSite where = CallSite::here());
inline Value operator*(const Value& x, double factor) { return scale(x, factor, {}); }
inline Value operator*(double factor, const Value& x) { return scale(x, factor, {}); }
Value neg(const Value& x, CallSite where = CallSite::here());
inline Value operator-(const Value& x) { return neg(x, {}); }
Value sin(const Value& x, CallSite where = CallSite::here());
Value cos(const Value& x, CallSite where = CallSite::here());
Value exp(const Value& x, CallSite where = CallSite::here());
Value log(const Value& x, CallSite where = CallSite::here());
Value tanh(const Value& x, CallSite where = CallSite::here());
// To another element type, rounded once.
Value convert(const Value& x, DType dtype, CallSite where = CallSite::here());

// ---- Shapes
// Dimensions may be negative: they count from the end.
Value reshape(const Value& x, const std::vector<Index>& shape, CallSite where = CallSite::here());
Value transpose(const Value& x, const std::vector<Index>& permutation,
                CallSite where = CallSite::here());
// Elements start .. limit - 1 of each dimension.
Value slice(const Value& x, const std::vector<Index>& start, const std::vector<Index>& limit,
            CallSite where = CallSite::here());
// Zeros around x: `low` before and `high` after it in each dimension.
Value pad(const Value& x, const std::vector<Index>& low, const std::vector<Index>& high,
          CallSite where = CallSite::here());
Value concatenate(const std::vector<Value>& parts, Index dimension,
                  CallSite where = CallSite::here());
// numpy.broadcast_to: aligned at the last dimension; extents of 1 are repeated.
Value broadcast_to(const Value& x, const std::vector<Index>& shape,
                   CallSite where = CallSite::here());
// Over some dimensions, which are dropped; over all of them. f32 sums for narrower floats. Error
// for an x that is unreduced of kind max or min, as for neg.
Value sum(const Value& x, const std::vector<Index>& dimensions, CallSite where = CallSite::here());
Value sum(const Value& x, CallSite where = CallSite::here());

// How `dot` reads its operands, as MatmulOptions.
struct DotValueOptions {
  bool trans_x = false;
  bool trans_y = false;
};
// The product of kernels/matmul.h: x [*B, M, K] by y [*B, K, N], or y [K, N] shared by the batch.
Value dot(const Value& x, const Value& y, const DotValueOptions& options = {},
          CallSite where = CallSite::here());

}  // namespace kref
