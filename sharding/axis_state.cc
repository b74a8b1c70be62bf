// SPDX-License-Identifier: Apache-2.0
#include "sharding/axis_state.h"

#include <algorithm>

#include "sharding/spelling.h"

namespace kref {
namespace {

// Every cast with the states it goes between.
constexpr struct {
  Cast cast;
  AxisState from, to;
} kCasts[] = {
    {Cast::kPvary, AxisState::kInvarying, AxisState::kVarying},
    {Cast::kPreduced, AxisState::kInvarying, AxisState::kReduced},
    {Cast::kVaryUnreducedCast, AxisState::kVarying, AxisState::kUnreduced},
    {Cast::kReducedVaryCast, AxisState::kReduced, AxisState::kVarying},
};

// JAX's words for the cast, when it does not find the state it starts from.
const char* rule_of(Cast cast) {
  switch (cast) {
    case Cast::kPvary:
      return "pvary is a invariant->variant collective";
    case Cast::kPreduced:
      return "preduced is a invariant->reduced collective";
    case Cast::kVaryUnreducedCast:
      return "vary_unreduced_cast is a Varying->Unreduced collective";
    case Cast::kReducedVaryCast:
      return "reduced_vary_cast is a Reduced->Varying collective";
  }
  return "?";
}

std::size_t bound_axis(const Mesh& mesh, const std::string& axis, std::string_view operation) {
  const std::optional<std::size_t> k = mesh.find(axis);
  KREF_CHECK(k, std::string(operation), ": found an unbound axis name '", abridged(axis),
             "'; the mesh is ", to_string(mesh));
  return *k;
}

// The axes of `mesh` that fulfil `f(k)`.
template <class F>
std::vector<std::string> axes_where(const Mesh& mesh, F&& f) {
  std::vector<std::string> out;
  for (std::size_t k = 0; k < mesh.axes().size(); ++k) {
    if (f(k)) out.push_back(mesh.axes()[k].name);
  }
  return out;
}

}  // namespace

const char* to_string(AxisState state) {
  switch (state) {
    case AxisState::kInvarying:
      return "invarying";
    case AxisState::kVarying:
      return "varying";
    case AxisState::kUnreduced:
      return "unreduced";
    case AxisState::kReduced:
      return "reduced";
  }
  return "?";
}

const char* to_string(Cast cast) {
  switch (cast) {
    case Cast::kPvary:
      return "pvary";
    case Cast::kPreduced:
      return "preduced";
    case Cast::kVaryUnreducedCast:
      return "vary_unreduced_cast";
    case Cast::kReducedVaryCast:
      return "reduced_vary_cast";
  }
  return "?";
}

ValueState::ValueState(const Mesh& mesh, const StateSets& sets) : ValueState(mesh) {
  const auto set = [&](const std::vector<std::string>& names, AxisState state) {
    for (const std::string& name : names) {
      AxisState& axis = axes[mesh.index(name)];
      KREF_CHECK(axis == AxisState::kInvarying, "state of a value: axis '", name, "' is both ",
                 to_string(axis), " and ", to_string(state));
      axis = state;
    }
  };
  set(sets.varying, AxisState::kVarying);
  set(sets.unreduced, AxisState::kUnreduced);
  set(sets.reduced, AxisState::kReduced);
  if (!sets.unreduced.empty()) kind = sets.kind;
}

bool ValueState::any(AxisState state) const {
  return std::find(axes.begin(), axes.end(), state) != axes.end();
}

std::vector<std::string> ValueState::in(AxisState state, const Mesh& mesh) const {
  KREF_DCHECK(axes.size() == mesh.axes().size());
  return axes_where(mesh, [&](std::size_t k) { return axes[k] == state; });
}

std::string to_string(const ValueState& state, const Mesh& mesh) {
  constexpr struct {
    const char* letter;
    AxisState state;
  } sets[] = {
      {"V:", AxisState::kVarying}, {"U:", AxisState::kUnreduced}, {"R:", AxisState::kReduced}};
  std::string out = "{";
  for (const auto& set : sets) {
    const std::vector<std::string> axes = state.in(set.state, mesh);
    if (axes.empty()) continue;
    out += detail::cat(out.size() > 1 ? ", " : "", set.letter, axes_string(axes));
  }
  return out + "}";
}

ValueState cotangent(const ValueState& state) {
  KREF_CHECK(state.kind == UnreducedKind::kSum, "an unreduced value of kind ",
             to_string(state.kind), " has no cotangent");
  ValueState out = state;
  for (AxisState& axis : out.axes) {
    if (axis == AxisState::kUnreduced) {
      axis = AxisState::kReduced;
    } else if (axis == AxisState::kReduced) {
      axis = AxisState::kUnreduced;
    }
  }
  return out;
}

AxisState common_state(const ValueState& x, const AxisNames& axes, const Mesh& mesh,
                       std::string_view operation) {
  KREF_DCHECK(!axes.names.empty());
  const AxisState first = x.axes[bound_axis(mesh, axes.names[0], operation)];
  for (const std::string& name : axes.names) {
    const AxisState state = x.axes[bound_axis(mesh, name, operation)];
    KREF_CHECK(state == first, std::string(operation),
               " can only accept axis_name which corresponds to one of varying, unreduced, reduced "
               "or invarying state of the input; axes ",
               set_string(axes.names), ": '", axes.names[0], "' is ", to_string(first), ", '", name,
               "' is ", to_string(state), " (the input's state is ", to_string(x, mesh), ")");
  }
  return first;
}

std::optional<CastStep> pcast(const ValueState& x, const AxisNames& axes, AxisState to,
                              const Mesh& mesh) {
  if (axes.names.empty()) return {};
  KREF_CHECK(to != AxisState::kInvarying,
             "jax.lax.pcast: unexpected `to` value invarying, expected unreduced, reduced or "
             "varying; psum or all_gather make a value invarying");
  const AxisState from = common_state(x, axes, mesh, "jax.lax.pcast");
  for (const auto& each : kCasts) {
    if (each.from != from || each.to != to) continue;
    const auto named = [&](std::size_t k) {
      return std::find(axes.names.begin(), axes.names.end(), mesh.axes()[k].name) !=
             axes.names.end();
    };
    return CastStep{each.cast, axes_where(mesh, named)};
  }
  throw Error(detail::cat("jax.lax.pcast: Unsupported pcast from=", to_string(from),
                          ", to=", to_string(to), " along ", set_string(axes.names)));
}

ValueState apply(const CastStep& step, const ValueState& x, const Mesh& mesh) {
  const auto& cast = *std::find_if(std::begin(kCasts), std::end(kCasts),
                                   [&](const auto& each) { return each.cast == step.cast; });
  KREF_CHECK(cast.to != AxisState::kUnreduced || x.kind == UnreducedKind::kSum,
             to_string(step.cast), ": the input is unreduced along other axes with kind ",
             to_string(x.kind));
  ValueState out = x;
  for (const std::string& name : step.axes) {
    AxisState& state = out.axes[bound_axis(mesh, name, to_string(step.cast))];
    KREF_CHECK(state == cast.from, rule_of(step.cast), ": the input must be ", to_string(cast.from),
               " along the axes ", set_string(step.axes), ", but '", name, "' is ",
               to_string(state), " (the input's state is ", to_string(x, mesh), ")");
    state = cast.to;
  }
  return out;
}

Promotion promote(std::string_view operation, std::span<const ValueState> operands,
                  const Mesh& mesh, bool auto_pcast) {
  const auto varies = [&](std::size_t k) {
    return std::any_of(operands.begin(), operands.end(), [&](const ValueState& operand) {
      return operand.axes[k] == AxisState::kVarying;
    });
  };
  const auto all_states = [&] {
    std::string out;
    for (const ValueState& operand : operands) {
      out += detail::cat(out.empty() ? "" : ", ", to_string(operand, mesh));
    }
    return out;
  };
  Promotion out;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const ValueState& operand = operands[i];
    const auto lacking = [&](AxisState state) {
      return axes_where(mesh, [&](std::size_t k) { return operand.axes[k] == state && varies(k); });
    };
    const std::vector<std::string> unreduced = lacking(AxisState::kUnreduced);
    KREF_CHECK(unreduced.empty(), std::string(operation), ": operand ", i, " is unreduced along ",
               set_string(unreduced),
               ", where another operand varies: pvary cannot accept args which are unreduced "
               "(states ",
               all_states(), ")");
    std::vector<CastStep> casts;
    for (const Cast cast : {Cast::kPvary, Cast::kReducedVaryCast}) {
      const bool invarying = cast == Cast::kPvary;
      std::vector<std::string> axes =
          lacking(invarying ? AxisState::kInvarying : AxisState::kReduced);
      if (!axes.empty()) casts.push_back({cast, std::move(axes)});
    }
    KREF_CHECK(auto_pcast || casts.empty(), "Primitive ", std::string(operation),
               " requires varying manual axes to match, but operand ", i, " does not vary along ",
               set_string(casts[0].axes), " (states ", all_states(), ")");
    out.operands.push_back(operand);
    for (const CastStep& step : casts) out.operands.back() = apply(step, out.operands.back(), mesh);
    out.casts.push_back(std::move(casts));
  }
  return out;
}

}  // namespace kref
