// SPDX-License-Identifier: Apache-2.0
// What Grid::check finds.
#include "dsl/grid.h"
#include "tests/grid_rules.h"

namespace kref {
namespace {

template <std::size_t R>
void check_shapes(const Shape<R>& array, const BlockSpec<R>& spec) {
  Tensor<float, R> x(array, 0.0f);
  Grid g("g");
  g.sequential("i", 1);
  g.in("x", x, spec);
  g.check([](const Step&) {}, {.tpu_shapes = true});
}

}  // namespace

std::span<const Rule> check_rules() {
  static const Rule rules[] = {
      {"check: poison",
       "an element that is never written",
       {"grid 'g': output 'z': element (2) of block (1), visited from step 1 (i=1), is never "
        "written"},
       [] {
         Tensor<std::int32_t, 1> z({8}, 0);
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         const auto zb = g.out("z", z, {.block = {2}, .index = {i}});
         g.check([&](const Step& s) {
           if (s.index(i) != 1) s[zb](0) = 1;
           s[zb](1) = 1;
         });
       }},
      {"check: poison",
       "an aliased output that is never written",
       {"grid 'g': output 'z': element (0) of block (0)", "is never written",
        "also when aliased to an input",
        "in_out is the operand that starts with the array's contents"},
       [] {
         Tensor<float, 1> x({2}, 1.0f);
         Grid g("g");
         g.in("x", x);
         g.out("z", x);
         g.check([](const Step&) {});
       }},
      {"check: poison",
       "a block that no step visits",
       {"grid 'g': output 'z': block (3) is visited by no step"},
       [] {
         Tensor<float, 1> z({8}, 0.0f);
         Grid g("g");
         const Axis i = g.parallel("i", 3);
         const auto zb = g.out("z", z, {.block = {2}, .index = {i}});
         g.check([&](const Step& s) { s[zb](0) = s[zb](1) = 0.0f; });
       }},
      {"check: poison",
       "an accumulation that nobody cleared",
       {"grid 'g': output 'z': element (0) of block (0)", "depends on poison in 'z'",
        "no step had written"},
       [] {
         Tensor<std::int32_t, 1> z({2}, 0);
         Grid g("g");
         g.sequential("k", 3);
         const auto zb = g.out("z", z, {.block = {2}, .index = {0}});
         g.check([&](const Step& s) {
           for (Index e = 0; e < 2; ++e) s[zb](e) = (s[zb](e) & 3) + 1;
         });
       }},
      {"check: poison",
       "a maximum that swallows the NaN of scratch",
       {"grid 'g': output 'z': element (0) of block (0)", "depends on poison in 'top'",
        "no step had written"},
       [] {
         Tensor<float, 1> z({1}, 0.0f);
         Grid g("g");
         const auto zb = g.out("z", z);
         const auto top = g.scratch<float>("top", {1});
         g.check([&](const Step& s) { s[zb](0) = s[top](0) > 3.0f ? s[top](0) : 3.0f; });
       }},
      {"check: poison",
       "scratch carried along a parallel axis",
       {"grid 'g': output 'z': element (1)", "depends on poison in 'count'",
        "since a parallel axis moved"},
       [] {
         Tensor<std::int32_t, 1> z({4}, 0);
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         const auto zb = g.out("z", z, {.block = {1}, .index = {i}});
         const auto count = g.scratch<std::int32_t>("count", {1});
         g.check([&](const Step& s) {
           if (s.first(i)) s[count](0) = 0;
           s[zb](0) = (s[count](0) & 0xFFFF) + 1;
           s[count](0) = s[zb](0);
         });
       }},
      {"check: poison",
       "a sum that runs into the padding of an edge block",
       {"grid 'g': output 'z': element (0) of block (0)", "depends on poison in 'x'",
        "the part of an edge block outside the array is read"},
       [] {
         Tensor<float, 1> x({5}, 1.0f), z({1}, 0.0f);
         Grid g("g");
         const Axis k = g.sequential("k", 2);
         const auto xb = g.in("x", x, {.block = {4}, .index = {k}});
         const auto zb = g.out("z", z, {.block = {1}, .index = {0}});
         g.check([&](const Step& s) {
           if (s.first(k)) s[zb](0) = 0;
           for (Index e = 0; e < 4; ++e) s[zb](0) += s[xb](e);
         });
       }},
      {"check: order",
       "a captured counter carried along a parallel axis",
       {"grid 'g': output 'z': element (0)", "depends on the order of the parallel coordinates"},
       [] {
         Tensor<std::int32_t, 1> z({4}, 0);
         int count = 0;
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         const auto zb = g.out("z", z, {.block = {1}, .index = {i}});
         g.check([&](const Step& s) { s[zb](0) = count++ % 4; });
       }},
      {"check: memory",
       "a write past the end of a block",
       {"grid 'g': output 'z': the body of step 1 (i=1) wrote past the end of its block"},
       [] {
         Tensor<float, 1> z({8}, 0.0f);
         Grid g("g");
         const Axis i = g.parallel("i", 2);
         const auto zb = g.out("z", z, {.block = {4}, .index = {i}});
         g.check([&](const Step& s) {
           for (Index e = 0; e < 4 + s.index(i); ++e) s[zb].data()[e] = 0.0f;
         });
       }},
      {"check: memory",
       "a write before the begin of scratch",
       {"grid 'g': scratch 'acc': the body of step 0 wrote before the begin of its block"},
       [] {
         Grid g("g");
         const auto acc = g.scratch<float>("acc", {4});
         g.check([&](const Step& s) { s[acc].data()[-1] = 0.0f; });
       }},
      {"check: TPU",
       "a block of rank 0",
       {"grid 'g': input 'x': a block of rank 0, expected rank 1 or more"},
       [] { check_shapes<0>({}, {.block = {}, .index = {}}); }},
      {"check: TPU",
       "a block of rank 1 that is no tile",
       {"grid 'g': input 'x': block [64] of array [128]", "a power of two from 128"},
       [] { check_shapes<1>({128}, {.block = {64}, .index = {0}}); }},
      {"check: TPU",
       "a block of rank 2 that is no tile",
       {"grid 'g': input 'x': block [4,128] of array [16,128]", "multiples of 8 and 128"},
       [] {
         check_shapes<2>({16, 128}, {.block = {4, 128}, .index = {0, 0}});
       }},
      {"check: TPU",
       "blocks without a grid",
       {"grid 'g': input 'x': block [8] of array [16]",
        "the whole array, since the grid has no axes"},
       [] {
         Tensor<float, 1> x({16}, 0.0f);
         Grid g("g");
         g.in("x", x, {.block = {8}, .index = {0}});
         g.check([](const Step&) {}, {.tpu_shapes = true});
       }},
      {"check: TPU",
       "windows and scratch that do not fit into VMEM",
       {"grid 'g': windows and scratch need 12288 bytes of VMEM, expected at most 10000",
        "x 2 x 4096, acc 1 x 4096"},
       [] {
         Tensor<float, 2> x({16, 128}, 0.0f);
         Grid g("g");
         const Axis i = g.parallel("i", 2);
         g.in("x", x, {.block = {8, 128}, .index = {i, 0}});
         g.scratch<float>("acc", {8, 128});
         g.check([](const Step&) {}, {.vmem_bytes = 10000});
       }},
      {"check: TPU",
       "windows that do not fit into the VMEM of a chip",
       {"grid 'g': windows and scratch need 16785408 bytes of VMEM, expected at most 16777216, the "
        "VMEM of a TensorCore of v4",
        "x 2 x 4096, acc 1 x 16777216"},
       [] {
         Tensor<float, 2> x({16, 128}, 0.0f);
         Grid g("g");
         const Axis i = g.parallel("i", 2);
         g.in("x", x, {.block = {8, 128}, .index = {i, 0}});
         g.scratch<float>("acc", {4096, 1024});
         g.check([](const Step&) {}, {.chip = "v5e"});  // 128 MiB
         g.check([](const Step&) {}, {.chip = "v4"});
       }},
      {"check: TPU",
       "a chip that is not known",
       {"grid 'g': chip 'v4p' is not known, expected one of v2, v3, v4i, v4, v5e, v5p, v6e, 7, 7x, "
        "8i, 8t"},
       [] { Grid("g").check([](const Step&) {}, {.chip = "v4p"}); }},
      {"check: TPU",
       "scratch whose tiles are more than a 64-bit number counts",
       {"grid 'g': scratch 'acc': block padded to tiles: shape [1048576,68719476736,128]: "
        "dimension 0 "
        "makes more than 2^63 - 1 bytes"},
       [] {
         Grid g("g");
         g.scratch<std::int32_t>("acc", {Index{1} << 20, Index{1} << 36, 1});
         g.check([](const Step&) {}, {.chip = "v4"});
       }},
  };
  return rules;
}

}  // namespace kref
