// SPDX-License-Identifier: Apache-2.0
#include "dsl/overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace kref {

namespace detail {

Reach reach_of(const char* who, const ArrayRef& view) {
  constexpr Index kMost = Index{1} << 60;
  const auto element = static_cast<Index>(size_of(view.dtype));
  if (checked_product(who, view.extents.data(), view.rank) == 0) return {};
  Reach reach{0, element};
  for (std::size_t d = 0; d < view.rank; ++d) {
    Index bytes = 0;
    const bool fits = !__builtin_mul_overflow(view.extents[d] - 1, view.strides[d], &bytes) &&
                      !__builtin_mul_overflow(bytes, element, &bytes) &&
                      !__builtin_add_overflow(bytes < 0 ? reach.begin : reach.end, bytes,
                                              bytes < 0 ? &reach.begin : &reach.end) &&
                      reach.begin >= -kMost && reach.end <= kMost;
    KREF_CHECK(fits, who, ": dimension ", d, " of ", to_string(view), " has stride ",
               view.strides[d], ", which reaches further than 2^60 bytes");
  }
  return reach;
}

namespace {

// A summand of an offset: coefficient * x for some x in 0..most.
struct Term {
  Index coefficient, most;
};

// The sums sum(coefficient * x) over all terms, as a search for one of them.
class Sums {
 public:
  void add(Index coefficient, Index most) {
    if (coefficient == 0 || most == 0) return;
    terms_[count_++] = {coefficient, most};
  }

  // Largest coefficients first; terms whose sums fill an arithmetic progression become one.
  void simplify() {
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& a, const Term& b) { return a.coefficient < b.coefficient; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const Term t = terms_[i];
      if (kept > 0) {
        Term& last = terms_[kept - 1];
        const Index ratio = t.coefficient / last.coefficient;
        if (t.coefficient % last.coefficient == 0 && ratio - 1 <= last.most) {
          last.most += ratio * t.most;
          continue;
        }
      }
      terms_[kept++] = t;
    }
    count_ = kept;
    std::reverse(terms_.begin(), terms_.begin() + count_);
    // What the terms from i on can reach, and what divides the sums of all of them but the last:
    // the bytes within an element, whose coefficient is 1.
    for (std::size_t i = count_; i-- > 0;) {
      above_[i] = above_[i + 1] + terms_[i].coefficient * terms_[i].most;
      divisor_[i] = i + 1 == count_ ? 0 : std::gcd(divisor_[i + 1], terms_[i].coefficient);
    }
  }

  // Whether the terms from `from` on have the sum `rest`; true when `steps` run out.
  bool reach(Index rest, int& steps, std::size_t from = 0) const {
    if (rest < 0 || rest > above_[from]) return false;
    if (rest == 0) return true;
    if (divisor_[from] != 0 && rest % divisor_[from] > above_[count_ - 1]) return false;
    const Term& t = terms_[from];  // there is one: rest > 0
    const Index high = std::min(t.most, rest / t.coefficient);
    const Index low = cdiv(std::max<Index>(0, rest - above_[from + 1]), t.coefficient);
    for (Index x = high; x >= low; --x) {
      if (--steps < 0 || reach(rest - x * t.coefficient, steps, from + 1)) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t kMost = 2 * kMaxRank + 1;
  std::array<Term, kMost> terms_{};
  std::array<Index, kMost + 1> above_{}, divisor_{};
  std::size_t count_ = 0;
};

}  // namespace
}  // namespace detail

// Byte s of element i of a and byte t of element j of b are one when, with strides in bytes and
// delta the distance of the data pointers, sum(a_d i_d) - sum(b_d j_d) + s - t = delta.
bool overlap(const ArrayRef& a, const ArrayRef& b) {
  const detail::Reach ra = detail::reach_of("overlap", a), rb = detail::reach_of("overlap", b);
  if (ra.begin == ra.end || rb.begin == rb.end) return false;
  auto delta = static_cast<Index>(reinterpret_cast<std::uintptr_t>(b.data) -
                                  reinterpret_cast<std::uintptr_t>(a.data));
  if (delta + rb.begin >= ra.end || ra.begin >= delta + rb.end) return false;
  detail::Sums sums;
  const auto add = [&](Index coefficient, Index most) {
    // x counts down where the coefficient is negative.
    if (coefficient < 0) delta -= coefficient * most;
    sums.add(coefficient < 0 ? -coefficient : coefficient, most);
  };
  const auto element_a = static_cast<Index>(size_of(a.dtype)),
             element_b = static_cast<Index>(size_of(b.dtype));
  for (std::size_t d = 0; d < a.rank; ++d) {
    if (a.extents[d] > 1) add(a.strides[d] * element_a, a.extents[d] - 1);
  }
  for (std::size_t d = 0; d < b.rank; ++d) {
    if (b.extents[d] > 1) add(-b.strides[d] * element_b, b.extents[d] - 1);
  }
  delta += element_b - 1;
  sums.add(1, element_a + element_b - 2);
  sums.simplify();
  int steps = 1 << 16;
  return sums.reach(delta, steps);
}

}  // namespace kref
