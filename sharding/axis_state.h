// SPDX-License-Identifier: Apache-2.0
// What a value inside a shard_map body is along each mesh axis (JAX's varying manual axes,
// check_vma=True), and what casts, operations and the boundary do to that (sharding_semantics 1.6).
//
// Types only: no function here moves or computes anything.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement.h"
#include "sharding/replica_groups.h"

namespace kref {

// Invarying and reduced values are stored alike (all devices along the axis hold the same), and so
// are varying and unreduced ones; legality and cotangents tell them apart.
enum class AxisState : unsigned char {
  kInvarying,  // all devices along the axis hold the same value
  kVarying,    // they may differ
  kUnreduced,  // each holds a term; the value is their sum (or max, or min)
  kReduced,    // all hold the same value, and its cotangent is unreduced
};
// "invarying", "varying", "unreduced", "reduced".
const char* to_string(AxisState state);

// The axes in each state, for writing a ValueState down; those not named are invarying.
struct StateSets {
  std::vector<std::string> varying = {}, unreduced = {}, reduced = {};
  UnreducedKind kind = UnreducedKind::kSum;
};

// One state a mesh axis.
struct ValueState {
  std::vector<AxisState> axes;               // in mesh order
  UnreducedKind kind = UnreducedKind::kSum;  // kSum unless an axis is unreduced

  ValueState() = default;
  // Invarying everywhere, as fresh constants are.
  explicit ValueState(const Mesh& mesh) : axes(mesh.axes().size(), AxisState::kInvarying) {}
  // Error for an axis that the mesh lacks or that is named twice.
  ValueState(const Mesh& mesh, const StateSets& sets);

  // Is any axis in this state?
  bool any(AxisState state) const;
  // The names of the axes in this state, in mesh order.
  std::vector<std::string> in(AxisState state, const Mesh& mesh) const;

  bool operator==(const ValueState&) const = default;
};

// As JAX prints it after a type: "{V:(i,j), U:x, R:y}"; "{}" when all is invarying.
std::string to_string(const ValueState& state, const Mesh& mesh);
// "f32[2,2]{V:(i,j)}", "f32[2,2]": a value of this local shape.
std::string type_string(DType dtype, std::span<const Index> local_shape, const ValueState& state,
                        const Mesh& mesh);

// State of the cotangent: varying and invarying stay, reduced <-> unreduced. Error for an unreduced
// value of kind max or min, which has none.
ValueState cotangent(const ValueState& state);

// The casts of jax.lax.pcast; none of them moves anything.
enum class Cast {
  kPvary,              // invarying -> varying; transposes to psum
  kPreduced,           // invarying -> reduced; transposes to psum of an unreduced value
  kVaryUnreducedCast,  // varying -> unreduced
  kReducedVaryCast,    // reduced -> varying; the transpose of the one before
};
// "pvary", "preduced", "vary_unreduced_cast", "reduced_vary_cast".
const char* to_string(Cast cast);

// A value cast along some axes, and what it is then.
struct CastStep {
  Cast cast;
  std::vector<std::string> axes;  // in mesh order
  bool operator==(const CastStep&) const = default;
};

// The state that all of `axes` are in. `operation` ("jax.lax.psum") is named in the Error for axes
// in different states ("can only accept axis_name which corresponds to one of ...") and for a name
// that the mesh lacks ("unbound axis name"). `axes` must not be empty.
AxisState common_state(const ValueState& x, const AxisNames& axes, const Mesh& mesh,
                       std::string_view operation);

// jax.lax.pcast(x, axes, to=...): which cast it is, nothing when no axis is named. Error: axes in
// different states; "Unsupported pcast" for every pair but the four of Cast; `to` invarying.
std::optional<CastStep> pcast(const ValueState& x, const AxisNames& axes, AxisState to,
                              const Mesh& mesh);
// The state after a cast. Error when an axis is not in the state that the cast starts from: "pvary
// is a invariant->variant collective" and the like.
ValueState apply(const CastStep& step, const ValueState& x, const Mesh& mesh);

// What brings the operands of an n-ary operation to one varying set.
struct Promotion {
  std::vector<std::vector<CastStep>> casts;  // of each operand, in order; mostly empty
  std::vector<ValueState> operands;          // after the casts
  bool operator==(const Promotion&) const = default;
};
// Casts every operand along the axes that vary in another one: pvary where it is invarying,
// reduced_vary_cast where it is reduced. Error, naming operation and states, where it is unreduced
// there, and without auto_pcast for every difference ("requires varying manual axes to match").
// What unreduced and reduced operands may then be combined with is for arithmetic_rules.h.
Promotion promote(std::string_view operation, std::span<const ValueState> operands,
                  const Mesh& mesh, bool auto_pcast = true);

// The state in which a body gets an argument: varying along the axes that split it, unreduced and
// reduced as the spec says, else invarying.
ValueState input_state(const Placement& in_spec, const Mesh& mesh);

// How a body's value fits an out_spec: gives the axes along which it is pvary'ed silently, as the
// spec splits an invarying value over them. Error, naming `operand` ("out_specs[0]"):
// - varying along an axis that the spec does not name: "statically inferred", "require
//   replication", with what varies, what the spec names, what is missing;
// - unreduced or reduced axes that are not exactly those of the spec, or of another kind.
std::vector<CastStep> output_casts(const ValueState& value, const Placement& out_spec,
                                   const Mesh& mesh, std::string_view operand);

}  // namespace kref
