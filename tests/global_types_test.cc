// SPDX-License-Identifier: Apache-2.0
// How results of operations on whole arrays are sharded. Numbers in test names are those of
// sharding_semantics section 9.
#include <doctest/doctest.h>

#include "sharding/arithmetic_rules.h"
#include "tests/refusal.h"

namespace kref {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Mesh kMesh = Mesh::parse("x=2,y=2");

// [8,2] times [2,8], as in table 3.2.
const DotDims kMatmul{{1}, {0}};
GlobalType dot(const Placement& lhs, const Placement& rhs,
               const std::optional<Placement>& out = {}) {
  return dot_general_type({DType::kF32, {8, 2}, lhs}, {DType::kF32, {2, 8}, rhs}, kMatmul, kMesh,
                          out);
}

TEST_CASE("64: the accepted rows of table 3.2") {
  const struct {
    P lhs, rhs, result;
  } rows[] = {
      {P{"x", none}, P{none, "y"}, P{"x", "y"}},  {P{"x", none}, P{none, none}, P{"x", none}},
      {P{"x", "y"}, P{none, none}, P{"x", none}}, {P{"x", none}, P{"x", none}, P{"x", none}},
      {P{none, "y"}, P{none, "y"}, P{none, "y"}},
  };
  for (const auto& row : rows) {
    CAPTURE(to_string(row.lhs));
    CAPTURE(to_string(row.rhs));
    CHECK(dot(row.lhs, row.rhs) == GlobalType{DType::kF32, {8, 8}, row.result});
  }
}

TEST_CASE("64: the rejected rows of table 3.2, and what out_sharding makes of them") {
  const std::string four = refusal([] { dot(P{"x", none}, P{none, "x"}); });
  CHECK(has(four,
            "dot_general operation with inputs: f32[8@x,2], f32[2,8@x] produces an illegally "
            "sharded result: f32[8@x,8@x]"));
  CHECK(has(refusal([] { dot(P{"x", "y"}, P{"x", "y"}); }), "ambiguous"));
  for (const P& lhs : {P{"x", "y"}, P{none, "y"}}) {
    const std::string message = refusal([&] { dot(lhs, P{"y", none}); });
    CHECK(has(message, "Contracting dimensions are sharded and it is ambiguous"));
    CHECK(has(message, "lhs P('y') and rhs P('y')"));
  }
  for (const Placement& out :
       {Placement(P{"x"}), Placement(P{"x", "y"}), Placement(P{"x"}, {.unreduced = {"y"}})}) {
    CHECK(dot(P{"x", "y"}, P{"y", none}, out).placement == out);
  }
}

TEST_CASE("64 and 58: conditions of an unreduced out_sharding") {
  const Placement y_terms(P{}, {.unreduced = {"y"}});
  CHECK(to_string(dot(P{"x", "y"}, P{"y", none}, Placement(P{"x"}, {.unreduced = {"y"}})), kMesh) ==
        "f32[8@x,8]{U:y}");
  CHECK(has(refusal([&] { dot(P{"x", "y"}, P{}, y_terms); }), "should be sharded identically"));
  CHECK(has(refusal([&] {
              dot(P{none, "x"}, P{"y", none}, y_terms);
            }),
            "should be sharded identically"));
  CHECK(has(refusal([&] {
              dot(P{none, "x"}, P{"x", none}, y_terms);
            }),
            "unreduced axes should be equal to the contracting specs; got unreduced axes {y}"));
  CHECK(has(refusal([&] { dot(P{}, P{}, y_terms); }), "equal to the contracting specs"));
  CHECK(has(refusal([&] {
              dot(P{none, "y"}, P{"y", none},
                  Placement(P{}, {.unreduced = {"y"}, .kind = UnreducedKind::kMax}));
            }),
            "unreduced_kind max, expected sum"));
  CHECK(has(refusal([&] { dot(y_terms, P{}); }), "cannot be unreduced"));
  CHECK(has(refusal([&] { dot(P{}, P{}, P{"x", "x"}); }), "DuplicateSpecError"));
  CHECK(has(refusal([&] { dot(P{}, P{}, P{none, none, "x"}); }), "which has length 3"));
}

TEST_CASE("66: dot_general of a sharded and a reduced operand") {
  const GlobalType x{DType::kF32, {4, 2}, P{"x"}};
  const GlobalType w{DType::kF32, {2, 6}, Placement(P{}, {.reduced = {"x"}})};
  CHECK(dot_general_type(x, w, kMatmul, kMesh) == GlobalType{DType::kF32, {4, 6}, P{"x"}});
  const GlobalType r{DType::kF32, {4, 2}, Placement(P{}, {.reduced = {"x"}})};
  CHECK(dot_general_type(r, w, kMatmul, kMesh).placement == r.placement);
  const GlobalType whole{DType::kF32, {4, 2}, P{}};
  CHECK(has(refusal([&] { dot_general_type(whole, w, kMatmul, kMesh); }),
            "inputs cannot be replicated on the same axes that another input is reduced on"));
}

TEST_CASE("64: batch dimensions") {
  const DotDims batched{{2}, {1}, {0}, {0}};
  const auto type = [&](const P& lhs, const P& rhs) {
    return dot_general_type({DType::kBF16, {4, 8, 2}, lhs}, {DType::kBF16, {4, 2, 6}, rhs}, batched,
                            kMesh);
  };
  CHECK(type(P{"x", "y"}, P{"x"}) == GlobalType{DType::kBF16, {4, 8, 6}, P{"x", "y"}});
  CHECK(has(refusal([&] { type(P{"x"}, P{"y"}); }),
            "lhs batch dimensions and rhs batch dimensions to have the consistent sharding, got "
            "P('x') and P('y')"));
  CHECK(has(refusal([&] { type(P{"x"}, P{}); }), "batch dimensions"));
  CHECK(has(refusal([&] {
              dot_general_type({DType::kF32, {4}, P{}}, {DType::kF32, {5}, P{}}, {{0}, {0}}, kMesh);
            }),
            "do not have the same extents"));
  CHECK(has(refusal([&] {
              dot_general_type({DType::kF32, {4}, P{}}, {DType::kF32, {4}, P{}}, {{1}, {0}}, kMesh);
            }),
            "lhs: dimension 1 does not exist"));
}

TEST_CASE("62 and 63: reductions with an unreduced out_sharding") {
  const GlobalType a{DType::kI32, {4, 6}, P{"x", "y"}};
  const std::vector<std::size_t> rows{0};
  CHECK(reduce_type(Arithmetic::kReduceSum, a, rows, kMesh) ==
        GlobalType{DType::kI32, {6}, P{"y"}});
  const Placement x_terms(P{"y"}, {.unreduced = {"x"}});
  CHECK(reduce_type(Arithmetic::kReduceSum, a, rows, kMesh, x_terms).placement == x_terms);
  const Placement y_terms(P{}, {.unreduced = {"y"}});
  CHECK(has(refusal([&] { reduce_type(Arithmetic::kReduceSum, a, rows, kMesh, y_terms); }),
            "unreduced axes should be in operand's specs that were summed over; got 'y'"));
  const Placement top(P{"y"}, {.unreduced = {"x"}, .kind = UnreducedKind::kMax});
  CHECK(reduce_type(Arithmetic::kReduceMax, a, rows, kMesh, top).placement == top);
  CHECK(has(refusal([&] { reduce_type(Arithmetic::kReduceMax, a, rows, kMesh, x_terms); }),
            "reduce_max: out_sharding has unreduced_kind sum, expected max"));
  CHECK(has(refusal([&] { reduce_type(Arithmetic::kReduceMin, a, rows, kMesh, top); }),
            "expected min"));
  // An operand's own terms stay terms.
  const GlobalType terms_in{DType::kI32, {4, 6}, Placement(P{"y"}, {.unreduced = {"x"}})};
  CHECK(reduce_type(Arithmetic::kReduceSum, terms_in, rows, kMesh).placement ==
        Placement(P{}, {.unreduced = {"x"}}));
}

TEST_CASE("65 and 67: elementwise operations on whole arrays") {
  const auto type = [&](Arithmetic rule, const Placement& a, const Placement& b) {
    const GlobalType operands[] = {{DType::kI32, {4, 4}, a}, {DType::kI32, {4, 4}, b}};
    return elementwise_type(rule, "add", operands, kMesh).placement;
  };
  CHECK(type(Arithmetic::kAdd, P{"x"}, P{"x"}) == Placement(P{"x"}));
  CHECK(type(Arithmetic::kAdd, P{"x"}, P{}) == Placement(P{"x"}));
  CHECK(type(Arithmetic::kAdd, P{"x"}, P{none, "y"}) == Placement(P{"x", "y"}));
  CHECK(
      has(refusal([&] { type(Arithmetic::kAdd, P{"x"}, P{"y"}); }),
          "add got incompatible shardings for broadcasting: dimension 0 is over x and, of operand "
          "1, over y"));
  CHECK(has(refusal([&] {
              type(Arithmetic::kAdd, P{"x"}, P{none, "x"});
            }),
            "add operation with inputs: i32[4@x,4], i32[4,4@x] produces an illegally sharded "
            "result: i32[4@x,4@x]"));
  const Placement u(P{}, {.unreduced = {"x"}}), r(P{}, {.reduced = {"x"}});
  CHECK(type(Arithmetic::kMul, u, r) == u);
  CHECK(type(Arithmetic::kMul, Placement(P{"y"}, {.reduced = {"x"}}), r) ==
        Placement(P{"y"}, {.reduced = {"x"}}));
  CHECK(has(refusal([&] { type(Arithmetic::kMul, r, P{"x"}); }), "cannot be sharded/varying"));
  CHECK(has(refusal([&] { type(Arithmetic::kMul, r, P{}); }), "cannot be replicated"));

  const GlobalType row{DType::kF32, {1, 4}, P{none, "y"}}, all{DType::kF32, {6, 4}, P{"x"}};
  const GlobalType both[] = {row, all};
  CHECK(elementwise_type(Arithmetic::kMul, "mul", both, kMesh) ==
        GlobalType{DType::kF32, {6, 4}, P{"x", "y"}});
  const GlobalType scaled[] = {{DType::kF32, {}, {}, true}, {DType::kF32, {4}, r}};
  CHECK(elementwise_type(Arithmetic::kMul, "mul", scaled, kMesh) == scaled[1]);
  const GlobalType scaled_terms[] = {{DType::kF32, {4}, u}, {DType::kF32, {}, {}, true}};
  CHECK(has(refusal([&] { elementwise_type(Arithmetic::kMul, "mul", scaled_terms, kMesh); }),
            "RHS should be reduced along the same axes LHS is unreduced on; got {U:x}, a literal"));
  const GlobalType unequal[] = {row, {DType::kF32, {6, 5}, P{}}};
  CHECK(has(refusal([&] { elementwise_type(Arithmetic::kMul, "mul", unequal, kMesh); }),
            "operand 1 is f32[6,5], expected extent 4 of dimension 1"));
}

TEST_CASE("67: reshapes") {
  const auto type = [&](std::vector<Index> from, const P& spec, std::vector<Index> to) {
    return reshape_type({DType::kF32, std::move(from), spec}, to, kMesh).placement;
  };
  const struct {
    std::vector<Index> from;
    P spec;
    std::vector<Index> to;
    P result;
  } rows[] = {
      {{8}, P{axes("x", "y")}, {2, 4}, P{"x", "y"}},        // handed out major first
      {{8}, P{axes("x", "y")}, {4, 2}, P{axes("x", "y")}},  // used up by the first
      {{16}, P{axes("y", "x")}, {2, 2, 4}, P{"y", "x"}},
      {{2, 2, 2}, P{"x", "y"}, {8}, P{axes("x", "y")}},  // sharded dims leading, adjacent
      {{2, 2, 2}, P{"x"}, {8}, P{"x"}},
      {{4, 6, 2}, P{"x", none, "y"}, {4, 2, 3, 2}, P{"x", none, none, "y"}},
      {{4, 2, 3, 4}, P{"x", none, none, "y"}, {4, 6, 4}, P{"x", none, "y"}},
      {{4, 1, 6}, P{"x", none, "y"}, {1, 4, 6, 1}, P{none, "x", "y"}},
      {{2, 3, 4}, P{}, {24}, P{}},
      {{2, 3, 4}, P{}, {4, 6}, P{}},  // split nowhere: anything goes
      {{0, 4}, P{none, "x"}, {0, 4, 1}, P{none, "x"}},
      {{1}, P{}, {}, P{}},
  };
  for (const auto& row : rows) {
    CAPTURE(to_string(row.spec));
    CHECK(type(row.from, row.spec, row.to) == Placement(row.result));
  }
  const char* const refusals = "This reshape is not supported";
  CHECK(has(refusal([&] { type({12}, P{axes("x", "y")}, {3, 4}); }), refusals));
  CHECK(has(refusal([&] { type({2, 2, 2}, P{"x", none, "y"}, {8}); }), refusals));
  CHECK(has(refusal([&] {
              type({4, 6}, P{"x"}, {6, 4});
            }),
            refusals));  // neither splits nor merges
  CHECK(has(refusal([&] { type({4, 4}, P{"x"}, {2, 2, 2, 2}); }), refusals));  // two at once
  CHECK(has(refusal([&] { type({0, 4}, P{none, "x"}, {0, 2, 2}); }), "(not refused)"));
  CHECK(has(refusal([&] { type({0, 4}, P{none, "x"}, {4, 0}); }), refusals));
  CHECK(has(refusal([&] { type({4}, P{"x"}, {5}); }), "[4] has 4 elements, [5] has 5"));
  // Unreduced and reduced axes pass through.
  const GlobalType u{DType::kF32, {8}, Placement(P{"y"}, {.unreduced = {"x"}})};
  CHECK(reshape_type(u, std::vector<Index>{2, 4}, kMesh).placement ==
        Placement(P{"y"}, {.unreduced = {"x"}}));
}

}  // namespace
}  // namespace kref
