// SPDX-License-Identifier: Apache-2.0
#include "sharding/value_rules.h"

namespace kref::detail {

ValueState result_state(Arithmetic rule, std::string_view operation,
                        std::span<const ValueState> operands, const Graph& graph) {
  if (!graph.checked()) return operands[0];
  const std::vector<ArithmeticOperand> all(operands.begin(), operands.end());
  return arithmetic_state(rule, operation, all, graph.mesh());
}

ValueState scaled_state(const Value& x) {
  if (!x.graph().checked()) return x.state();
  const ArithmeticOperand operands[] = {x.state(), {ValueState(x.mesh()), true}};
  return arithmetic_state(Arithmetic::kMul, "mul", operands, x.mesh());
}

std::vector<Index> extents_of(const Value& x) { return {x.shape().begin(), x.shape().end()}; }

std::size_t dimension(const char* operation, const Value& x, Index d) {
  const auto rank = static_cast<Index>(x.rank());
  KREF_CHECK(d >= -rank && d < rank, operation, ": dimension ", d, " of ", x.type());
  return static_cast<std::size_t>(d < 0 ? d + rank : d);
}

Value record_linear(std::shared_ptr<const Primitive> op, const Value& x, std::vector<Index> shape,
                    CallSite where) {
  return x.graph().add(std::move(op), std::span(&x, 1), x.dtype(), std::move(shape), x.state(),
                       where);
}

}  // namespace kref::detail
