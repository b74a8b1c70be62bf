// SPDX-License-Identifier: Apache-2.0
// Which outputs are legal: the rules that Grid derives from index maps before the first step,
// against going through all steps with a list of the blocks seen.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/grid_model.h"
#include "tests/refusal.h"

namespace kref {
namespace {

struct Case {
  std::vector<Index> sizes;
  std::size_t parallel = 0;
  std::array<Part, 3> map;
  std::array<Index, 3> blocks;
};

Case random_case(std::mt19937& random) {
  const auto pick = [&](Index low, Index high) {
    return low + static_cast<Index>(random() % static_cast<unsigned>(high - low + 1));
  };
  Case c;
  c.sizes.resize(static_cast<std::size_t>(pick(0, 4)));
  for (Index& size : c.sizes) size = pick(1, 4);
  c.parallel = static_cast<std::size_t>(pick(0, static_cast<Index>(c.sizes.size())));
  for (std::size_t d = 0; d < 3; ++d) {
    Part& p = c.map[d];
    p.axis = static_cast<int>(pick(-1, static_cast<Index>(c.sizes.size()) - 1));
    if (pick(0, 3) == 0) p.d = pick(1, 3);
    if (pick(0, 3) == 0) p.m = pick(1, 3);
    if (pick(0, 3) == 0) p.s = pick(-1, 2);
    if (pick(0, 3) == 0) p.o = pick(0, 2);
    // Mostly as many blocks as the map needs, sometimes too few.
    Index top = 0;
    for (Index v = 0; v < (p.axis < 0 ? 1 : c.sizes[static_cast<std::size_t>(p.axis)]); ++v) {
      std::vector<Index> at(c.sizes.size());
      if (p.axis >= 0) at[static_cast<std::size_t>(p.axis)] = v;
      top = std::max(top, p.at(at));
    }
    c.blocks[d] = std::max<Index>(1, top + 1 - (pick(0, 19) == 0 ? 1 : 0));
  }
  return c;
}

// What is wrong first: "" when nothing is. Out of range comes before the other rules, since the
// whole table is checked for it before the first step.
struct Verdict {
  bool range = false, shared = false, left = false;
  Index step = -1;  // of the rule that counts
};

Verdict go_through(const Case& c) {
  std::map<std::array<Index, 3>, std::pair<Index, std::vector<Index>>> seen;  // last step, point
  Verdict v;
  std::vector<Index> at(c.sizes.size());
  Index range_step = -1, shared_step = -1, left_step = -1;
  for (Index step = 0;; ++step) {
    std::array<Index, 3> block;
    for (std::size_t d = 0; d < 3; ++d) {
      block[d] = c.map[d].at(at);
      if ((block[d] < 0 || block[d] >= c.blocks[d]) && range_step < 0) range_step = step;
    }
    const std::vector<Index> point(at.begin(),
                                   at.begin() + static_cast<std::ptrdiff_t>(c.parallel));
    const auto it = seen.find(block);
    if (it != seen.end()) {
      if (it->second.second != point && shared_step < 0) shared_step = step;
      if (it->second.first != step - 1 && left_step < 0) left_step = step;
    }
    seen[block] = {step, point};
    std::size_t a = c.sizes.size();
    while (a-- > 0) {
      if (++at[a] < c.sizes[a]) break;
      at[a] = 0;
    }
    if (a >= c.sizes.size()) break;
  }
  v.range = range_step >= 0;
  v.shared = shared_step >= 0;
  v.left = left_step >= 0;
  v.step = v.range ? range_step : v.shared ? shared_step : left_step;
  return v;
}

TEST_CASE("an output is refused exactly when going through its steps finds a fault") {
  std::mt19937 random(7);
  int legal = 0, range = 0, shared = 0, left = 0;
  for (int round = 0; round < 12000; ++round) {
    const Case c = random_case(random);
    const Verdict v = go_through(c);
    for (const bool callable : {false, true}) {
      Tensor<std::int8_t, 3> z({c.blocks[0], c.blocks[1], c.blocks[2]});
      Grid grid("g");
      std::vector<Axis> axes;
      for (std::size_t a = 0; a < c.sizes.size(); ++a) {
        const std::string name(1, static_cast<char>('a' + a));
        axes.push_back(a < c.parallel ? grid.parallel(name, c.sizes[a])
                                      : grid.sequential(name, c.sizes[a]));
      }
      const auto expr = [&](std::size_t d) {
        const Part& p = c.map[d];
        if (p.axis < 0) return AxisExpr(p.o);
        AxisExpr e = axes[static_cast<std::size_t>(p.axis)];
        if (p.d != 1) e = e / p.d;
        if (p.m != 0) e = e % p.m;
        return e * p.s + p.o;
      };
      const auto index = callable ? IndexMap<3>([&](const Step& s) {
        std::vector<Index> at;
        for (const Axis& a : axes) at.push_back(s.index(a));
        return Shape<3>{c.map[0].at(at), c.map[1].at(at), c.map[2].at(at)};
      })
                                  : IndexMap<3>(expr(0), expr(1), expr(2));
      grid.out("z", z, {.block = {1, 1, 1}, .index = index});
      const std::string message = refusal([&] { grid.run([](const Step&) {}); });
      const auto says = [&](const char* part) { return message.find(part) != std::string::npos; };
      CAPTURE(round);
      CAPTURE(callable);
      CAPTURE(message);
      const bool refused = message != "(not refused)";
      CHECK(refused == (v.range || v.shared || v.left));
      if (callable || !refused) continue;
      if (v.range) {
        CHECK(says("is out of range"));
        CHECK(says(detail::cat("of step ", v.step, c.sizes.empty() ? " " : " (").c_str()));
        ++range;
      } else if (v.shared) {
        CHECK((says("ignores parallel axis") || says("shares a block between")));
        ++shared;
      } else {
        CHECK(says("was left before"));
        CHECK(says(detail::cat("of step ", v.step, " (").c_str()));
        ++left;
      }
    }
    legal += v.range || v.shared || v.left ? 0 : 1;
  }
  CHECK(legal > 1000);
  CHECK(range > 200);
  CHECK(shared > 500);
  CHECK(left > 500);
}

}  // namespace
}  // namespace kref
