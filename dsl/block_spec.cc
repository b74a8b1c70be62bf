// SPDX-License-Identifier: Apache-2.0
#include "dsl/block_spec.h"

#include <algorithm>

namespace kref {

void AxisExpr::enter(int stage, char op, Index operand) {
  // The same sign twice is refused as well: i % 6 % 4 is not i % 4, and who wrote it should say
  // what was meant. Sums are the exception.
  KREF_CHECK(stage > stage_ || stage == 4, "index map: ", op, ' ', operand, " after ", text(),
             ": an axis expression is axis / d % m * s + o, each part once and in this order");
  KREF_CHECK(operand > 0 || stage > 2, "index map: ", text(), ' ', op, ' ', operand,
             ": expected a constant above 0");
  stage_ = stage;
}

AxisExpr operator/(AxisExpr e, Index d) {
  e.enter(1, '/', d);
  if (e.constant()) return AxisExpr(e.add_ / d);
  e.div_ = d;
  return e;
}

AxisExpr operator%(AxisExpr e, Index m) {
  e.enter(2, '%', m);
  if (e.constant()) return AxisExpr(e.add_ % m);
  e.mod_ = m;
  return e;
}

AxisExpr operator*(AxisExpr e, Index s) {
  e.enter(3, '*', s);
  Index product = 0;
  KREF_CHECK(!__builtin_mul_overflow(e.constant() ? e.add_ : Index{1}, s, &product),
             "index map: ", e.text(), " * ", s, " is too large");
  (e.constant() ? e.add_ : e.mul_) = product;
  return e;
}

AxisExpr operator+(AxisExpr e, Index o) {
  e.enter(4, '+', o);
  Index sum = 0;
  KREF_CHECK(!__builtin_add_overflow(e.add_, o, &sum), "index map: ", e.text(), " + ", o,
             " is too large");
  e.add_ = sum;
  return e;
}

bool AxisExpr::surely_within(Index size, Index limit) const {
  if (axis_ < 0) return add_ >= 0 && add_ < limit;
  // The largest argument of `*`; the smallest is 0. Conservative under %, where fewer may occur.
  Index top = (size - 1) / div_;
  if (mod_ != 0) top = std::min(top, mod_ - 1);
  Index end = 0;
  if (__builtin_mul_overflow(top, mul_, &end) || __builtin_add_overflow(end, add_, &end)) {
    return false;
  }
  return std::min(end, add_) >= 0 && std::max(end, add_) < limit;
}

bool AxisExpr::within(Index coordinate, Index limit) const {
  if (axis_ < 0) return add_ >= 0 && add_ < limit;
  Index v = coordinate / div_;
  if (mod_ != 0) v %= mod_;
  return !__builtin_mul_overflow(v, mul_, &v) && !__builtin_add_overflow(v, add_, &v) && v >= 0 &&
         v < limit;
}

std::string AxisExpr::text() const {
  if (axis_ < 0) return std::to_string(add_);
  std::string out = name_;
  if (div_ != 1) out += " / " + std::to_string(div_);
  if (mod_ != 0) out += " % " + std::to_string(mod_);
  if (mul_ != 1) out += " * " + std::to_string(mul_);
  if (add_ != 0) out += (add_ < 0 ? " - " : " + ") + std::to_string(add_).substr(add_ < 0 ? 1 : 0);
  return out;
}

}  // namespace kref
