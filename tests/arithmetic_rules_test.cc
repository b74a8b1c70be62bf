// SPDX-License-Identifier: Apache-2.0
// Numbers in test names are those of sharding_semantics section 9.
#include "sharding/arithmetic_rules.h"

#include <doctest/doctest.h>

#include "tests/refusal.h"

namespace kref {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Mesh kMesh = Mesh::parse("x=2,y=2");

ValueState state(const StateSets& sets) { return ValueState(kMesh, sets); }
ArithmeticOperand literal() { return {ValueState(kMesh), true}; }

ValueState result(Arithmetic rule, const char* name,
                  const std::vector<ArithmeticOperand>& operands) {
  return arithmetic_state(rule, name, operands, kMesh);
}
std::string refused(Arithmetic rule, const char* name,
                    const std::vector<ArithmeticOperand>& operands) {
  return refusal([&] { result(rule, name, operands); });
}

const ValueState kPlain(kMesh);
const ValueState kU = state({.unreduced = {"x"}}), kUy = state({.unreduced = {"y"}});
const ValueState kR = state({.reduced = {"x"}}), kRy = state({.reduced = {"y"}});
const ValueState kV = state({.varying = {"x"}});
const ValueState kMax = state({.unreduced = {"x"}, .kind = UnreducedKind::kMax});
const ValueState kMin = state({.unreduced = {"x"}, .kind = UnreducedKind::kMin});

TEST_CASE("65: sums of unreduced operands") {
  CHECK(result(Arithmetic::kAdd, "add", {kU, kU}) == kU);
  CHECK(result(Arithmetic::kAdd, "add", {kR, kR}) == kR);
  CHECK(result(Arithmetic::kAdd, "add", {kV, kPlain}) == kV);
  CHECK(has(refused(Arithmetic::kAdd, "add", {kU, kUy}),
            "must be unreduced along the same mesh axes; got {U:x}, {U:y}"));
  CHECK(has(refused(Arithmetic::kAdd, "add", {kU, kPlain}), "lhs is unreduced while rhs is not"));
  CHECK(has(refused(Arithmetic::kAdd, "sub", {kPlain, kU}),
            "sub: rhs is unreduced while lhs is not"));
  CHECK(
      has(refused(Arithmetic::kAdd, "add", {kU, literal()}), "lhs is unreduced while rhs is not"));
  CHECK(has(refused(Arithmetic::kAdd, "add", {kMax, kMax}), "expected unreduced_kind=sum"));
  CHECK(has(refused(Arithmetic::kAdd, "add", {kR, kRy}), "reduced across the same mesh axes"));
}

TEST_CASE("65 and 67: products") {
  // U * R is unreduced; the cotangents are then reduced and unreduced.
  CHECK(result(Arithmetic::kMul, "mul", {kU, kR}) == kU);
  CHECK(result(Arithmetic::kMul, "mul", {kR, kU}) == kU);
  CHECK(result(Arithmetic::kMul, "mul", {kR, kR}) == kR);
  CHECK(result(Arithmetic::kMul, "mul", {kR, literal()}) == kR);
  CHECK(result(Arithmetic::kMul, "mul", {kV, kPlain}) == kV);
  CHECK(
      has(refused(Arithmetic::kMul, "mul", {kU, kU}), "cannot be unreduced since mul is bilinear"));
  const char* const rhs = "RHS should be reduced along the same axes LHS is unreduced on";
  CHECK(has(refused(Arithmetic::kMul, "mul", {kU, literal()}), rhs));
  CHECK(has(refused(Arithmetic::kMul, "mul", {kU, kPlain}), rhs));
  CHECK(has(refused(Arithmetic::kMul, "mul", {kU, kV}), rhs));
  CHECK(has(refused(Arithmetic::kMul, "mul", {kPlain, kU}),
            "LHS should be reduced along the same axes RHS is unreduced on"));
  CHECK(has(refused(Arithmetic::kMul, "mul", {kR, kPlain}), "inputs cannot be replicated"));
  CHECK(has(refused(Arithmetic::kMul, "mul", {kV, kR}), "inputs cannot be sharded/varying"));
  CHECK(has(refused(Arithmetic::kMul, "mul", {kMax, kR}), "expected unreduced_kind=sum"));
}

TEST_CASE("66: a reduced operand beside a varying one is cast first inside shard_map") {
  const Promotion p = promote("mul", std::vector{kV, kR}, kMesh);
  CHECK(p.casts[1] == std::vector<CastStep>{{Cast::kReducedVaryCast, {"x"}}});
  CHECK(result(Arithmetic::kMul, "mul", {p.operands[0], p.operands[1]}) == kV);
}

TEST_CASE("67: quotients") {
  CHECK(result(Arithmetic::kDiv, "div", {kU, kR}) == kU);
  CHECK(result(Arithmetic::kDiv, "div", {kR, literal()}) == kR);
  CHECK(has(refused(Arithmetic::kDiv, "div", {kU, kU}), "denominator cannot be unreduced"));
  CHECK(has(refused(Arithmetic::kDiv, "div", {kR, kU}), "denominator cannot be unreduced"));
  CHECK(has(refused(Arithmetic::kDiv, "div", {kU, kPlain}), "RHS should be reduced"));
}

TEST_CASE("67: what moves elements, and select") {
  for (const ValueState& each : {kU, kR, kV, kPlain, kMax, kMin}) {
    CHECK(result(Arithmetic::kMove, "transpose", {each}) == each);
    CHECK(result(Arithmetic::kMove, "concatenate", {each, each}) == each);
    CHECK(result(Arithmetic::kSelect, "select", {kPlain, each, each}) == each);
  }
  CHECK(result(Arithmetic::kSelect, "select", {kV, kPlain, kPlain}) == kV);
  CHECK(has(refused(Arithmetic::kSelect, "select", {kU, kU, kU}), "predicate cannot be unreduced"));
  CHECK(has(refused(Arithmetic::kSelect, "select", {kPlain, kU, kPlain}),
            "lhs is unreduced while rhs is not"));
  CHECK(has(refused(Arithmetic::kMove, "concatenate", {kPlain, kU, kU}),
            "operand 1 is unreduced while operand 0 is not"));
  CHECK(has(refused(Arithmetic::kMove, "concatenate", {kMax, kMin}), "with the same kind"));
  CHECK(has(refused(Arithmetic::kMove, "concatenate", {kMax, kU}), "with the same kind"));
}

TEST_CASE("56: what is not linear takes no unreduced operand") {
  CHECK(result(Arithmetic::kNonlinear, "sin", {kR}) == kR);
  CHECK(result(Arithmetic::kNonlinear, "sin", {kV}) == kV);
  CHECK(has(refused(Arithmetic::kNonlinear, "sin", {kU}),
            "unreduced rule for sin is not implemented"));
  CHECK(has(refused(Arithmetic::kNonlinear, "exp", {kMax}), "unreduced rule for exp"));
  CHECK(has(refused(Arithmetic::kDot, "dot_general", {kU, kPlain}),
            "lhs or rhs passed to dot_general cannot be unreduced"));
}

TEST_CASE("63: reductions over dimensions and the kinds of unreduced operands") {
  CHECK(result(Arithmetic::kReduceSum, "reduce_sum", {kU}) == kU);
  CHECK(result(Arithmetic::kReduceMax, "reduce_max", {kMax}) == kMax);
  CHECK(result(Arithmetic::kReduceMin, "reduce_min", {kMin}) == kMin);
  for (const Arithmetic rule : {Arithmetic::kReduceMax, Arithmetic::kReduceMin}) {
    CHECK(has(refused(rule, "reduce", {kU}), "expected unreduced_kind=m"));
    CHECK(result(rule, "reduce", {kR}) == kR);
  }
  CHECK(has(refused(Arithmetic::kReduceSum, "reduce_sum", {kMax}),
            "expected unreduced_kind=sum, found max"));
  CHECK(has(refused(Arithmetic::kReduceMax, "reduce_max", {kMin}),
            "expected unreduced_kind=max, found min"));
}

}  // namespace
}  // namespace kref
