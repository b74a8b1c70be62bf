// SPDX-License-Identifier: Apache-2.0
// The judge on corrupted copies of real runs: each is caught, in the right tile, and the guess at
// the pattern is right or "unknown".
#include "tests/mutants.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <set>

#include "golden/judge.h"
#include "golden/rounding.h"

namespace kref {
namespace {

Array array_of(DType type, std::span<const Index> shape, const std::vector<double>& values) {
  Array out(type, shape);
  with_dtype(type, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_integral_v<T>) {
        out.mutable_elements<T>()[i] = static_cast<T>(static_cast<std::int64_t>(values[i]));
      } else {
        out.mutable_elements<T>()[i] = T(values[i]);
      }
    }
  });
  return out;
}

// Written again, not taken from the judge: is `a` a wrong answer?
bool is_wrong(const Expectation& e, Index element, double a, DType type) {
  const auto i = static_cast<std::size_t>(element);
  const double v = e.value[i], bound = e.likely.empty() ? 0 : e.likely[i];
  const unsigned may = e.overflow.empty() ? 0u : e.overflow[i];
  const double range = type == DType::kF16 || type == DType::kF8E5M2 ? 0x1p16
                       : type == DType::kF32 || type == DType::kBF16
                           ? 0x1p128
                           : std::numeric_limits<double>::infinity();
  if (std::isnan(a)) return !std::isnan(v) && (may & Expectation::kNaN) == 0;
  if (std::isnan(v)) return true;
  if (std::isinf(a)) {
    const unsigned bit = a > 0 ? Expectation::kPlusInfinity : Expectation::kMinusInfinity;
    return std::copysign(1.0, a) * v < range - bound && (may & bit) == 0;
  }
  return !(std::fabs(a - v) <= bound);
}

struct Count {
  int made = 0, hidden = 0, named = 0, unknown = 0, misnamed = 0;
  int shy = 0;       // unknown although eight elements or more are wrong
  int nameless = 0;  // made without a name that it could be given
};

// Tiles to cut a run into: its own, thirds, and small ones that divide nothing.
std::vector<MatmulTile> tilings(const MatmulFile& run) {
  const std::size_t r = run.z.rank();
  const auto third = [](Index n) { return std::max<Index>(1, cdiv(n, 3)); };
  return {run.tile,
          {third(run.z.extent(r - 2)), third(run.z.extent(r - 1)), third(run.depth)},
          {4, 5, 7}};
}

// Would sums that stop early give every element of the wrong tiles? Of data with zeros in the right
// places a row of zeros, say, is just that, and no judge can know better.
bool sums_stop_early(const MatmulFile& run, const Expectation& e, const Mutator& mutator,
                     const Mutant& mutant, const std::set<Index>& tiles) {
  for (std::size_t stop = 0; stop + 1 < static_cast<std::size_t>(run.depth); ++stop) {
    bool explains = true;
    for (const Index tile : tiles) {
      for (const Index i : mutator.tile(tile)) {
        std::vector<double> values;
        e.hypotheses.at(0).values(i, values);
        const double off = std::fabs(values.at(stop) - mutant.z[static_cast<std::size_t>(i)]);
        const double bound = e.likely.empty() ? 0 : e.likely[static_cast<std::size_t>(i)];
        explains = explains && off <= bound + half_spacing(run.z.dtype(), values.at(stop));
      }
    }
    if (explains) return true;
  }
  return false;
}

void try_mutant(const MatmulFile& run, const Expectation& e, const Mutator& mutator,
                const Mutant& mutant, Count& count) {
  const DType type = run.z.dtype();
  std::set<Index> wrong_tiles;
  Index wrong = 0;
  for (Index i = 0; i < run.z.size(); ++i) {
    if (!is_wrong(e, i, mutant.z[static_cast<std::size_t>(i)], type)) continue;
    ++wrong;
    wrong_tiles.insert(mutator.tile_of(i));
  }
  const Verdict v = judge(e, array_of(type, run.z.shape(), mutant.z));
  ++count.made;
  if (mutant.pattern == "unknown") ++count.nameless;
  CHECK(v.wrong == wrong);
  CHECK(v.wrong_tiles == static_cast<Index>(wrong_tiles.size()));
  if (wrong == 0) {  // within the bounds everywhere: equal rows, a tile of zeros before, ...
    CHECK(v.ok());
    ++count.hidden;
    return;
  }
  REQUIRE_FALSE(v.ok());

  // The right tile, by index and by step.
  const Index tile = mutator.tile_of(v.worst.element);
  CHECK(wrong_tiles.count(tile) == 1);
  std::string step;
  REQUIRE(v.tile_axes.size() == v.worst.tile.size());
  for (std::size_t d = 0; d < v.worst.tile.size(); ++d) {
    step += v.tile_axes[d] + "=" + std::to_string(v.worst.tile[d]) + ", ";
  }
  CHECK(v.worst.step.rfind(step.substr(0, step.size() - 2), 0) == 0);
  CHECK(mutator.tile_at(v.worst.tile) == tile);
  auto listed = wrong_tiles.begin();
  for (const WrongTile& w : v.first_wrong_tiles) CHECK(mutator.tile_at(w.tile) == *listed++);
  const std::string text = report(v);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 24);

  if (v.pattern == "unknown") {
    ++count.unknown;
    if (wrong >= 8 && mutant.pattern != "unknown") {
      ++count.shy;
    }
    return;
  }
  // Where one element is wrong, and it is not finite, that is all there is to see.
  const bool one_odd = wrong == 1 && !std::isfinite(v.worst.actual) && v.pattern == "non-finite";
  if (v.pattern == mutant.pattern || one_odd) {
    ++count.named;
    return;
  }
  if (v.pattern == "last k block dropped" &&
      sums_stop_early(run, e, mutator, mutant, wrong_tiles)) {
    ++count.named;
    return;
  }
  ++count.misnamed;
  FAIL_CHECK(run.name << ", " << mutant.kind << ": guessed " << v.pattern << ": " << v.detail
                      << "\n"
                      << text);
}

// Tries every mutant of the runs and prints how they fared. Of each kind that has a name, at least
// the share `floor` of those that are wrong has to get it: a judge that says "unknown" to all, or
// that takes everything, is no judge.
void try_all(const std::vector<MatmulFile>& runs, double floor) {
  std::map<std::string, Count> counts;
  for (MatmulFile run : runs) {
    for (const MatmulTile& tile : tilings(run)) {
      run.cut(tile);
      const Expectation e = expect_matmul(run.run).at(0);
      CAPTURE(run.name);
      CHECK(judge(e, run.z).ok());
      if (run.z.size() == 0) continue;
      Mutator mutator(run, e);
      for (const Mutant& mutant : mutator.all()) {
        CAPTURE(mutant.kind);
        try_mutant(run, e, mutator, mutant, counts[mutant.kind]);
      }
    }
  }
  Count all;
  const auto print = [](const std::string& kind, const Count& c) {
    std::printf("%-32s %6d %8d %6d %8d %6d\n", kind.c_str(), c.made, c.hidden, c.named, c.unknown,
                c.misnamed);
  };
  std::printf("%-32s %6s %8s %6s %8s %6s\n", "mutant", "made", "in bound", "named", "unknown",
              "wrong");
  for (const auto& entry : counts) {
    const std::string& kind = entry.first;  // clang 14 captures no structured bindings
    const Count& c = entry.second;
    print(kind, c);
    CAPTURE(kind);
    CHECK(c.hidden <= c.made / 4);
    const int wrong = c.made - c.hidden;
    if (c.nameless == 0) CHECK(c.named >= floor * wrong);
    if (c.nameless == c.made) CHECK(c.unknown >= 0.9 * wrong);
    all.made += c.made, all.hidden += c.hidden, all.named += c.named;
    all.unknown += c.unknown, all.misnamed += c.misnamed, all.shy += c.shy;
  }
  print("all", all);
  std::printf("unknown although 8 elements or more are wrong and a name exists: %d\n", all.shy);
  CHECK(counts.size() >= 20);
  CHECK(all.named > all.made / 2);
  CHECK(all.misnamed == 0);
}

TEST_CASE("corrupted copies of the runs") {
  const std::vector<MatmulFile> runs = matmul_files();
  REQUIRE(runs.size() >= 50);
  try_all(runs, 0.65);
}

// Values that repeat themselves, as test data does, so that several faults look the same.
double patterned(int kind, Index i, Index j, Index columns) {
  const Index n = i * columns + j;
  switch (kind) {
    case 0:
      return static_cast<double>(n * 7919 % 3 - 1);  // -1, 0, 1
    case 1:
      return i % 3 == j % 3 ? 1 : 0;  // rows and columns repeat
    case 2:
      return i == j ? 1 : 0;  // the identity
    case 3:
      return static_cast<double>(i + j);  // symmetric, every row a shift
    case 4:
      return static_cast<double>(n);  // arange
    case 5:
      return static_cast<double>(i - j);  // antisymmetric
    case 6:
      return 0.1 * static_cast<double>((n * n + 3 * n) % 17);  // not exact in f32
    default:
      return std::ldexp(1.0, static_cast<int>((3 * i + j) % 5));
  }
}

template <class T>
MatmulFile patterned_run(int x_kind, int y_kind, Index m, Index n, Index k) {
  const auto filled = [](int kind, Index rows, Index columns) {
    const Index shape[] = {rows, columns};
    std::vector<double> values;
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) values.push_back(patterned(kind, i, j, columns));
    }
    return array_of(dtype_of<T>, shape, values);
  };
  MatmulFile file;
  file.name = std::to_string(x_kind) + " x " + std::to_string(y_kind);
  file.run.op = "matmul";
  file.run.in.emplace("x", filled(x_kind, m, k));
  file.run.in.emplace("y", filled(y_kind, k, n));
  const Expectation e = expect_matmul(file.run).at(0);
  const Index shape[] = {m, n};
  const bool integers = !is_float(dtype_of<T>);
  file.z = array_of(integers ? DType::kI32 : dtype_of<T>, shape, e.value);
  file.tile = {3, 4, 5};
  file.depth = k;
  return file;
}

TEST_CASE("corrupted products of data that repeats itself") {
  std::vector<MatmulFile> runs;
  for (int x = 0; x < 8; ++x) {
    for (int y = 0; y < 8; ++y) {
      runs.push_back(patterned_run<float>(x, y, 12, 12, 12));
      runs.push_back(patterned_run<bf16>(x, y, 8, 15, 20));
      runs.push_back(patterned_run<std::int8_t>(x, y, 9, 9, 6));
    }
  }
  try_all(runs, 0.4);
}

}  // namespace
}  // namespace kref
