// SPDX-License-Identifier: Apache-2.0
#include "golden/alternatives.h"

#include <algorithm>

namespace kref {
namespace {

// Quick looks at some elements, wrong and right ones: most alternatives end here, and a large run
// is not computed again for them.
bool plausible(const Alternative& other, const Compared& c, const WrongElements& wrong) {
  constexpr Index kLooks = 8;
  if (!other.plausible) return true;
  const auto wrongs = static_cast<Index>(wrong.elements.size());
  for (Index l = 0; l < kLooks; ++l) {
    const Index bad = wrong.elements[static_cast<std::size_t>(l * wrongs / kLooks)];
    const Index any = l * c.size() / kLooks;
    for (const Index i : {bad, any}) {
      if (!other.plausible(i, c.actual(i))) return false;
    }
  }
  return true;
}

// Does it explain every element, and on evidence enough?
enum class Match { kNo, kPerhaps, kSure };

Match match(const Alternative& other, const Compared& c, const WrongElements& wrong) {
  if (!plausible(other, c, wrong)) return Match::kNo;
  const Expectation expected = other.expect(c.array());
  const Compared o(expected, c.array(), BoundKind::kLikely);
  for (Index i = 0; i < o.size(); ++i) {
    if (o.wrong(i)) return Match::kNo;
  }
  // Bounds that are only wider than those of the request explain an error, but are no evidence.
  detail::Evidence evidence;
  for (const Index i : wrong.elements) evidence.add(c, i, o.bound(i));
  const auto choices = static_cast<double>(c.expectation().alternatives.size());
  return evidence.enough(choices * other.choices) ? Match::kSure : Match::kPerhaps;
}

}  // namespace

std::string matching_alternatives(const Compared& c, const WrongElements& wrong) {
  std::string names;
  for (const Alternative& other : c.expectation().alternatives) {
    if (other.fault || match(other, c, wrong) != Match::kSure) continue;
    names += (names.empty() ? "" : ", ") + other.name;
  }
  if (names.empty()) return "";
  return "matches " + names + ": all " + std::to_string(c.size()) +
         " elements lie within its bounds";
}

namespace detail {

void guess_faults(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  for (const Alternative& other : c.expectation().alternatives) {
    if (!other.fault) continue;
    const Match found = match(other, c, wrong);
    if (found == Match::kNo) continue;
    const std::string text = other.detail ? other.detail() : "";
    const auto same = std::find_if(guesses.begin(), guesses.end(),
                                   [&](const Guess& g) { return g.pattern == other.name; });
    if (same == guesses.end()) {
      guesses.push_back({other.name, text, found == Match::kSure});
      continue;
    }
    same->sure = same->sure || found == Match::kSure;
    if (!text.empty()) {
      same->detail += (same->detail.empty() ? "" : ", or ") + text;
    }
  }
}

}  // namespace detail
}  // namespace kref
