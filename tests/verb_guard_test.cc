// SPDX-License-Identifier: Apache-2.0
// No verb touches a byte outside its operands: every verb, element type, SIMD target and remainder,
// at guard pages (guarded.h).
#include <doctest/doctest.h>

#include <vector>

#include "kernels/dot.h"
#include "kernels/tile_ops.h"
#include "tests/guarded.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

using namespace detail;
using guarded::Operand;
using guarded::Tester;

const char* const kUnary[] = {"neg", "abs", "exp", "exp2", "log", "tanh"};
const char* const kBinary[] = {"add", "sub", "mul", "div", "maximum", "minimum"};
const char* const kCompare[] = {"equal", "less", "less_equal"};
const char* const kReduction[] = {"row_sum", "row_max", "row_min"};

// Every remainder of the vectors there are (up to 64 bytes), and some whole ones before it.
const std::vector<Index>& widths() {
  static const std::vector<Index> all = [] {
    std::vector<Index> w;
    for (Index n = 1; n <= 20; ++n) w.push_back(n);
    for (const Index n : {0, 31, 32, 33, 47, 63, 64, 65, 79, 127, 130}) w.push_back(n);
    return w;
  }();
  return all;
}

template <class F>
void for_each_type(F&& f) {
  for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) f(static_cast<DType>(t));
}
bool has_arithmetic(DType type) {
  return is_integer(type) || (is_float(type) && size_of(type) > 1);
}

TEST_CASE("moving: fill, copy, cast, select") {
  for_each_target([] {
    Tester test;
    for (const Index n : widths()) {
      for_each_type([&](DType type) {
        const Operand whole{type, 3, n}, column{type, 3, 1}, row{type, 1, n};
        test("fill", {whole}, [](const ArrayRef*, const MutableArrayRef& out) {
          const double one[] = {1};  // any bytes will do
          fill(out, one);
        });
        for (const Operand& x : {whole, column, row}) {
          test("copy", {x, whole},
               [](const ArrayRef* in, const MutableArrayRef& out) { copy(in[0], out); });
          test("select", {{DType::kBool, 3, n}, x, whole, whole},
               [](const ArrayRef* in, const MutableArrayRef& out) {
                 select(in[0], in[1], in[2], out);
               });
        }
        test("select", {{DType::kBool, 3, 1}, whole, row, whole},
             [](const ArrayRef* in, const MutableArrayRef& out) {
               select(in[0], in[1], in[2], out);
             });
        for_each_type([&](DType to) {
          for (const Overflow overflow : {Overflow::kDefault, Overflow::kSaturate}) {
            if (overflow == Overflow::kSaturate && (!is_float(to) || size_of(to) > 2)) continue;
            const auto verb = [=](const ArrayRef* in, const MutableArrayRef& out) {
              cast(in[0], out, overflow);
            };
            test("cast", {whole, {to, 3, n}}, verb);
            if (n % 8 == 1) test("cast", {column, {to, 3, n}}, verb);
          }
        });
      });
    }
    CHECK(test.count > 5000);
  });
}

TEST_CASE("arithmetic and comparisons") {
  for_each_target([] {
    Tester test;
    for (const Index n : widths()) {
      for_each_type([&](DType type) {
        if (!has_arithmetic(type)) return;
        const Operand whole{type, 3, n}, column{type, 3, 1}, row{type, 1, n}, number{type, 1, 1};
        for (int op = 0; op <= static_cast<int>(Unary::kTanh); ++op) {
          if (op >= static_cast<int>(Unary::kExp) && !is_float(type)) continue;
          if (op >= static_cast<int>(Unary::kLog) && type == DType::kF64) continue;
          test(kUnary[op], {whole, whole}, [op](const ArrayRef* in, const MutableArrayRef& out) {
            unary(static_cast<Unary>(op), in[0], out);
          });
        }
        for (int op = 0; op <= static_cast<int>(Binary::kMinimum); ++op) {
          if (op == static_cast<int>(Binary::kDiv) && !is_float(type)) continue;
          const auto verb = [op](const ArrayRef* in, const MutableArrayRef& out) {
            binary(static_cast<Binary>(op), in[0], in[1], out);
          };
          test(kBinary[op], {whole, whole, whole}, verb);
          test(kBinary[op], {column, whole, whole}, verb);
          test(kBinary[op], {whole, row, whole}, verb);
          test(kBinary[op], {row, column, whole}, verb);
        }
        const auto fused = [](const ArrayRef* in, const MutableArrayRef& out) {
          mul_add(in[0], in[1], in[2], out);
        };
        test("mul_add", {whole, whole, whole, whole}, fused);
        test("mul_add", {number, column, whole, whole}, fused);
        test("mul_add", {whole, row, number, whole}, fused);
        for (int op = 0; op <= static_cast<int>(Compare::kLessEqual); ++op) {
          const auto verb = [op](const ArrayRef* in, const MutableArrayRef& out) {
            compare(static_cast<Compare>(op), in[0], in[1], out);
          };
          const Operand out{DType::kBool, 3, n};
          test(kCompare[op], {whole, whole, out}, verb);
          test(kCompare[op], {whole, column, out}, verb);
        }
      });
    }
    CHECK(test.count > 10000);
  });
}

TEST_CASE("reductions of rows") {
  for_each_target([] {
    Tester test;
    for (const Index n : widths()) {
      for_each_type([&](DType type) {
        if (!has_arithmetic(type)) return;
        for (int op = 0; op <= static_cast<int>(Reduction::kMin); ++op) {
          if (n == 0 && op != static_cast<int>(Reduction::kSum)) continue;
          std::vector<DType> results = {type};
          if (is_float(type) && size_of(type) == 2) results.push_back(DType::kF32);
          if (is_integer(type) && size_of(type) < 4 && op == static_cast<int>(Reduction::kSum))
            results.push_back(DType::kI32);
          for (const DType to : results) {
            for (const Index rows : {1, 5}) {
              test(kReduction[op], {{type, rows, n}, {to, rows, 1}},
                   [op](const ArrayRef* in, const MutableArrayRef& out) {
                     reduce_rows(static_cast<Reduction>(op), in[0], out);
                   });
            }
          }
        }
      });
    }
    CHECK(test.count > 1000);
  });
}

void test_dot(Tester& test, DType type, Index m, Index n, Index k) {
  for (const bool trans_x : {false, true}) {
    for (const bool trans_y : {false, true}) {
      for (const Precision precision : kPrecisions) {
        if (precision != Precision::kF32 && type != DType::kF32) continue;
        if (precision == Precision::kBF16) continue;  // as the others, with fewer parts
        CAPTURE(trans_x);
        CAPTURE(trans_y);
        CAPTURE(static_cast<int>(precision));
        const Operand x = trans_x ? Operand{type, k, m} : Operand{type, m, k};
        const Operand y = trans_y ? Operand{type, n, k} : Operand{type, k, n};
        for (const bool from_zero : {false, true}) {
          test(
              "dot_add", {x, y, {accumulator_of(type), m, n}},
              [=](const ArrayRef* in, const MutableArrayRef& out) {
                dot_add(in[0], in[1], out, {trans_x, trans_y, precision}, from_zero);
              },
              !from_zero);
        }
      }
    }
  }
}

TEST_CASE("dot_add and dot") {
  for_each_target([] {
    Tester test;
    for_each_type([&](DType type) {
      if (!has_product(type)) return;
      for (const Index m : {1, 2, 5, 7, 13}) {
        for (const Index n : {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 47}) {
          for (const Index k : {0, 1, 2, 3, 5, 8, 13}) {
            test_dot(test, type, m, n, k);
          }
        }
      }
      // Long k: whole vectors along it where an operand is transposed.
      for (const Index k : {31, 32, 33, 64, 67}) test_dot(test, type, 3, 6, k);
    });
    CHECK(test.count > 1000);
  });
}

}  // namespace
}  // namespace kref
