// SPDX-License-Identifier: Apache-2.0
// Rules about operands that share memory.
#include "dsl/grid.h"
#include "tests/grid_rules.h"

namespace kref {

std::span<const Rule> memory_rules() {
  static const Rule rules[] = {
      {"shared memory",
       "an alias of another shape",
       {"grid 'g': output 'z' is aliased to 'x': its shape is [5], expected [4]"},
       [] {
         Grid g("g");
         g.in("x", eight().ref().block({0}, {4}));
         g.out("z", eight().ref().block({0}, {5}));
         g.run(nothing);
       }},
      {"shared memory",
       "an alias of another element type",
       {"grid 'g': output 'z' is aliased to 'x': its element type is BF16, expected F32"},
       [] {
         Grid g("g");
         g.in("x", eight().ref().block({0}, {4}));
         g.out("z", Ref<bf16, 1>(reinterpret_cast<bf16*>(eight().data()), {4}));
         g.run(nothing);
       }},
      {"shared memory",
       "an alias of other strides",
       {"grid 'g': in_out 'z' is aliased to 'x': its strides differ"},
       [] {
         Grid g("g");
         g.in("x", Ref<float, 2>(eight().data(), {2, 2}, {4, 1}));
         g.in_out("z", Ref<float, 2>(eight().data(), {2, 2}, {2, 1}));
         g.run(nothing);
       }},
      {"shared memory",
       "an output over a part of an input",
       {"grid 'g': output 'z' overlaps a part of 'x'"},
       [] {
         Grid g("g");
         g.in("x", eight().ref().block({0}, {5}));
         g.out("z", eight().ref().block({3}, {5}));
         g.run(nothing);
       }},
      {"shared memory",
       "an output over a part of an input of other strides",
       {"grid 'g': output 'z' overlaps a part of 'x'"},
       [] {
         Grid g("g");
         g.in("x", Ref<float, 2>(eight().data(), {2, 4}));
         g.out("z", Ref<float, 2>(eight().data() + 1, {3, 1}, {2, 1}));
         g.run(nothing);
       }},
      {"shared memory",
       "an output over a part of an input of another rank",
       {"grid 'g': output 'z' overlaps a part of 'x'"},
       [] {
         Grid g("g");
         g.in("x", Ref<float, 2>(eight().data(), {2, 4}));
         g.out("z", Ref<float, 1>(eight().data() + 6, {2}));
         g.run(nothing);
       }},
      {"shared memory",
       "an output over a part of an input of another element size",
       {"grid 'g': in_out 'z' overlaps a part of 'x'"},
       [] {
         Grid g("g");
         g.in_out("z", Ref<bf16, 1>(reinterpret_cast<bf16*>(eight().data()) + 3, {4}));
         g.in("x", eight());
         g.run(nothing);
       }},
      {"shared memory",
       "an alias that reads along a parallel axis what another coordinate writes",
       {"grid 'g': output 'z' is aliased to 'x', and along parallel axis 'i' one coordinate would "
        "read what another one writes",
        "the index of 'z' is (i) in blocks of [2], that of 'x' (i / 2) in blocks of [2]"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         g.in("x", eight(), {.block = {2}, .index = {i / 2}});
         g.out("z", eight(), {.block = {2}, .index = {i}});
         g.run(nothing);
       }},
      {"shared memory",
       "an alias whose input is the whole array at each parallel coordinate",
       {"grid 'g': in_out 'z' is aliased to 'x', and along parallel axis 'i'"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         g.in_out("z", eight(), {.block = {2}, .index = {i}});
         g.in("x", eight());
         g.run(nothing);
       }},
      {"shared memory",
       "two outputs over one array",
       {"grid 'g': output 'b' has the memory of 'a', and both are written"},
       [] {
         Grid g("g");
         g.out("a", eight());
         g.out("b", eight());
         g.run(nothing);
       }},
      {"shared memory",
       "an output whose elements share memory",
       {"grid 'g': output 'z': dimension 0 of the array has stride 0"},
       [] {
         Grid g("g");
         g.out("z", Ref<float, 2>(eight().data(), {4, 8}, {0, 1}));
         g.run(nothing);
       }},
  };
  return rules;
}

}  // namespace kref
