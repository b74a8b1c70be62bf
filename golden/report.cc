// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "golden/judge.h"
#include "golden/report_text.h"

namespace kref {
namespace {

using detail::indices;
using detail::number;

// Enough digits to tell neighbours of the output's type apart; the expected value gets two more.
int digits_of(DType type) {
  switch (type) {
    case DType::kF64:
      return 17;
    case DType::kF32:
      return 9;
    case DType::kF16:
    case DType::kBF16:
      return 6;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 4;
    default:
      return 20;
  }
}

std::string tuple(const std::vector<Index>& at, const std::vector<std::string>& names) {
  std::string out = "(";
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (d > 0) out += ", ";
    if (d < names.size()) out += names[d] + "=";
    out += std::to_string(at[d]);
  }
  return out + ")";
}

std::string count_of(Index part, Index whole, const char* what) {
  std::string out = std::to_string(part) + " of " + std::to_string(whole) + " " + what;
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return out + " (" + number(percent, 3) + " %)";
}

}  // namespace

std::string report(const Verdict& v) {
  const std::string name = v.output + " " + name_of(v.dtype) + shape_string(v.shape);
  const Worst& w = v.worst;
  if (v.ok()) {
    std::string out = name + ": " + std::to_string(v.elements) + " elements right";
    if (w.element >= 0) {
      out += ", largest error " + number(w.ratio, 3) + " of its bound, at " + indices(w.index);
    }
    return out + "\n";
  }

  const int digits = digits_of(v.dtype);
  std::string out = name + ": " + count_of(v.wrong, v.elements, "elements wrong");
  // Where a tile is all that a device holds, it has no index but the device.
  const bool shards = w.tile.empty() && !w.device.empty();
  const char* pieces = shards ? " shards" : " tiles";
  out += ", in " + std::to_string(v.wrong_tiles) + " of " + std::to_string(v.tiles) + pieces + "\n";
  out += "  worst      " + v.output + indices(w.index) + "\n";
  const auto either = [&](double value, int shown, std::int64_t integer) {
    return w.integers ? std::to_string(integer) : number(value, shown);
  };
  const auto [expected, actual] = w.integers.value_or(std::pair<std::int64_t, std::int64_t>());
  out += "  expected   " + either(w.expected, std::min(17, digits + 2), expected) + "\n";
  out += "  actual     " + either(w.actual, digits, actual) + "\n";
  const double error = std::fabs(w.actual - w.expected);
  if (std::isfinite(error) && !w.integers) out += "  error      " + number(error, 4) + "\n";
  if (w.bound == 0) {
    out += "  bound      0 (compared exactly)\n";
  } else {
    out += "  bound      " + number(w.bound, 4);
    if (std::isfinite(w.ratio)) out += "; the error is " + number(w.ratio, 4) + " bounds";
    out += "\n";
    // The other bound, where there is one: whether the error is beyond chance or beyond doubt.
    if (w.bound != w.worst_bound) {
      out += "  worst case " + number(w.worst_bound, 4) + ", never passed by an honest machine\n";
    } else if (w.bound != w.likely_bound) {
      out += "  likely     " + number(w.likely_bound, 4) +
             ", hardly ever passed by an honest machine\n";
    }
  }
  if (!w.device.empty()) out += "  device     " + w.device + "\n";
  if (!w.step.empty()) out += "  grid step  " + w.step + "\n";
  if (!shards) out += "  tile       " + tuple(w.tile, v.tile_axes) + "\n";
  if (v.wrong_tiles > 1) {
    out += detail::cat("wrong", pieces, ":\n");
    for (const WrongTile& t : v.first_wrong_tiles) {
      out += "  " + (shards ? t.device : tuple(t.tile, v.tile_axes)) + "  ";
      out += count_of(t.wrong, t.elements, "wrong");
      if (!shards && !t.device.empty()) out += "  device " + t.device;
      out += "\n";
    }
    const auto listed = static_cast<Index>(v.first_wrong_tiles.size());
    if (v.wrong_tiles > listed) {
      out += "  and " + std::to_string(v.wrong_tiles - listed) + " more\n";
    }
  }
  out += "pattern: " + v.pattern;
  if (!v.detail.empty()) out += ": " + v.detail;
  out += "\n";
  if (!v.hint.empty()) out += "hint: " + v.hint + "\n";
  return out;
}

}  // namespace kref
