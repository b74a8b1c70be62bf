// SPDX-License-Identifier: Apache-2.0
// Rules about what is declared: axes, expressions, block extents, names, sizes.
#include <cstdlib>
#include <limits>

#include "dsl/grid.h"
#include "dsl/threads.h"
#include "tests/grid_rules.h"

namespace kref {
namespace {

constexpr Index kHuge = std::numeric_limits<Index>::max();

}  // namespace

std::span<const Rule> declaration_rules() {
  static const Rule rules[] = {
      {"axes",
       "a negative size",
       {"grid 'g': axis 'i' has size -1, expected >= 0"},
       [] { Grid("g").parallel("i", -1); }},
      {"axes",
       "a parallel axis after a sequential one",
       {"grid 'g': parallel axis 'j' after sequential axis 'k'", "parallel axes first"},
       [] {
         Grid g("g");
         g.sequential("k", 2);
         g.parallel("j", 2);
       }},
      {"axes",
       "two axes of one name",
       {"grid 'g': two axes are named 'i'"},
       [] {
         Grid g("g");
         g.parallel("i", 2);
         g.sequential("i", 2);
       }},
      {"axes",
       "an axis without a name",
       {"grid 'g': axis without a name"},
       [] { Grid("g").parallel("", 1); }},
      {"axes",
       "17 axes",
       {"grid 'g': axis 'a16' is one more than 16"},
       [] {
         Grid g("g");
         for (int a = 0; a < 17; ++a) g.sequential(detail::cat('a', a), 1);
       }},
      {"axes",
       "more steps than a 64-bit number counts",
       {"grid 'g': axis 'j' makes more steps than fit into 64 bits"},
       [] {
         Grid g("g");
         g.parallel("i", Index{1} << 40);
         g.parallel("j", Index{1} << 40);
         g.run(nothing);
       }},
      {"index maps",
       "an axis expression out of order",
       {"index map: % 4 after i * 2", "axis / d % m * s + o", "in this order"},
       [] {
         Grid g("g");
         (void)(g.parallel("i", 8) * 2 % 4);
       }},
      {"index maps",
       "a product of a sum",
       {"index map: * 2 after i + 1"},
       [] {
         Grid g("g");
         (void)((g.parallel("i", 8) + 1) * 2);
       }},
      {"index maps",
       "the same part twice",
       {"index map: % 4 after i % 6"},
       [] {
         Grid g("g");
         (void)(g.parallel("i", 8) % 6 % 4);
       }},
      {"index maps",
       "a division by zero",
       {"index map: i / 0: expected a constant above 0"},
       [] {
         Grid g("g");
         (void)(g.parallel("i", 8) / 0);
       }},
      {"index maps",
       "a negative modulus",
       {"index map: i % -3: expected a constant above 0"},
       [] {
         Grid g("g");
         (void)(g.parallel("i", 8) % -3);
       }},
      {"index maps",
       "a constant that does not fit",
       {"index map: i + 9223372036854775807 + 1 is too"},
       [] {
         Grid g("g");
         (void)(g.parallel("i", 8) + kHuge + 1);
       }},
      {"index maps",
       "an axis of another grid",
       {"grid 'g': input 'x': axis 'i' in the index of dimension 0 belongs to another grid"},
       [] {
         Grid other("other"), g("g");
         const Axis i = other.parallel("i", 2);
         g.in("x", eight(), {.block = {4}, .index = {i}});
       }},
      {"operands",
       "a block extent of 0",
       {"grid 'g': input 'x': block extent of dimension 0 is 0, expected > 0"},
       [] { Grid("g").in("x", eight(), {.block = {0}, .index = {0}}); }},
      {"operands",
       "a negative block extent",
       {"grid 'g': output 'z': block extent of dimension 0 is -2, expected > 0"},
       [] { Grid("g").out("z", eight(), {.block = {-2}, .index = {0}}); }},
      {"operands",
       "a negative array extent",
       {"grid 'g': input 'x': dimension 0", "extent -8"},
       [] { Grid("g").in("x", Ref<const float, 1>(eight().data(), {-8}, {1})); }},
      {"operands",
       "a broadcast array of more bytes than a 64-bit number counts",
       {"grid 'g': input 'x': shape [2305843009213693952,8]: dimension 0 makes more than 2^63 - 1 "
        "bytes"},
       [] {
         Grid("g").in("x", Ref<const float, 2>(eight().data(), {kHuge / 4 + 1, 8}, {0, 1}));
       }},
      {"operands",
       "a block of more bytes than a 64-bit number counts",
       {"grid 'g': output 'z': block: shape [4611686018427387904]: dimension 0 makes more than"},
       [] { Grid("g").out("z", eight(), {.block = {kHuge / 2 + 1}, .index = {0}}); }},
      {"operands",
       "scratch of more bytes than a 64-bit number counts",
       {"grid 'g': scratch 'acc': shape [4294967296,4294967296]: dimension 0 makes more than"},
       [] {
         Grid("g").scratch<float>("acc", {Index{1} << 32, Index{1} << 32});
       }},
      {"operands",
       "a stride that leads out of the address space",
       {"grid 'g': in_out 'z': dimension 0 of F32[2,4] has stride 4611686018427387904"},
       [] {
         Grid("g").in_out("z", Ref<float, 2>(eight().data(), {2, 4}, {kHuge / 2 + 1, 1}));
       }},
      {"operands",
       "two operands of one name",
       {"grid 'g': two operands are named 'x'"},
       [] {
         Grid g("g");
         g.in("x", eight());
         g.scratch<float>("x", {2});
       }},
      {"operands",
       "an operand without a name",
       {"grid 'g': operand without a name"},
       [] { Grid("g").in("", eight()); }},
      {"operands",
       "65 operands",
       {"grid 'g': operand 'x64' is one more than 64"},
       [] {
         Grid g("g");
         for (int i = 0; i < 65; ++i) g.in(detail::cat('x', i), eight());
       }},
      {"operands",
       "a negative extent of scratch",
       {"grid 'g': scratch 'acc': extent of dimension 1 is -1, expected >= 0"},
       [] {
         Grid("g").scratch<float>("acc", {2, -1});
       }},
      {"operands",
       "an input without elements, and steps that would read it",
       {"grid 'g': input 'x' F32[0] is empty, the grid has 2 steps"},
       [] {
         Grid g("g");
         const Axis i = g.parallel("i", 2);
         Tensor<float, 1> x({0});
         g.in("x", x, {.block = {4}, .index = {i}});
         g.out("z", eight(), {.block = {4}, .index = {i}});
         g.run(nothing);
       }},
      {"after run",
       "an axis",
       {"grid 'g': axis 'i' is declared after run"},
       [] {
         Grid g("g");
         g.run(nothing);
         g.parallel("i", 2);
       }},
      {"after run",
       "an operand",
       {"grid 'g': operand 'x' is declared after run"},
       [] {
         Grid g("g");
         g.run(nothing);
         g.in("x", eight());
       }},
      {"after run",
       "scratch",
       {"grid 'g': scratch 'acc' is declared after run"},
       [] {
         Grid g("g");
         g.run(nothing);
         g.scratch<float>("acc", {2});
       }},
      {"settings",
       "a negative number of threads",
       {"set_threads: -1 threads, expected >= 0"},
       [] { set_threads(-1); }},
      {"settings",
       "an unknown value of KREF_CHECKS",
       {"KREF_CHECKS is 'some', expected 'full'"},
       [] {
         const char* before = std::getenv("KREF_CHECKS");
         const std::string kept = before == nullptr ? "" : before;
         setenv("KREF_CHECKS", "some", 1);
         struct Restore {
           const std::string& value;
           ~Restore() { setenv("KREF_CHECKS", value.c_str(), 1); }
         } restore{kept};
         Grid("g").run(nothing);
       }},
      {"settings",
       "a trace asked for an unknown operand",
       {"trace: no operand is named 'y'"},
       [] { Grid("g").run(nothing)["y"]; }},
  };
  return rules;
}

}  // namespace kref
