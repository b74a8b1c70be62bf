// SPDX-License-Identifier: Apache-2.0
// Which operations may meet unreduced and reduced operands, and how results of operations on whole
// sharded arrays are sharded: JAX's rules for meshes of Explicit axes
// (sharding_semantics 1.7, 3.2).
//
// Types only: no function here moves or computes anything. Where a result needs data to move (a
// contraction that is gathered, a merged dimension) XLA would insert that.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/axis_state.h"

namespace kref {

// Operations that type alike.
enum class Arithmetic {
  kAdd,        // add, sub: linear in their operands together
  kMul,        // linear in each operand
  kDiv,        // linear in the numerator
  kDot,        // dot_general
  kMove,       // transpose, reshape, slice, squeeze, broadcast, concat, split, convert
  kSelect,     // select(predicate, cases...)
  kReduceSum,  // over dimensions of one operand, as are the next two
  kReduceMax,
  kReduceMin,
  kNonlinear,  // everything else: sin, exp, max, comparisons
};

// An operand as its state shows. A literal is a number of the program text (a Python scalar): it
// takes on what an operand beside it needs, but for being unreduced.
struct ArithmeticOperand {
  ValueState state;
  bool literal = false;

  ArithmeticOperand(ValueState s, bool is_literal = false)
      : state(std::move(s)), literal(is_literal) {}
};

// State of the result; for operands of one varying set inside a shard_map (see promote), and for
// whole arrays with the axes that split them as varying (see input_state). Errors name `operation`
// and say, by JAX's words, which operand may not be unreduced or reduced beside which:
//   kAdd, kMove, kSelect (but its predicate): all unreduced along the same axes, or none
//   kMul: one at most, the other reduced along the same axes
//   kDiv: the numerator at most, the denominator reduced along the same axes
//   kDot, kNonlinear: none
//   kReduceSum takes sums, kReduceMax and kReduceMin what is unreduced of that kind; kMove and
//   kSelect all kinds; the others only sums
//   reduced operands: all along the same axes, where no other operand may be replicated; nor
//   varying, but for kDot, which gives a varying result there
ValueState arithmetic_state(Arithmetic rule, std::string_view operation,
                            std::span<const ArithmeticOperand> operands, const Mesh& mesh);

// A whole array as its type shows.
struct GlobalType {
  DType dtype = DType::kF32;
  std::vector<Index> shape;
  Placement placement;
  bool literal = false;  // a Python scalar, see ArithmeticOperand: the rest says nothing

  bool operator==(const GlobalType&) const = default;
};
// type_string of it: "f32[8@X,4]{U:Y}".
std::string to_string(const GlobalType& type, const Mesh& mesh);

// The functions below check their operands as check_placement does. A result has the element type
// of the first operand that is no literal; elementwise_type alone takes literals.

// An operation on arrays of one rank, elementwise, extents of 1 broadcast: a dimension is split as
// in the operands, which split it equally or not at all. Error for two ways ("incompatible
// shardings"), for a mesh axis that would split two dimensions of the result ("illegally sharded
// result"), and as arithmetic_state, shapes that do not fit.
GlobalType elementwise_type(Arithmetic rule, std::string_view operation,
                            std::span<const GlobalType> operands, const Mesh& mesh);

// dimension_numbers of jax.lax.dot_general.
struct DotDims {
  std::vector<std::size_t> lhs_contracting, rhs_contracting;
  std::vector<std::size_t> lhs_batch = {}, rhs_batch = {};
};
// The result has the batch dimensions, then the free ones of lhs, then those of rhs, split as they
// were; a contraction that one side alone splits is gathered. Error, in this order:
// - an unreduced operand; reduced ones as arithmetic_state;
// - batch dimensions that are not split equally;
// - without out_sharding: a contracting dimension that both sides split ("ambiguous"), a mesh axis
//   on two dimensions of the result ("illegally sharded result");
// - out_sharding with unreduced axes: contracting dimensions that are not "sharded identically",
//   unreduced axes that are not "equal to the contracting specs", a kind other than the sum.
GlobalType dot_general_type(const GlobalType& lhs, const GlobalType& rhs, const DotDims& dims,
                            const Mesh& mesh, const std::optional<Placement>& out_sharding = {});

// A reduction (kReduceSum, kReduceMax, kReduceMin) over `dims`. Error as arithmetic_state; for an
// out_sharding whose unreduced axes did not split a dimension that is reduced (and are not the
// operand's own), or that has another kind than the reduction.
GlobalType reduce_type(Arithmetic rule, const GlobalType& operand,
                       std::span<const std::size_t> dims, const Mesh& mesh,
                       const std::optional<Placement>& out_sharding = {});

// A reshape keeps the splits of dimensions that stay. One split dimension may become several, its
// axes are handed out first major; several may become one where the split ones come first. Extents
// of 1 are looked through. Error ("This reshape is not supported") for anything else that splits a
// dimension, for sizes that the axes do not divide.
GlobalType reshape_type(const GlobalType& operand, std::span<const Index> new_sizes,
                        const Mesh& mesh);

}  // namespace kref
