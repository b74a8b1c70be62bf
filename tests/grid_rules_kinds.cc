// SPDX-License-Identifier: Apache-2.0
// Rules about Element windows, tables, batches and buffers.
#include "dsl/grid.h"
#include "tests/grid_rules.h"

namespace kref {

std::span<const Rule> kind_rules() {
  static const Rule rules[] = {
      {"Element blocks",
       "a window past the end",
       {"grid 'g': input 'x': block (6) of step 3 (i=3) is out of range: dimension 0 has windows "
        "that start at 0:5, elements 6:10, extent 8"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         g.in("x", eight(), {.block = {Element(4)}, .index = {i * 2}});
         g.run(nothing);
       }},
      {"Element blocks",
       "a window before the padding",
       {"grid 'g': input 'x': block (-1) of step 0 (i=0)", "elements -3:1, extent 8"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 4);
         g.in("x", eight(), {.block = {Element(4, {2, 0})}, .index = {i - 1}});
         g.run(nothing);
       }},
      {"Element blocks",
       "a window larger than the padded array",
       {"grid 'g': input 'x': Element window of dimension 0 has 12 elements, expected at most the "
        "11 of the array with its padding"},
       [] {
         Grid("g").in("x", eight(), {.block = {Element(12, {1, 2})}, .index = {0}});
       }},
      {"Element blocks",
       "negative padding",
       {"grid 'g': input 'x': padding of dimension 0 is (-1, 0), expected >= 0"},
       [] {
         Grid("g").in("x", eight(), {.block = {Element(4, {-1, 0})}, .index = {0}});
       }},
      {"Element blocks",
       "an output's windows that overlap",
       {"grid 'g': output 'z': block (2) of step 1 (i=1) shares elements with the window of step 0",
        "written by one visit alone"},
       [] {
         Grid g("g");
         const Axis i = g.sequential("i", 3);
         g.out("z", eight(), {.block = {Element(4)}, .index = {i * 2}});
         g.run(nothing);
       }},
      {"tables",
       "an element past the end, in an index map",
       {"grid 'g': table 's': element (2) is asked for in step 2 (i=2), its shape is [2]"},
       [] {
         Tensor<std::int32_t, 1> s({2}, 0);
         Grid g("g");
         const auto t = g.prefetch("s", s);
         const Axis i = g.parallel("i", 4);
         g.in("x", eight(), {.block = {2}, .index = [=](const Step& step) {
                               return Shape<1>{step[t](step.index(i))};
                             }});
         g.run(nothing);
       }},
      {"tables",
       "a negative element, in a body",
       {"grid 'g': table 's': element (0,-1) is asked for in step 0, its shape is [1,2]"},
       [] {
         Tensor<std::int32_t, 2> s({1, 2}, 0);
         Grid g("g");
         const auto t = g.prefetch("s", s);
         g.run([&](const Step& step) { (void)step[t](0, -1); });
       }},
      {"tables",
       "a table that an output shares memory with",
       {"grid 'g': output 'z' has the memory of table 's': a table stays as it is, expected "
        "another "
        "array"},
       [] {
         Tensor<std::int32_t, 1> s({8}, 0);
         Grid g("g");
         g.prefetch("s", s);
         g.out("z", s);
         g.run(nothing);
       }},
      {"tables",
       "a table of another grid",
       {"grid 'g': step 0: operand 's' belongs to another grid"},
       [] {
         Tensor<std::int32_t, 1> s({8}, 0);
         Grid other("other"), g("g");
         const auto t = other.prefetch("s", s);
         g.run([&](const Step& step) { (void)step[t](0); });
       }},
      {"tables",
       "a table that names a block past the end",
       {"grid 'g': input 'x': block (4) of step 1 (i=1) is out of range: dimension 0 has blocks "
        "0:4, elements 8:10, extent 8"},
       [] {
         static const std::int32_t entries[] = {0, 4, 1};
         Grid g("g");
         const auto t = g.prefetch("s", Ref<const std::int32_t, 1>(entries, {3}));
         const Axis i = g.parallel("i", 3);
         g.in("x", eight(), {.block = {2}, .index = [=](const Step& step) {
                               return Shape<1>{step[t](step.index(i))};
                             }});
         g.run(nothing);
       }},
      {"batches",
       "a vmap after an axis",
       {"grid 'g': vmap 'b' after axis 'i', expected before all axes"},
       [] {
         Grid g("g");
         g.parallel("i", 2);
         g.vmap("b", 2);
       }},
      {"batches",
       "an array of a batch of another grid",
       {"grid 'g': input 'x': a batch belongs to another grid"},
       [] {
         Grid other("other"), g("g");
         g.in("x", other.vmap("b", 8)(eight()), {.block = {}, .index = {}});
       }},
      {"batches",
       "an output that is the same for all of a batch",
       {"grid 'g': output 'z' ignores parallel axis 'b'"},
       [] {
         Grid g("g");
         g.vmap("b", 2);
         g.out("z", eight());
         g.run(nothing);
       }},
      {"views",
       "an element past the end of a block",
       {"grid 'g': input 'x': step 0: Ref::at: dimension 0: element 8 does not lie inside the "
        "extent 8"},
       [] {
         Grid g("g");
         const auto xb = g.in("x", eight());
         g.run([&](const Step& s) { (void)s[xb].at(8); });
       }},
      {"views",
       "a slice past the end of a block",
       {"grid 'g': input 'x': step 1 (i=1): Ref::at: dimension 0: start 3"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 2);
         const auto xb = g.in("x", eight(), {.block = {4}, .index = {i}});
         g.run([&](const Step& s) { (void)s[xb].at(ds(3 * s.index(i), 2)); });
       }},
      {"views",
       "a strided slice past the end of a block",
       {"grid 'g': output 'z': step 0: Ref::at: dimension 0: start 0"},
       [] {
         Grid g("g");
         const auto zb = g.out("z", eight());
         g.run([&](const Step& s) { (void)s[zb].at(ds(0, 4, 3)); });
       }},
      {"views",
       "a sub-block past the end",
       {"grid 'g': input 'x': step 0: Ref::block: dimension 0: 6:10 does not lie inside the extent "
        "8"},
       [] {
         Grid g("g");
         const auto xb = g.in("x", eight());
         g.run([&](const Step& s) { (void)s[xb].block({6}, {4}); });
       }},
      {"views",
       "a reshape to another number of elements",
       {"grid 'g': step 0: Ref::reshape: "},
       [] {
         Grid g("g");
         const auto xb = g.in("x", eight());
         g.run([&](const Step& s) { (void)s[xb].reshape(3, 3); });
       }},
      {"buffers",
       "three buffers",
       {"grid 'g': input 'x': Buffered(3): only single (1) and double (2) buffering are supported"},
       [] {
         Grid("g").in("x", eight(), {.block = {4}, .index = {0}, .pipeline_mode = {.count = 3}});
       }},
      {"buffers",
       "any revisit with two buffers",
       {"grid 'g': output 'z': Revisit::kAny with two buffers, expected Buffered{1}"},
       [] {
         Grid("g").out(
             "z", eight(),
             {.block = {4}, .index = {0}, .pipeline_mode = {.count = 2, .revisit = Revisit::kAny}});
       }},
      {"buffers",
       "any revisit of an input",
       {"grid 'g': input 'x': Revisit::kAny is for what is written"},
       [] {
         Grid("g").in(
             "x", eight(),
             {.block = {4}, .index = {0}, .pipeline_mode = {.count = 1, .revisit = Revisit::kAny}});
       }},
      {"buffers",
       "any revisit of Element windows",
       {"grid 'g': output 'z': Revisit::kAny with an Element dimension is not supported"},
       [] {
         Grid("g").out("z", eight(),
                       {.block = {Element(4)},
                        .index = {0},
                        .pipeline_mode = {.count = 1, .revisit = Revisit::kAny}});
       }},
      {"buffers",
       "any revisit from other coordinates of a parallel axis",
       {"grid 'g': output 'z' ignores parallel axis 'i'"},
       [] {
         Grid g("g");
         g.parallel("i", 2);
         g.out(
             "z", eight(),
             {.block = {4}, .index = {0}, .pipeline_mode = {.count = 1, .revisit = Revisit::kAny}});
         g.run(nothing);
       }},
  };
  return rules;
}

}  // namespace kref
