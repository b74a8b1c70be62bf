// SPDX-License-Identifier: Apache-2.0
#include "golden/dims.h"

#include <sstream>
#include <vector>

#include "golden/operation.h"

namespace kref {
namespace {

std::vector<std::string> words(std::string_view dims) {
  std::istringstream in{std::string(dims)};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// "B H|1 S" -> "[B, H|1, S]".
std::string listed(const std::vector<std::string>& letters) {
  std::string out = "[";
  for (const std::string& l : letters) out += (out.size() > 1 ? ", " : "") + l;
  return out + "]";
}

}  // namespace

void Dims::bind(const std::string& tensor, const Array& array, std::string_view dims) {
  const std::vector<std::string> letters = words(dims);
  if (array.rank() != letters.size()) {
    refuse_run(run_, tensor, ' ', to_string(array), " has rank ", array.rank(), ", expected ",
               letters.size(), ": ", listed(letters));
  }
  for (std::size_t d = 0; d < letters.size(); ++d) {
    const char letter = letters[d][0];
    const bool may_be_one = letters[d].size() > 1;
    const Index found = array.extent(d);
    if (may_be_one && found == 1) continue;
    const auto [at, is_new] = sizes_.try_emplace(letter, Size{found, tensor});
    if (is_new || at->second.size == found) continue;
    refuse_run(run_, tensor, ' ', to_string(array), ", ", listed(letters), ", has ", letter, " = ",
               found, ", expected ", at->second.size, " as in ", at->second.from,
               may_be_one ? " or 1" : "");
  }
}

}  // namespace kref
