// SPDX-License-Identifier: Apache-2.0
// Elements of a dense array counted in one number, row-major, as a plain loop visits them.
#pragma once

#include <cstddef>
#include <vector>

#include "dsl/ref.h"

namespace kref {

// The index in each dimension of the element that is `flat`-th in an array of shape `shape`.
inline std::vector<Index> unravel(Index flat, const std::vector<Index>& shape) {
  std::vector<Index> at(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    at[d] = flat % shape[d];
    flat /= shape[d];
  }
  return at;
}

// The reverse: the place of the element at index `at`.
inline Index ravel(const std::vector<Index>& at, const std::vector<Index>& shape) {
  Index flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + at[d];
  return flat;
}

}  // namespace kref
