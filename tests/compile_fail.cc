// SPDX-License-Identifier: Apache-2.0
// Programs that must not compile. For each case compile_fail_test.py compiles the file twice: as it
// is, which must succeed, and with FAIL defined, which must not. RIGHT and WRONG are the one place
// in which the two differ.
#include "dsl/grid.h"

#ifdef FAIL
#define EITHER(right, ...) __VA_ARGS__
#else
#define EITHER(right, ...) right
#endif
#define COMMA ,

namespace kref {

void program(Ref<const float, 2> x, Ref<float, 2> z) {
  Grid grid("g");
  const Axis i = grid.parallel("i", 2);
  [[maybe_unused]] const Axis j = grid.parallel("j", 2);

#if defined(INDEX_TOO_SHORT)
  grid.in("x", x, {.block = {4, 4}, .index = EITHER((IndexMap<2>(i, j)), {i})});
#elif defined(INDEX_TOO_LONG)
  grid.in("x", x, {.block = {4, 4}, .index = EITHER((IndexMap<2>(i, j)), {i, j, 0})});
#elif defined(INDEX_MISSING)
  grid.in("x", x, EITHER((BlockSpec<2>{.block = {4, 4}, .index = {i, j}}), {.block = {4, 4}}));
#elif defined(INDEX_OF_TWO_AXES)
  grid.in("x", x, {.block = {4, 4}, .index = {i, EITHER(j + 1, j + i)}});
#elif defined(INDEX_FLOAT)
  grid.in("x", x, {.block = {4, 4}, .index = {i, EITHER(1, 1.5)}});
#elif defined(INDEX_CALLABLE_RANK)
  grid.in("x", x, {.block = {4, 4}, .index = [=](const Step& s) {
                     return EITHER((Shape<2>{s.index(i), 0}), Shape<3>{s.index(i), 0, 0});
                   }});
#elif defined(BLOCK_TOO_SHORT)
  grid.in(
      "x", x,
      EITHER((BlockSpec<2>{.block = {4, 4}, .index = {i, j}}), {.block = {4}, .index = {i, j}}));
#elif defined(BLOCK_TOO_LONG)
  grid.in("x", x,
          EITHER((BlockSpec<2>{.block = {4, 4}, .index = {i, j}}),
                 {.block = {4, 4, 4}, .index = {i, j}}));
#elif defined(BLOCK_FLOAT)
  grid.in("x", x, {.block = {4, EITHER(4, 4.5)}, .index = {i, j}});
#elif defined(OUT_OF_CONST)
  grid.out("z", EITHER(z, x), {.block = {4, 4}, .index = {i, j}});
#elif defined(IN_OUT_OF_CONST)
  grid.in_out("z", EITHER(z, x), {.block = {4, 4}, .index = {i, j}});
#elif defined(WRITE_TO_IN)
  const auto xb = EITHER(grid.in_out("x", z), grid.in("x", z));
  grid.run([&](const Step& s) { s[xb](0, 0) = 1.0f; });
#elif defined(WRITE_TO_VALID_IN)
  const auto xb = EITHER(grid.in_out("x", z), grid.in("x", z));
  grid.run([&](const Step& s) { s.valid(xb)(0, 0) = 1.0f; });
#elif defined(HANDLE_TYPE)
  const Out<EITHER(float, double), 2> zb = grid.out("z", z);
  static_cast<void>(zb);
#elif defined(HANDLE_RANK)
  const auto zb = grid.out("z", z);
  grid.run([&](const Step& s) { s[zb](EITHER(0 COMMA 0, 0)) = 1.0f; });
#elif defined(SCRATCH_TYPE)
  const auto acc = grid.scratch<EITHER(float, int*)>("acc", {4, 4});
  static_cast<void>(acc);
#elif defined(SCRATCH_RANK)
  const auto acc = grid.scratch<float>("acc", {1, 1, 1, 1, 1, 1 EITHER(, , 1)});
  static_cast<void>(acc);
#elif defined(SCRATCH_VALID)
  const auto acc = grid.scratch<float>("acc", {4, 4});
  grid.run([&](const Step& s) { static_cast<void>(EITHER(s[acc], s.valid(acc))); });
#elif defined(TABLE_WRITE)
  const auto table = grid.prefetch("table", x);
  grid.run([&](const Step& s) { EITHER((void)s[table](0 COMMA 0), s[table](0 COMMA 0) = 1.0f); });
#elif defined(TABLE_RANK)
  const auto table = grid.prefetch("table", x);
  grid.run([&](const Step& s) { (void)s[table](EITHER(0 COMMA 0, 0)); });
#elif defined(TABLE_VALID)
  const auto table = grid.prefetch("table", x);
  grid.run([&](const Step& s) { (void)EITHER(s[table](0 COMMA 0), s.valid(table)); });
#elif defined(BATCH_RANK)
  Grid mapped("mapped");
  const Batch b = mapped.vmap("b", 2);
  mapped.in("x", b(x), {.block = EITHER({4}, {4 COMMA 4}), .index = {0}});
#elif defined(BATCH_OUT_OF_CONST)
  Grid mapped("mapped");
  const Batch b = mapped.vmap("b", 2);
  mapped.out("z", b(EITHER(z, x)), {.block = {4}, .index = {0}});
#elif defined(BODY_ARGUMENT)
  grid.run([](EITHER(const Step&, int)) {});
#elif defined(BODY_RETURNS)
  grid.run([](const Step& s) { return EITHER(static_cast<void>(s.number()), s.number()); });
#elif defined(BODY_MUTABLE)
  int count = 0;
  grid.run([count](const Step&) EITHER(, mutable) { EITHER(static_cast<void>(count), ++count); });
#elif defined(REF_INTO_REF)
  Ref<float, 2> part = z;
  EITHER(part, z.block({0 COMMA 0}, {4 COMMA 4})) = z;
#elif defined(VIEW_TOO_MANY_INDICES)
  static_cast<void>(x.at(0, EITHER(ds(4), ds(4) COMMA 0)));
#elif defined(VIEW_TWO_ELLIPSES)
  static_cast<void>(x.at(ellipsis, EITHER(0, ellipsis)));
#elif defined(VIEW_FLOAT)
  static_cast<void>(x.at(EITHER(1, 1.5)));
#else
#error "no case"
#endif
  static_cast<void>(x), static_cast<void>(z), static_cast<void>(i);
}

}  // namespace kref

int main() {}
