// SPDX-License-Identifier: Apache-2.0
// Pallas programs of the matmul family, and those whose blocks are named by tables.
#include <algorithm>

#include "kernels/kernels.h"
#include "tests/pallas_program.h"

namespace kref {
namespace {

using I32 = std::int32_t;

struct Tiles {
  Index m, n, k;
};

// acc(m, n) += sum over k of x(m, k) y(k, n), where x and y may be stored transposed.
template <class T, class A>
void multiply(Ref<const T, 2> x, bool tx, Ref<const T, 2> y, bool ty, Ref<A, 2> acc) {
  const Index depth = std::min(x.extent(tx ? 0 : 1), y.extent(ty ? 1 : 0));
  const Index m = x.extent(tx ? 1 : 0), n = y.extent(ty ? 0 : 1);
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      for (Index k = 0; k < depth; ++k) {
        acc(i, j) +=
            static_cast<A>(tx ? x(k, i) : x(i, k)) * static_cast<A>(ty ? y(j, k) : y(k, j));
      }
    }
  }
}

// The common shape: grid (m, n, k), an accumulator, `store(step, accumulator, z)` at the last k.
// `whole`: multiplies whole blocks, padding included.
template <class T, class A, class Z, class Store>
void matmul_program(const char* name, Tiles t, bool tx, bool ty, bool whole, Store store,
                    std::span<const Way> ways = kWays) {
  const PallasProgram program(name);
  const auto x = program.in<T, 2>("x"), y = program.in<T, 2>("y");
  for (const Way way : ways) {
    auto z = program.out<Z, 2>("z");
    Grid grid(name);
    const Axis i = grid.parallel("i", cdiv(z.extent(0), t.m));
    const Axis j = grid.parallel("j", cdiv(z.extent(1), t.n));
    const Axis k = grid.sequential("k", cdiv(x.extent(tx ? 0 : 1), t.k));
    const auto xb = tx ? grid.in("x", x, {.block = {t.k, t.m}, .index = {k, i}})
                       : grid.in("x", x, {.block = {t.m, t.k}, .index = {i, k}});
    const auto yb = ty ? grid.in("y", y, {.block = {t.n, t.k}, .index = {j, k}})
                       : grid.in("y", y, {.block = {t.k, t.n}, .index = {k, j}});
    const auto zb = grid.out("z", z, {.block = {t.m, t.n}, .index = {i, j}});
    const auto acc = grid.scratch<A>("acc", {t.m, t.n});
    execute(grid, way, [&](const Step& s) {
      if (s.first(k)) fill(s[acc], A(0));
      multiply(whole ? s[xb] : s.valid(xb), tx, whole ? s[yb] : s.valid(yb), ty, s[acc]);
      if (s.last(k)) store(s.index(j) * t.n, Ref<const A, 2>(s[acc]), s[zb]);
    });
    program.expect("z", z);
  }
}

TEST_CASE("matmul of whole numbers: ragged, transposed, int8, with an epilogue") {
  const auto plain = [](Index, auto acc, auto z) { copy(acc, z); };
  matmul_program<float, float, float>("matmul_ragged", {8, 16, 16}, false, false, false, plain);
  matmul_program<float, float, float>("matmul_rhs_transposed", {8, 8, 16}, false, true, false,
                                      plain);
  matmul_program<float, float, float>("matmul_lhs_transposed", {8, 8, 16}, true, false, false,
                                      plain);
  matmul_program<std::int8_t, I32, I32>("matmul_int8", {8, 8, 32}, false, false, false, plain);
  // Padding of x and y meets in the second k step: NaN everywhere, as written.
  matmul_program<float, float, float>("matmul_unmasked_edge", {8, 8, 32}, false, false, true, plain,
                                      kRunOnly);

  const auto bias = PallasProgram("matmul_bias_relu").in<float, 2>("bias");
  matmul_program<float, float, bf16>(
      "matmul_bias_relu", {8, 8, 16}, false, false, false, [&](Index column, auto acc, auto z) {
        for (Index r = 0; r < z.extent(0); ++r) {
          for (Index c = 0; c < z.extent(1); ++c) {
            z(r, c) = bf16(std::max(acc(r, c) + bias(0, column + c), 0.0f));
          }
        }
      });
}

TEST_CASE("matmul_bf16: two outputs of one accumulator, rounded once at the end") {
  const PallasProgram program("matmul_bf16");
  const auto x = program.in<bf16, 2>("x"), y = program.in<bf16, 2>("y");
  for (const Way way : kWays) {
    auto z = program.out<bf16, 2>("z");
    auto f = program.out<float, 2>("f");
    Grid grid("matmul_bf16");
    const Axis i = grid.parallel("i", 2), j = grid.parallel("j", 3), k = grid.sequential("k", 4);
    const auto xb = grid.in("x", x, {.block = {8, 16}, .index = {i, k}});
    const auto yb = grid.in("y", y, {.block = {16, 8}, .index = {k, j}});
    const auto zb = grid.out("z", z, {.block = {8, 8}, .index = {i, j}});
    const auto fb = grid.out("f", f, {.block = {8, 8}, .index = {i, j}});
    execute(grid, way, [&](const Step& s) {
      if (s.first(k)) fill(s[fb], 0.0f);
      dot_add(s[xb], s[yb], s[fb]);
      if (s.last(k)) cast(s[fb], s[zb]);
    });
    const auto products = [&](Index e) {
      double sum = 0;
      for (Index t = 0; t < 64; ++t) {
        sum += std::abs(static_cast<double>(x(e / 24, t)) * static_cast<double>(y(t, e % 24)));
      }
      return 2 * 64 * unit_roundoff(DType::kF32) * sum;
    };
    program.expect_within("f", f, products);
    program.expect_within("z", z, [&](Index e) {
      return products(e) +
             2 * unit_roundoff(DType::kBF16) * std::abs(static_cast<double>(f.data()[e]));
    });
    for (Index e = 0; e < f.size(); ++e) CHECK(z.data()[e].bits == bf16(f.data()[e]).bits);
  }
}

TEST_CASE("block_sparse_matmul: tables name the blocks, untouched ones keep the aliased zeros") {
  const PallasProgram program("block_sparse_matmul");
  const auto rows = program.in<I32, 1>("rows"), cols = program.in<I32, 1>("cols");
  const auto x = program.in<float, 3>("x");
  const auto y = program.in<float, 2>("y");
  for (const Way way : kWays) {
    auto z = program.in<float, 2>("zeros");
    Grid grid("block_sparse_matmul");
    const auto row = grid.prefetch("rows", rows), col = grid.prefetch("cols", cols);
    const Axis j = grid.parallel("j", 2), t = grid.sequential("t", 6);
    const auto at_row = [=](const Step& s) { return Shape<2>{s[row](s.index(t)), s.index(j)}; };
    const auto at_col = [=](const Step& s) { return Shape<2>{s[col](s.index(t)), s.index(j)}; };
    const auto xb = grid.in("x", x, {.block = {squeezed, 8, 8}, .index = {t, 0, 0}});
    const auto yb = grid.in("y", y, {.block = {8, 8}, .index = at_col});
    grid.in("zeros", z, {.block = {8, 8}, .index = at_row});
    const auto zb = grid.out("z", z, {.block = {8, 8}, .index = at_row});
    execute(grid, way, [&](const Step& s) {
      const Index n = s.index(t);
      if (n == 0 || s[row](n) != s[row](n - 1)) fill(s[zb], 0.0f);
      dot_add(matrix(s[xb]), s[yb], s[zb]);
    });
    program.expect("z", z);
  }
}

TEST_CASE("grouped_matmul, paged_gather: a table in a squeezed dimension") {
  const PallasProgram grouped("grouped_matmul"), paged("paged_gather");
  for (const Way way : kWays) {
    {
      const auto group = grouped.in<I32, 1>("group");
      const auto x = grouped.in<float, 2>("x");
      const auto w = grouped.in<float, 3>("w");
      auto z = grouped.out<float, 2>("z");
      Grid grid("grouped_matmul");
      const auto table = grid.prefetch("group", group);
      const Axis j = grid.parallel("j", 3), i = grid.parallel("i", 5);
      const auto expert = [=](const Step& s) {
        return Shape<3>{s[table](s.index(i)), 0, s.index(j)};
      };
      const auto xb = grid.in("x", x, {.block = {8, 16}, .index = {i, 0}});
      const auto wb = grid.in("w", w, {.block = {squeezed, 16, 4}, .index = expert});
      const auto zb = grid.out("z", z, {.block = {8, 4}, .index = {i, j}});
      execute(grid, way, [&](const Step& s) {
        fill(s[zb], 0.0f);
        dot_add(s[xb], matrix(s[wb]), s[zb]);
      });
      grouped.expect("z", z);
    }
    {
      const auto table = paged.in<I32, 2>("table");
      const auto pages = paged.in<float, 3>("pages");
      auto z = paged.out<float, 3>("z");
      Grid grid("paged_gather");
      const auto entries = grid.prefetch("table", table);
      const Axis b = grid.parallel("b", 2), p = grid.parallel("p", 3);
      const auto page = [=](const Step& s) {
        return Shape<3>{s[entries](s.index(b), s.index(p)), 0, 0};
      };
      const auto xb = grid.in("pages", pages, {.block = {squeezed, 8, 4}, .index = page});
      const auto zb = grid.out("z", z, {.block = {squeezed, 8, 4}, .index = {b, p, 0}});
      execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
      paged.expect("z", z);
    }
  }
}

TEST_CASE("permuted_order, skipped_steps: tables in the index map and in the body") {
  const PallasProgram permuted("permuted_order"), skipped("skipped_steps");
  for (const Way way : kWays) {
    {
      const auto src = permuted.in<I32, 1>("src"), dst = permuted.in<I32, 1>("dst");
      const auto x = permuted.in<float, 1>("x");
      auto z = permuted.out<float, 1>("z");
      auto order = permuted.out<I32, 1>("order");
      Grid grid("permuted_order");
      const auto sources = grid.prefetch("src", src), places = grid.prefetch("dst", dst);
      const Axis i = grid.parallel("i", 6);
      const auto from = [=](const Step& s) { return Shape<1>{s[sources](s.index(i))}; };
      const auto to = [=](const Step& s) { return Shape<1>{s[places](s.index(i))}; };
      const auto xb = grid.in("x", x, {.block = {2}, .index = from});
      const auto zb = grid.out("z", z, {.block = {2}, .index = to});
      const auto ob = grid.out("order", order, {.block = {2}, .index = to});
      execute(grid, way, [&](const Step& s) {
        const Index n = s.index(i);
        for (Index e = 0; e < 2; ++e)
          s[zb](e) = s[xb](e) + 1000 * static_cast<float>(s[sources](n));
        fill(s[ob], static_cast<I32>(n));
      });
      permuted.expect("z", z);
      permuted.expect("order", order);
    }
    {
      const auto steps = skipped.in<I32, 1>("steps");
      const auto x = skipped.in<float, 2>("x");
      auto z = skipped.out<float, 2>("z");
      auto ran = skipped.out<I32, 2>("ran");
      Grid grid("skipped_steps");
      const auto counts = grid.prefetch("steps", steps);
      const Axis i = grid.parallel("i", 4), k = grid.sequential("k", 4);
      const auto xb = grid.in("x", x, {.block = {2, 4}, .index = {i, k}});
      const auto zb = grid.out("z", z, {.block = {2, 4}, .index = {i, 0}});
      const auto rb = grid.out("ran", ran, {.block = {2, 4}, .index = {i, 0}});
      execute(grid, way, [&](const Step& s) {
        if (s.first(k)) {
          fill(s[zb], 0.0f);
          fill(s[rb], 0);
        }
        if (s.index(k) >= s[counts](s.index(i))) return;
        add(s[zb], s[xb], s[zb]);
        for (Index e = 0; e < 8; ++e) s[rb].data()[(e / 4) * s[rb].stride(0) + e % 4] += 1;
      });
      skipped.expect("z", z);
      skipped.expect("ran", ran);
    }
  }
}

}  // namespace
}  // namespace kref
