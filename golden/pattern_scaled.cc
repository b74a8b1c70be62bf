// SPDX-License-Identifier: Apache-2.0
// Guesses in which each element is wrong by itself: scaled, negated, or what a hypothesis of the
// operation gives.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "golden/pattern.h"

namespace kref::detail {
namespace {

// What rounding alone does to c times the expected value of an element: the bound scaled along, and
// one more rounding to the output's type. Integers may be rounded in any way.
double scaled_tolerance(const Compared& c, Index i, double factor) {
  if (c.exact()) return 1;
  return std::fabs(factor) * c.bound(i) + half_spacing(c.dtype(), factor * c.expected(i));
}

// At most `most` of the elements, evenly spread.
std::vector<Index> sample(const std::vector<Index>& elements, std::size_t most) {
  if (elements.size() <= most) return elements;
  std::vector<Index> out;
  for (std::size_t k = 0; k < most; ++k) out.push_back(elements[k * elements.size() / most]);
  return out;
}

// Is every wrong element what it should be with the opposite sign? Adds to the evidence.
bool negated(const Compared& c, const WrongElements& wrong, Evidence& evidence) {
  for (const Index i : wrong.elements) {
    // Of an infinity the opposite one; a NaN has no sign.
    if (std::isnan(c.expected(i)) || !c.fits(i, -c.expected(i))) return false;
    evidence.add(c, i, c.bound(i));
  }
  return true;
}

// The factors that take every expected value into reach of the actual one.
struct Factors {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool any() const { return low <= high; }
};

Factors common_factors(const Compared& c, const WrongElements& wrong, double about) {
  Factors f;
  const double past = past_range(c.dtype());
  for (const Index i : wrong.elements) {
    const double a = c.actual(i), e = c.expected(i), t = scaled_tolerance(c, i, about);
    if (std::isnan(a) || std::isnan(e) || (std::isinf(e) && !std::isinf(a))) return {1, 0};
    if (std::isinf(a)) {  // overflowed: the factor is at least so large
      const double least = std::isinf(e) ? 0 : (past - t) / std::fabs(e);
      if ((a > 0) == (e > 0)) f.low = std::max(f.low, least);
      if ((a > 0) != (e > 0)) f.high = std::min(f.high, -least);
      if (!f.any()) return f;
      continue;
    }
    if (e == 0) {
      if (std::fabs(a) > t) return {1, 0};
      continue;
    }
    const double p = (a - t) / e, q = (a + t) / e;
    f.low = std::max(f.low, std::min(p, q));
    f.high = std::min(f.high, std::max(p, q));
    if (!f.any()) return f;
  }
  return f;
}

// The number with the fewest digits between low and high.
double plainest(double low, double high) {
  const double middle = low + (high - low) / 2;
  for (int digits = 1; digits < 17; ++digits) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*g", digits, middle);
    const double v = std::strtod(text, nullptr);
    if (v >= low && v <= high) return v;
  }
  return middle;
}

}  // namespace

void guess_scaled(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  Evidence evidence;
  if (negated(c, wrong, evidence)) {
    guesses.push_back({"sign", "every wrong element has the opposite sign", evidence.enough(1)});
    return;
  }
  // The factor is read off the element that says most about it.
  Index best = -1;
  double sharpest = 0;
  for (const Index i : wrong.elements) {
    const double e = std::fabs(c.expected(i));
    if (!std::isfinite(e) || !std::isfinite(c.actual(i))) continue;
    const double sharp = e / std::max(c.exact() ? 0.5 : c.bound(i), 1e-300);
    if (best < 0 || sharp > sharpest) best = i, sharpest = sharp;
  }
  if (best < 0) {
    // Nothing but infinities: a factor of ordinary size may have made them, if they were near.
    constexpr double kOrdinary = 1024;
    const Factors f = common_factors(c, wrong, 1);
    if (f.any() && f.low < kOrdinary && f.high > -kOrdinary) {
      guesses.push_back({"scaled by c", "", false});
    }
    return;
  }
  if (c.expected(best) == 0) return;

  const double about = c.actual(best) / c.expected(best);
  const Factors f = common_factors(c, wrong, about);
  // A factor that may as well be 0 says nothing; 1 would be right.
  if (!f.any() || (f.low <= 0 && f.high >= 0) || (f.low <= 1 && f.high >= 1)) return;
  const double factor = plainest(f.low, f.high);
  evidence = Evidence();
  for (const Index i : wrong.elements) {
    const double spread = std::fabs(c.expected(i)) * (f.high - f.low);
    if (i != best) evidence.add(c, i, scaled_tolerance(c, i, factor) + spread);
  }
  guesses.push_back({"scaled by c", "c = " + number(factor), evidence.enough(1)});
}

void guess_hypotheses(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  // A value of a hypothesis costs a sum over k, so large faults are sampled.
  constexpr std::size_t kMostWrong = 2048, kMostRight = 256;
  const std::vector<Index> checked = sample(wrong.elements, kMostWrong);
  for (const Hypothesis& h : c.expectation().hypotheses) {
    std::vector<Index> alive;  // choices that explain all elements so far
    std::vector<double> values;
    double choices = 0;
    Evidence evidence;
    bool first = true;
    // Keeps the choices that put element i where it is.
    const auto narrow = [&](Index i) {
      const bool zero = c.actual(i) == 0;
      values.clear();
      h.values(i, values);
      if (first) {
        for (std::size_t k = 0; k < values.size(); ++k) alive.push_back(static_cast<Index>(k));
        choices = static_cast<double>(values.size());
        first = false;
      }
      std::erase_if(alive, [&](Index k) {
        const double v = values[static_cast<std::size_t>(k)];
        // Rounding gives zero for next to nothing only.
        if (zero && std::fabs(v) >= smallest_normal(c.dtype())) return true;
        return !c.fits(i, v);
      });
      return !alive.empty();
    };
    const auto explained = [&](Index i) {
      evidence.add(c, i, c.bound(i));
      return narrow(i);
    };
    if (!std::all_of(checked.begin(), checked.end(), explained)) continue;
    // The fault has the whole tile, so it must also explain what is right there.
    std::vector<Index> right;
    for (const TileCount& t : wrong.tiles) {
      if (right.size() >= kMostRight) break;
      c.for_tile(t.tile, [&](Index i) {
        if (!c.wrong(i)) right.push_back(i);
        return right.size() < kMostRight;
      });
    }
    if (!std::all_of(right.begin(), right.end(), narrow)) continue;
    Index choice = alive.back();
    for (const Index p : h.preferred) {
      if (std::find(alive.begin(), alive.end(), p) != alive.end()) {
        choice = p;
        break;
      }
    }
    guesses.push_back({h.pattern, h.detail ? h.detail(choice) : "", evidence.enough(choices)});
  }
}

}  // namespace kref::detail
