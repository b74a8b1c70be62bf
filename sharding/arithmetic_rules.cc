// SPDX-License-Identifier: Apache-2.0
// Unreduced and reduced operands of one operation: rules per mesh axis.
#include "sharding/arithmetic_rules.h"

#include <algorithm>

namespace kref {
namespace {

using Operands = std::span<const ArithmeticOperand>;

// One operation being typed; `operands` are those that carry data (not a predicate).
class Typing {
 public:
  Typing(std::string_view operation, Operands operands, const Mesh& mesh)
      : operation_(operation), operands_(operands), mesh_(mesh) {}

  std::vector<std::string> unreduced(std::size_t i) const {
    if (operands_[i].literal) return {};
    return operands_[i].state.in(AxisState::kUnreduced, mesh_);
  }
  std::vector<std::string> reduced(std::size_t i) const {
    if (operands_[i].literal) return {};
    return operands_[i].state.in(AxisState::kReduced, mesh_);
  }

  // The axes along which any operand is reduced, for which all of those agree.
  std::vector<std::string> common_reduced(bool may_vary) const {
    std::size_t first = operands_.size();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (reduced(i).empty()) continue;
      if (first == operands_.size()) first = i;
      KREF_CHECK(reduced(i) == reduced(first), operation_,
                 ": all inputs should be reduced across the same mesh axes", got());
    }
    if (first == operands_.size()) return {};
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      for (const std::string& axis : reduced(first)) {
        const AxisState state = operands_[i].state.axes[mesh_.index(axis)];
        KREF_CHECK(operands_[i].literal || state != AxisState::kInvarying, operation_,
                   ": inputs cannot be replicated on the same axes that another input is reduced "
                   "on; operand ",
                   i, " is along '", axis, "'", got());
        KREF_CHECK(may_vary || operands_[i].literal || state != AxisState::kVarying, operation_,
                   ": inputs cannot be sharded/varying on the same axes that another input is "
                   "reduced on; operand ",
                   i, " is along '", axis, "'", got());
      }
    }
    return reduced(first);
  }

  // The axes along which all operands are unreduced, in the same way.
  std::vector<std::string> common_unreduced() const {
    for (std::size_t i = 1; i < operands_.size(); ++i) {
      const bool one = unreduced(0).empty() != unreduced(i).empty();
      const std::size_t with = unreduced(0).empty() ? i : 0;
      KREF_CHECK(!one, operation_, ": ", side(with), " is unreduced while ", side(i - with),
                 " is not; this would need an implicit reduction", got());
      KREF_CHECK(unreduced(i) == unreduced(0), operation_,
                 ": operands must be unreduced along the same mesh axes", got());
      KREF_CHECK(unreduced(0).empty() || operands_[i].state.kind == operands_[0].state.kind,
                 operation_, ": operands must be unreduced with the same kind", got());
    }
    return unreduced(0);
  }

  // The axes along which a product is unreduced: those of one operand, along which the other is
  // reduced.
  std::vector<std::string> product_unreduced() const {
    KREF_DCHECK(operands_.size() == 2);
    KREF_CHECK(unreduced(0).empty() || unreduced(1).empty(), operation_,
               ": lhs and rhs cannot be unreduced since mul is bilinear", got());
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      if (unreduced(i).empty()) continue;
      KREF_CHECK(reduced(1 - i) == unreduced(i), operation_, ": ", i == 0 ? "RHS" : "LHS",
                 " should be reduced along the same axes ", i == 0 ? "LHS" : "RHS",
                 " is unreduced on", got());
      return unreduced(i);
    }
    return {};
  }

  void check_kind(UnreducedKind kind) const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      KREF_CHECK(unreduced(i).empty() || operands_[i].state.kind == kind, operation_,
                 ": expected unreduced_kind=", to_string(kind), ", found ",
                 to_string(operands_[i].state.kind), got());
    }
  }
  void check_none_unreduced(const char* rule) const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      KREF_CHECK(unreduced(i).empty(), rule, got());
    }
  }

  // "; got {U:x}, a literal".
  std::string got() const {
    std::string out;
    for (const ArithmeticOperand& operand : operands_) {
      out += out.empty() ? "; got " : ", ";
      out += operand.literal ? "a literal" : to_string(operand.state, mesh_);
    }
    return out;
  }

 private:
  std::string side(std::size_t i) const {
    if (operands_.size() == 2) return i == 0 ? "lhs" : "rhs";
    return detail::cat("operand ", i);
  }

  std::string operation_;
  Operands operands_;
  const Mesh& mesh_;
};

}  // namespace

ValueState arithmetic_state(Arithmetic rule, std::string_view operation, Operands operands,
                            const Mesh& mesh) {
  const std::string name(operation);
  Operands data = operands;
  if (rule == Arithmetic::kSelect) {
    KREF_DCHECK(!operands.empty());
    const Typing predicate(operation, operands.first(1), mesh);
    KREF_CHECK(predicate.unreduced(0).empty(), name, ": the predicate cannot be unreduced",
               predicate.got());
    data = operands.subspan(1);
  }
  const Typing typing(operation, data, mesh);
  std::vector<std::string> reduced = typing.common_reduced(rule == Arithmetic::kDot);
  std::vector<std::string> unreduced;
  UnreducedKind kind = UnreducedKind::kSum;
  switch (rule) {
    case Arithmetic::kAdd:
      typing.check_kind(kind);
      unreduced = typing.common_unreduced();
      break;
    case Arithmetic::kMove:
    case Arithmetic::kSelect:
      if (data.empty()) break;
      unreduced = typing.common_unreduced();
      kind = data[0].state.kind;
      break;
    case Arithmetic::kDiv:
      KREF_CHECK(typing.unreduced(1).empty(), name, ": the denominator cannot be unreduced",
                 typing.got());
      [[fallthrough]];
    case Arithmetic::kMul:
      typing.check_kind(kind);
      unreduced = typing.product_unreduced();
      if (!unreduced.empty()) reduced.clear();  // they are the same axes
      break;
    case Arithmetic::kDot:
      typing.check_none_unreduced("lhs or rhs passed to dot_general cannot be unreduced");
      break;
    case Arithmetic::kReduceSum:
      typing.check_kind(kind);
      unreduced = typing.unreduced(0);
      break;
    case Arithmetic::kReduceMax:
    case Arithmetic::kReduceMin:
      kind = rule == Arithmetic::kReduceMax ? UnreducedKind::kMax : UnreducedKind::kMin;
      typing.check_kind(kind);
      unreduced = typing.unreduced(0);
      break;
    case Arithmetic::kNonlinear:
      typing.check_none_unreduced(
          detail::cat("unreduced rule for ", name, " is not implemented").c_str());
      break;
  }

  StateSets sets{.unreduced = unreduced, .kind = kind};
  for (const MeshAxis& axis : mesh.axes()) {
    const std::size_t k = mesh.index(axis.name);
    const bool varies = std::any_of(operands.begin(), operands.end(), [&](const auto& operand) {
      return !operand.literal && operand.state.axes[k] == AxisState::kVarying;
    });
    const bool is_reduced = std::find(reduced.begin(), reduced.end(), axis.name) != reduced.end();
    if (varies) {
      sets.varying.push_back(axis.name);
    } else if (is_reduced) {
      sets.reduced.push_back(axis.name);
    }
  }
  return ValueState(mesh, sets);
}

}  // namespace kref
