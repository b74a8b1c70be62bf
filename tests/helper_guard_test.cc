// SPDX-License-Identifier: Apache-2.0
// No vector helper touches a byte outside its operands: every helper, element type, SIMD target and
// remainder, at guard pages (guarded.h).
#include <doctest/doctest.h>

#include <vector>

#include "kernels/bit_ops.h"
#include "kernels/dot_general.h"
#include "kernels/gather.h"
#include "kernels/integer_ops.h"
#include "kernels/load_store.h"
#include "kernels/move_ops.h"
#include "kernels/random_bits.h"
#include "kernels/reduce.h"
#include "tests/guarded.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

using namespace detail;
using guarded::Operand;
using guarded::Tester;

const Index kWidths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 130};

template <class F>
void for_each_type(F&& f) {
  for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) f(static_cast<DType>(t));
}
bool has_arithmetic(DType type) {
  return is_integer(type) || (is_float(type) && size_of(type) > 1);
}

TEST_CASE("moving: roll, transpose, broadcast_in_dim, iota, windows") {
  Tester test;
  for (const Index n : kWidths) {
    for_each_type([&](DType type) {
      const Operand whole{type, 3, n};
      for (const Index axis : {0, 1}) {
        for (const Index stride : {0, 2}) {
          test("roll", {whole, whole}, [=](const ArrayRef* in, const MutableArrayRef& out) {
            roll(in[0], 5, axis, stride, 1 - axis, out);
          });
        }
        if (has_arithmetic(type)) {
          test("iota", {whole},
               [=](const ArrayRef*, const MutableArrayRef& out) { iota(axis, out, 3); });
        }
      }
      test("transpose", {whole, {type, n, 3}}, [](const ArrayRef* in, const MutableArrayRef& out) {
        const std::size_t order[] = {1, 0};
        transpose(in[0], order, out);
      });
      test("broadcast_in_dim", {{type, 3, 1}, whole},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             const std::size_t dimensions[] = {0, 1};
             broadcast_in_dim(in[0], dimensions, out);
           });
      test("load", {{type, 2, n}, {DType::kBool, 2, n}, whole},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             // Two rows, of which the second lies below the first two of three.
             ArrayRef other = in[0];
             other.rank = 0;
             MutableArrayRef top = out;
             top.extents[0] = 2;
             const Index inside[] = {0, 0};
             load_window(in[0], inside, in[1], other, top);
             MutableArrayRef bottom = out;
             bottom.extents[0] = 1;
             bottom.data = static_cast<char*>(out.data) +
                           2 * out.strides[0] * static_cast<Index>(size_of(out.dtype));
             const Index last[] = {1, 0};
             load_window(in[0], last, {}, other, bottom);
           });
    });
  }
  CHECK(test.count > 1000);
}

TEST_CASE("reductions along rows and columns") {
  for_each_target([] {
    Tester test;
    for (const Index n : kWidths) {
      for_each_type([&](DType type) {
        if (!has_arithmetic(type)) return;
        const Operand whole{type, 5, n};
        for (int op = 0; op <= static_cast<int>(Reduction::kMin); ++op) {
          test("reduce", {whole, {type, 1, n}},
               [=](const ArrayRef* in, const MutableArrayRef& out) {
                 const Index axes[] = {0};
                 reduce(static_cast<Reduction>(op), in[0], axes, out);
               });
          test("reduce", {whole, {type, 1, 1}},
               [=](const ArrayRef* in, const MutableArrayRef& out) {
                 const Index axes[] = {0, 1};
                 reduce(static_cast<Reduction>(op), in[0], axes, out);
               });
        }
        test("argmax", {whole, {DType::kI32, 5, 1}},
             [](const ArrayRef* in, const MutableArrayRef& out) {
               arg_extreme(Arg::kMax, in[0], 1, out);
             });
        test("argmin", {whole, {DType::kI16, 1, n}},
             [](const ArrayRef* in, const MutableArrayRef& out) {
               arg_extreme(Arg::kMin, in[0], 0, out);
             });
      });
      test("reduce_or", {{DType::kBool, 5, n}, {DType::kBool, 1, n}},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             const Index axes[] = {0};
             reduce_bools(Reduction::kMax, in[0], axes, out);
           });
    }
    CHECK(test.count > 1000);
  });
}

TEST_CASE("bits: bitcast, packing, stochastic rounding, reciprocal, random bits") {
  for_each_target([] {
    Tester test;
    for (const Index n : kWidths) {
      const Operand words{DType::kU32, 4, n}, floats{DType::kF32, 4, n};
      const auto bits = [](const ArrayRef* in, const MutableArrayRef& out) { bitcast(in[0], out); };
      test("bitcast", {words, {DType::kI16, 8, n}}, bits);
      test("bitcast", {words, {DType::kU8, 16, n}}, bits);
      test("bitcast", {{DType::kBF16, 4, n}, {DType::kF32, 2, n}}, bits);
      test("bitcast", {{DType::kI8, 8, n}, {DType::kF64, 1, n}}, bits);
      test("bitcast", {words, floats}, bits);
      const auto packs = [](DType packed) {
        return [=](const ArrayRef* in, const MutableArrayRef& out) {
          const ArrayRef sources[] = {in[0], in[1], in[1], in[0]};
          pack_elementwise(sources, 4 / size_of(packed), packed, out);
        };
      };
      test("pack_elementwise", {floats, floats, words}, packs(DType::kBF16));
      test("pack_elementwise", {words, words, words}, packs(DType::kI16));
      test("pack_elementwise", {words, words, words}, packs(DType::kI8));
      for (const DType packed : {DType::kBF16, DType::kI16, DType::kU8}) {
        test("unpack_elementwise", {words, packed == DType::kBF16 ? floats : words},
             [=](const ArrayRef* in, const MutableArrayRef& out) {
               unpack_elementwise(in[0], 1, packed, out);
             });
      }
      test("stochastic_round", {floats, words, {DType::kBF16, 4, n}},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             stochastic_round(in[0], in[1], out);
           });
      for (const bool approx : {false, true}) {
        test("reciprocal", {floats, floats}, [=](const ArrayRef* in, const MutableArrayRef& out) {
          reciprocal(in[0], out, approx);
        });
      }
      for (const DType type : {DType::kU8, DType::kI16, DType::kU32, DType::kI64}) {
        test("random_bits", {{type, 4, n}}, [](const ArrayRef*, const MutableArrayRef& out) {
          random_bits({1, 2}, 0, out);
        });
      }
      test("uniform", {floats}, [](const ArrayRef*, const MutableArrayRef& out) {
        uniform({1, 2}, -1, 1, out);
      });
    }
    CHECK(test.count > 300);
  });
}

TEST_CASE("integers, and gathers of rows and of elements") {
  Tester test;
  for (const Index n : kWidths) {
    for_each_type([&](DType type) {
      const Operand whole{type, 7, n};  // Block::fill makes indices of 0 to 6
      test("load_at", {whole, {DType::kI32, 1, 5}, {type, 5, n}},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             ArrayRef list = in[1];
             list.rank = 1, list.extents[0] = 5, list.strides[0] = 1;
             const ArrayIndex index[] = {list.ref<const std::int32_t, 1>()};
             load_at(in[0], index, out);
           });
      test("take_along_axis", {whole, {DType::kI32, 3, n}, {type, 3, n}},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             take_along_axis(in[0], in[1], 0, out);
           });
      if (!is_integer(type)) return;
      for (int op = 0; op <= static_cast<int>(IntegerOp::kRem); ++op) {
        test("integer", {whole, {type, 1, n}, whole},
             [=](const ArrayRef* in, const MutableArrayRef& out) {
               integer(static_cast<IntegerOp>(op), in[0], in[1], out);
             });
      }
    });
  }
  CHECK(test.count > 500);
}

TEST_CASE("dot_general: where operands lie and copied") {
  Tester test;
  for (const Index n : kWidths) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kI8}) {
      const DType to = accumulator_of(type);
      const auto product = [](const DotDimensions& dims) {
        return [=](const ArrayRef* in, const MutableArrayRef& out) {
          dot_general(in[0], in[1], dims, out, Precision::kF32);
        };
      };
      test("dot_general", {{type, 3, n}, {type, n, 5}, {to, 3, 5}}, product({{1}, {0}}));
      test("dot_general", {{type, n, 3}, {type, 5, n}, {to, 3, 5}}, product({{0}, {1}}));
      test("dot_general", {{type, n, 3}, {type, n, 1}, {to, n, 3}},
           [](const ArrayRef* in, const MutableArrayRef& out) {
             ArrayRef y = in[1];
             y.rank = 1;
             MutableArrayRef z = out;
             dot_general(in[0], y, {{}, {}, {0}, {0}}, z, Precision::kF32);
           });
    }
  }
  CHECK(test.count > 100);
}

}  // namespace
}  // namespace kref
