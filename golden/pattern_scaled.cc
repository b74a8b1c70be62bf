// SPDX-License-Identifier: Apache-2.0
// Guesses in which each element is wrong by itself: scaled, negated, or what a hypothesis of the
// operation gives.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "golden/pattern.h"
#include "golden/report_text.h"

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
    const double v = std::strtod(number(middle, digits).c_str(), nullptr);
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
  guesses.push_back({"scaled by c", "c = " + number(factor, 9), evidence.enough(1)});
}

namespace {

// One hypothesis against an output.
class Trial {
 public:
  Trial(const Compared& c, const WrongElements& wrong, const Hypothesis& h)
      : c_(c), wrong_(wrong), h_(h) {}

  // Narrows the choices down by some of the elements; false when none is left.
  bool narrow_by_samples() {
    // A value of a hypothesis costs a sum over k.
    constexpr std::size_t kMostWrong = 2048, kMostRight = 256;
    for (const Index i : sample(wrong_.elements, kMostWrong)) {
      evidence_.add(c_, i, c_.bound(i));
      if (!narrow(i)) return false;
    }
    // The fault has the whole tile, so it must also explain what is right there.
    std::size_t right = 0;
    bool left = true;
    for (const TileCount& t : wrong_.tiles) {
      if (!left || right >= kMostRight) break;
      c_.for_tile(t.tile, [&](Index i) {
        if (c_.wrong(i)) return true;
        left = narrow(i);
        return left && ++right < kMostRight;
      });
    }
    return left;
  }

  // A choice that explains every element of every wrong tile; -1 when there is none. `unsure`: some
  // choice was left untried.
  Index confirmed(bool& unsure) const {
    constexpr std::size_t kMostTried = 8;  // each may cost a whole product
    std::vector<Index> order;
    for (const Index p : h_.preferred) {
      if (std::find(alive_.begin(), alive_.end(), p) != alive_.end()) order.push_back(p);
    }
    for (std::size_t k = alive_.size(); k-- > 0;) {
      if (std::find(order.begin(), order.end(), alive_[k]) == order.end())
        order.push_back(alive_[k]);
    }
    unsure = order.size() > kMostTried;
    order.resize(std::min(order.size(), kMostTried));
    for (const Index choice : order) {
      if (explains_all(choice)) return choice;
    }
    return -1;
  }

  Evidence evidence() const { return evidence_; }
  double choices() const { return choices_; }

 private:
  // Is element i where the hypothesis puts it?
  bool explains(Index i, double value) const {
    // Rounding gives zero for next to nothing only.
    if (c_.actual(i) == 0 && value != 0 && std::fabs(value) >= smallest_normal(c_.dtype()))
      return false;
    return c_.fits(i, value);
  }

  bool narrow(Index i) {
    values_.clear();
    h_.values(i, values_);
    if (choices_ == 0) {
      for (std::size_t k = 0; k < values_.size(); ++k) alive_.push_back(static_cast<Index>(k));
      choices_ = static_cast<double>(values_.size());
    }
    std::erase_if(alive_,
                  [&](Index k) { return !explains(i, values_[static_cast<std::size_t>(k)]); });
    return !alive_.empty();
  }

  bool explains_all(Index choice) const {
    const auto at = static_cast<std::size_t>(choice);
    const std::vector<double> all = h_.all ? h_.all(choice) : std::vector<double>();
    std::vector<double> values;
    return std::all_of(wrong_.tiles.begin(), wrong_.tiles.end(), [&](const TileCount& t) {
      return c_.for_tile(t.tile, [&](Index i) {
        if (h_.all) return explains(i, all[static_cast<std::size_t>(i)]);
        values.clear();
        h_.values(i, values);
        return explains(i, values[at]);
      });
    });
  }

  const Compared& c_;
  const WrongElements& wrong_;
  const Hypothesis& h_;
  std::vector<Index> alive_;  // choices that explain all elements so far
  double choices_ = 0;
  Evidence evidence_;
  std::vector<double> values_;
};

}  // namespace

void guess_hypotheses(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  for (const Hypothesis& h : c.expectation().hypotheses) {
    Trial trial(c, wrong, h);
    if (!trial.narrow_by_samples()) continue;
    bool unsure = false;
    const Index choice = trial.confirmed(unsure);
    if (choice >= 0) {
      guesses.push_back(
          {h.pattern, h.detail ? h.detail(choice) : "", trial.evidence().enough(trial.choices())});
    } else if (unsure) {
      guesses.push_back({h.pattern, "", false});
    }
  }
}

}  // namespace kref::detail
