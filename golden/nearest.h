// SPDX-License-Identifier: Apache-2.0
// The known name closest to one that is not known, for "did you mean".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kref {

// The name among `known` with the fewest single-letter changes to `name`; empty when none is near
// enough to be a slip of the pen (more than two letters in five differ).
std::string nearest(std::string_view name, std::span<const std::string> known);

// "; did you mean 'trans_x'?" or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

// "a, b, c"; "none" when there are none.
std::string joined(std::span<const std::string> names);

}  // namespace kref
