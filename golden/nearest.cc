// SPDX-License-Identifier: Apache-2.0
#include "golden/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace kref {
namespace {

// Levenshtein's distance, one row of the table at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kLongest = 64;  // no name of ours is longer; keeps hostile names cheap
  if (name.size() > kLongest) return "";
  std::string best;
  std::size_t least = ~std::size_t{0};
  for (const std::string& candidate : known) {
    const std::size_t d = distance(name, candidate);
    if (d < least) least = d, best = candidate;
  }
  // "transpose_x" for "trans_x" is four letters in eleven.
  return least * 5 <= std::max(name.size(), best.size()) * 2 ? best : "";
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string best = nearest(name, known);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

std::string joined(std::span<const std::string> names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "none" : out;
}

}  // namespace kref
