// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge_partials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dsl/overlap.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

const char* word(LogBase base) { return base == LogBase::kE ? "e" : "2"; }

bool has_shape(const ArrayRef& a, std::span<const Index> shape) {
  return std::equal(a.shape().begin(), a.shape().end(), shape.begin(), shape.end());
}

void check_parts(std::span<const PartialAttention> parts, const MutableArrayRef& o,
                 const std::optional<MutableArrayRef>& lse) {
  KREF_CHECK(!parts.empty(), "merge_partials: no parts");
  KREF_CHECK(o.rank >= 1 && is_float(o.dtype), "merge_partials: o is ", to_string(o),
             ", expected floats of rank 1 or more");
  const auto rows = o.shape().first(o.rank - 1);
  const LogBase base = parts[0].base;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartialAttention& p = parts[i];
    KREF_CHECK(static_cast<LogBase>(p.base) == base, "merge_partials: the lse of part ", i,
               " is in base ", word(p.base), ", that of part 0 in base ", word(base));
    KREF_CHECK(is_float(p.o.dtype) && has_shape(p.o, o.shape()), "merge_partials: o of part ", i,
               " is ", to_string(p.o), ", expected floats ", shape_string(o.shape()));
    KREF_CHECK(p.lse.dtype == DType::kF32 && has_shape(p.lse, rows), "merge_partials: lse of part ",
               i, " is ", to_string(p.lse), ", expected F32", shape_string(rows));
    KREF_CHECK(!overlap(p.o, o) && !overlap(p.lse, o) &&
                   !(lse && (overlap(p.o, *lse) || overlap(p.lse, *lse))),
               "merge_partials: an output overlaps part ", i);
  }
  KREF_CHECK(!lse || (lse->dtype == DType::kF32 && has_shape(*lse, rows)),
             "merge_partials: lse is ", lse ? to_string(*lse) : "", ", expected F32",
             shape_string(rows));
}

// Where row `at` of an array begins, in elements.
Index offset_of(const ArrayRef& a, const Shape<kMaxRank>& at, std::size_t rank) {
  Index offset = 0;
  for (std::size_t d = 0; d < rank; ++d) offset += at[d] * a.strides[d];
  return offset;
}

}  // namespace

void merge_partials(std::span<const PartialAttention> parts, const MutableArrayRef& o,
                    const std::optional<MutableArrayRef>& lse) {
  check_parts(parts, o, lse);
  const auto count = static_cast<Index>(parts.size());
  const std::size_t rank = o.rank - 1;
  const Index width = o.extents[rank];
  const LogBase base = parts[0].base;
  Index rows = 1;
  for (std::size_t d = 0; d < rank; ++d) rows *= o.extents[d];
  Tensor<float, 1> logs({count}), weights({count}), sum({1});
  std::vector<float> out(static_cast<std::size_t>(width));
  Shape<kMaxRank> at{};
  for (; rows > 0; --rows) {
    float most = kNone;
    for (Index i = 0; i < count; ++i) {
      const PartialAttention& p = parts[static_cast<std::size_t>(i)];
      logs(i) = static_cast<const float*>(p.lse.data)[offset_of(p.lse, at, rank)];
      if (logs(i) > most || std::isnan(logs(i))) most = logs(i);
    }
    sub(logs, most == kNone ? 0.0f : most, weights.ref());
    base == LogBase::kE ? exp(weights, weights.ref()) : exp2(weights, weights.ref());
    std::fill(out.begin(), out.end(), 0.0f);
    sum(0) = 0;
    for (Index i = 0; i < count; ++i) {
      if (logs(i) == kNone) continue;
      const ArrayRef& part = parts[static_cast<std::size_t>(i)].o;
      sum(0) += weights(i);
      with_dtype(part.dtype, [&]<class T>() {
        const T* row = static_cast<const T*>(part.data) + offset_of(part, at, rank);
        for (Index e = 0; e < width; ++e) {
          float& to = out[static_cast<std::size_t>(e)];
          to = std::fma(weights(i), static_cast<float>(row[e * part.strides[rank]]), to);
        }
      });
    }
    const bool none = most == kNone;
    with_dtype(o.dtype, [&]<class T>() {
      T* row = static_cast<T*>(o.data) + offset_of(o, at, rank);
      for (Index e = 0; e < width; ++e) {
        const float v = none ? 0.0f : out[static_cast<std::size_t>(e)] / sum(0);
        row[e * o.strides[rank]] = static_cast<T>(v);
      }
    });
    if (lse) {
      log(sum, sum.ref());
      const float total = base == LogBase::kE ? sum(0) : sum(0) * 1.44269504f;
      static_cast<float*>(lse->data)[offset_of(*lse, at, rank)] = none ? kNone : most + total;
    }
    for (std::size_t d = rank; d-- > 0 && ++at[d] == o.extents[d];) at[d] = 0;
  }
}

}  // namespace kref
