// SPDX-License-Identifier: Apache-2.0
// Reductions over the members of a group, a piece at a time, so that each element is read once and
// the running values stay in the cache; for collectives_sum.cc.
#pragma once

#include <functional>

#include "sharding/collectives.h"

namespace kref::detail {

enum class Fold { kSum, kMean, kMax, kMin, kArgMax, kArgMin };

// How the terms become a result: each is rounded to `wire` first where that is set, and folded in
// `accumulate` in the stated order.
struct Folding {
  Fold fold = Fold::kSum;
  DType operand = DType::kF32;
  std::optional<DType> wire = {};
  DType term = DType::kF32;  // what a sum or mean adds when no option says otherwise
  DType accumulate = DType::kF32;
  DType result = DType::kF32;
  SumOrder order = SumOrder::kRank;
};

// The reduction of a sum or a mean of `operand`. Error that names the collective for SumOptions
// which do not go with the type.
Folding sum_folding(const char* collective, Fold fold, DType operand, const SumOptions& sum);
// Of an extremum or its place.
Folding extremum_folding(Fold fold, DType operand);

// The part of each member's array that is reduced, in elements: `rows` rows of `columns`, `stride`
// apart. The result of it is dense.
struct Part {
  Index begin = 0, rows = 1, columns = 0, stride = 0;
};

// Where the result goes: `out`, memory for all of it; null: to memory that is reused for each
// piece. Then each piece of it is announced with its place, in bytes: published(begin, bytes,
// data).
struct Sink {
  std::byte* out = nullptr;
  std::function<void(std::size_t, std::size_t, const std::byte*)> published = {};
};

// Reduces a part over the n members of a matched exchange. `chunk`: which of the n chunks it is,
// for the ring order.
void reduce(Exchange& exchange, Index n, Index chunk, const Folding& reduction, const Part& part,
            const Sink& sink);

}  // namespace kref::detail
