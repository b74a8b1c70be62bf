// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_options.h"

#include <cmath>
#include <limits>

#include "golden/operation.h"

namespace kref {

reference::Window read_window(const Options& options) {
  const nlohmann::json* given = options.find("window");
  if (given == nullptr || given->is_null()) return {};
  const std::string expected = "[left, right], each a whole number from 0 or null";
  if (!given->is_array() || given->size() != 2) options.refuse("window", expected);
  const auto side = [&](const nlohmann::json& value) -> std::optional<Index> {
    if (value.is_null()) return std::nullopt;
    // The reader stores what has no sign as unsigned; past 2^63 it is as good as unbounded.
    if (!value.is_number_unsigned() && !(value.is_number_integer() && value.get<Index>() >= 0)) {
      options.refuse("window", expected);
    }
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
    return static_cast<Index>(std::min(value.get<std::uint64_t>(), kMost));
  };
  return {.left = side((*given)[0]), .right = side((*given)[1])};
}

std::optional<double> read_soft_cap(const Options& options) {
  const std::optional<double> cap = options.number("soft_cap");
  if (cap && *cap <= 0) options.refuse("soft_cap", "a number above 0");
  return cap;
}

bool needs_definition(DType type, double scale) {
  using Limits = std::numeric_limits<float>;
  const double size = std::fabs(scale);
  return type == DType::kF64 || size > Limits::max() || (size > 0 && size < Limits::min());
}

void check_input_dtype(const Run& run, const char* name, const std::vector<DType>& legal,
                       const char* as) {
  const auto at = run.in.find(name);
  if (at == run.in.end()) return;
  const DType found = at->second.dtype();
  if (std::find(legal.begin(), legal.end(), found) != legal.end()) return;
  std::string expected;
  for (const DType type : legal) {
    if (expected.find(name_of(type)) == std::string::npos) {
      expected += (expected.empty() ? "" : " or ") + std::string(name_of(type));
    }
  }
  refuse_run(run, "in.", name, " has element type ", name_of(found), ", expected ", expected, as);
}

}  // namespace kref
