// SPDX-License-Identifier: Apache-2.0
#include "sharding/placement.h"

#include <algorithm>

#include "sharding/spelling.h"

namespace kref {
namespace {

// Equal as sets; neither repeats a name.
bool same_set(std::span<const std::string> a, std::span<const std::string> b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const std::string& axis) {
           return contains(b, axis);
         });
}

// Along this axis, is the array neither split nor a term nor reduced?
bool is_replicated(const Placement& placement, const std::string& axis) {
  return !placement.spec.names(axis) && !contains(placement.unreduced, axis) &&
         !contains(placement.reduced, axis);
}

}  // namespace

const char* to_string(UnreducedKind kind) {
  switch (kind) {
    case UnreducedKind::kSum:
      return "sum";
    case UnreducedKind::kMax:
      return "max";
    case UnreducedKind::kMin:
      return "min";
  }
  return "?";
}

bool Placement::operator==(const Placement& other) const {
  return spec == other.spec && kind == other.kind && same_set(unreduced, other.unreduced) &&
         same_set(reduced, other.reduced);
}

void check_placement(const Placement& placement, std::span<const Index> shape, const Mesh& mesh,
                     std::string_view operand) {
  check_spec(OutSpec{placement.spec, placement.unreduced}, shape, mesh, operand);
  const std::string subject = detail::cat(std::string(operand), ": spec ", to_string(placement));
  KREF_CHECK(placement.kind == UnreducedKind::kSum || !placement.unreduced.empty(), subject,
             " has an unreduced_kind, but no unreduced axis");
  detail::check_axis_set("reduced", placement.reduced, placement.spec, mesh, subject);
  for (const std::string& axis : placement.reduced) {
    KREF_CHECK(!contains(placement.unreduced, axis), subject, " has the axis '", axis,
               "' both unreduced and reduced: they cannot overlap");
  }
}

bool is_fully_replicated(const Placement& placement, const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.axes()) {
    if (contains(placement.unreduced, axis.name)) return false;
    if (axis.size > 1 && placement.spec.names(axis.name)) return false;
  }
  return true;
}

std::vector<std::string> replicated_axes(const Placement& placement, const Mesh& mesh) {
  std::vector<std::string> out;
  for (const MeshAxis& axis : mesh.axes()) {
    if (is_replicated(placement, axis.name)) out.push_back(axis.name);
  }
  return out;
}

Placement cotangent(const Placement& placement) {
  KREF_CHECK(placement.kind == UnreducedKind::kSum, "spec ", to_string(placement),
             ": an unreduced value of kind ", to_string(placement.kind), " has no cotangent");
  return Placement(placement.spec,
                   {.unreduced = placement.reduced, .reduced = placement.unreduced});
}

}  // namespace kref
