// SPDX-License-Identifier: Apache-2.0
// Rules about blocks, and about what a body does in its step.
#include "dsl/grid.h"
#include "tests/grid_rules.h"

namespace kref {
namespace {

// Runs a grid over a 16 x 128 array in blocks of 4 x 128 with that operand's index map.
template <class Declare>
void over_rows(Declare declare) {
  Tensor<float, 2> x({16, 128}, 0.0f);
  Grid g("g");
  declare(g, x);
  g.run(nothing);
}

}  // namespace

std::span<const Rule> block_rules() {
  static const Rule rules[] = {
      {"blocks",
       "an input block past the end",
       {"grid 'g': input 'x': block (4,0) of step 3 (i=3) is out of range", "dimension 0",
        "elements 16:20", "extent 16"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 5);
           g.in("x", x, {.block = {4, 128}, .index = {i + 1, 0}});
         });
       }},
      {"blocks",
       "an output block past the end",
       {"grid 'g': output 'z': block (4,0) of step 2 (i=2)", "elements 16:20, extent 16"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 4);
           g.out("z", x, {.block = {4, 128}, .index = {i + 2, 0}});
         });
       }},
      {"blocks",
       "a negative block",
       {"grid 'g': input 'x': block (-1,0) of step 0 (i=0)", "elements -4:0, extent 16"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 4);
           g.in("x", x, {.block = {4, 128}, .index = {i - 1, 0}});
         });
       }},
      {"blocks",
       "block 1 of dimensions with one block",
       {"grid 'g': input \'b': block (1,0,1,0) of step 0 (l=0, j=0)", "dimension 0 has blocks 0:1"},
       [] {
         Tensor<float, 4> b({1, 2, 1, 4}, 0.0f);
         Grid g("g");
         const Axis l = g.parallel("l", 2), j = g.parallel("j", 2);
         g.in("b", b, {.block = {1, 1, 1, 2}, .index = {1, l, 1, j}});
         g.run(nothing);
       }},
      {"blocks",
       "an index too large for its type",
       {"grid 'g': input \'x': block (4611686018427387904,0) of step 1 (i=1) is out of range",
        "extent 16"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 5);
           g.in("x", x, {.block = {4, 128}, .index = {i * (Index{1} << 62), 0}});
         });
       }},
      {"blocks",
       "a table that names a block past the end, in step 1",
       {"grid 'g': input 'x': block (4,0) of step 1 (i=1) is out of range", "elements 16:20"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 3);
           const std::array<Index, 3> table = {0, 4, 1};
           g.in("x", x, {.block = {4, 128}, .index = [=](const Step& s) {
                           return Shape<2>{table[static_cast<std::size_t>(s.index(i))], 0};
                         }});
         });
       }},
      {"visits",
       "an output that comes back to a block",
       {"grid 'g': output 'z': block (0,0) of step 2 (k=1, i=0) was left before",
        "it was visited in step 0 (k=0, i=0)", "consecutive steps"},
       [] {
         over_rows([](Grid& g, auto& x) {
           g.sequential("k", 2);
           const Axis i = g.sequential("i", 2);
           g.out("z", x, {.block = {4, 128}, .index = {i, 0}});
         });
       }},
      {"visits",
       "an output that goes round a modulus",
       {"grid 'g': in_out \'z': block (0,0) of step 4 (i=2, j=0) was left before",
        "steps 0 through 1"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.sequential("i", 3);
           g.sequential("j", 2);
           g.in_out("z", x, {.block = {4, 128}, .index = {i % 2, 0}});
         });
       }},
      {"visits",
       "a table that leads an output back",
       {"grid 'g': output \'z': block (1,0) of step 2 (i=2) was left before",
        "visited in step 0 (i=0)"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.sequential("i", 3);
           g.out("z", x, {.block = {4, 128}, .index = [=](const Step& s) {
                            return Shape<2>{s.index(i) == 1 ? 0 : 1, 0};
                          }});
         });
       }},
      {"visits",
       "an output that ignores a parallel axis",
       {"grid 'g': output 'z' ignores parallel axis 'j'", "block (0,0) of step 1 (i=0, j=1)"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 4);
           g.parallel("j", 2);
           g.out("z", x, {.block = {4, 128}, .index = {i, 0}});
         });
       }},
      {"visits",
       "an output that shares a block between parallel coordinates",
       {"grid 'g': output \'z' shares a block between coordinates 0 and 1 of parallel axis 'i'"},
       [] {
         over_rows([](Grid& g, auto& x) {
           const Axis i = g.parallel("i", 4);
           g.out("z", x, {.block = {4, 128}, .index = {i / 2, 0}});
         });
       }},
      {"visits",
       "a table that shares a block between parallel coordinates",
       {"grid 'g': output \'z': block (2,0) of step 1 (i=1) was left before",
        "visited in step 0 (i=0)"},
       [] {
         over_rows([](Grid& g, auto& x) {
           g.parallel("i", 2);
           g.out("z", x, {.block = {4, 128}, .index = [](const Step&) { return Shape<2>{2, 0}; }});
         });
       }},
  };
  return rules;
}

std::span<const Rule> step_rules() {
  static const Rule rules[] = {
      {"in a step",
       "a handle of another grid",
       {"grid 'g': step 0 (i=0): operand 'x' belongs to another grid"},
       [] {
         Tensor<float, 1> x({8}, 0.0f);
         Grid other("other"), g("g");
         const auto xb = other.in("x", x);
         g.parallel("i", 1);
         g.run([&](const Step& s) { (void)s[xb]; });
       }},
      {"in a step",
       "an axis of another grid",
       {"grid 'g': step 0: axis 'i' belongs to another grid"},
       [] {
         Grid other("other"), g("g");
         const Axis i = other.parallel("i", 2);
         g.run([&](const Step& s) { (void)s.index(i); });
       }},
      {"in a step",
       "an index map that asks for a block",
       {"grid 'g': step 0: an index map asks for the block of 'x', expected indices only"},
       [] {
         Tensor<std::int32_t, 1> x({8}, 0);
         Grid g("g");
         const auto xb = g.in("x", x);
         g.in("y", x, {.block = {1}, .index = [=](const Step& s) { return Shape<1>{s[xb](0)}; }});
         g.run(nothing);
       }},
      {"in a step",
       "the whole of an output after its valid part",
       {"grid 'g': step 0: the whole block of 'z' is asked for after valid() in the same step"},
       [] {
         Tensor<float, 1> z({8}, 0.0f);
         Grid g("g");
         const auto zb = g.out("z", z);
         g.run([&](const Step& s) {
           (void)s.valid(zb);
           (void)s[zb];
         });
       }},
      {"in a step",
       "a call that the body makes and that is refused",
       {"grid 'g': step 5 (i=1, k=2): table 'pages' is empty"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 2), k = g.sequential("k", 3);
         g.run([&](const Step& s) {
           if (s.first(i) || !s.last(k)) return;
           throw Error("table 'pages' is empty");
         });
       }},
  };
  return rules;
}

}  // namespace kref
