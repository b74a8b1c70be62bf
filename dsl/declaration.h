// SPDX-License-Identifier: Apache-2.0
// What Grid's templates hand on to the code that exists once. Internal to dsl/.
#pragma once

#include <string_view>

#include "dsl/array.h"
#include "dsl/batch.h"
#include "dsl/block_spec.h"

namespace kref::detail {

enum class Kind : std::uint8_t { kIn, kOut, kInOut, kScratch, kPrefetch };
struct Program;

// An operand as declared.
struct Declaration {
  Kind kind;
  std::string_view name;
  const MutableArrayRef& array;  // without the dimensions of batches
  std::span<const BlockDim> block;
  const IndexMapData& map;
  Buffered mode;
  std::span<const BatchAxis> batches;
  bool own_window;
};
struct Body {
  const void* object;
  void (*call)(const void* object, const Step& step);
};

}  // namespace kref::detail
