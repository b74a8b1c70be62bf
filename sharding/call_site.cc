// SPDX-License-Identifier: Apache-2.0
#include "sharding/call_site.h"

#include <string_view>

#include "dsl/check.h"

namespace kref {

std::string to_string(const CallSite& where) {
  const std::string_view path = where.file;
  if (path.empty()) return {};
  return detail::cat(std::string(path.substr(path.rfind('/') + 1)), ":", where.line);
}

}  // namespace kref
