// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "dsl/work_meter.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

Array poisoned(DType type, std::initializer_list<Index> shape) {
  Array out(type, std::span<const Index>(shape.begin(), shape.size()));
  with_dtype(type, [&]<class T>() {
    const auto elements = out.mutable_elements<T>();
    std::fill(elements.begin(), elements.end(), poison<T>());
  });
  return out;
}

// a[i0, i1]: rank 4 to rank 2, or a[i0]: rank 3 to rank 2.
template <class Void>
BasicArrayRef<Void> at(BasicArrayRef<Void> a, std::initializer_list<Index> index) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  Index offset = 0;
  std::size_t d = 0;
  for (const Index i : index) offset += i * a.strides[d++];
  a.data = static_cast<Byte*>(a.data) + offset * static_cast<Index>(size_of(a.dtype));
  a.extents = {a.extents[d], a.extents[d + 1]};
  a.strides = {a.strides[d], a.strides[d + 1]};
  a.rank = 2;
  return a;
}

void check_operand(const char* who, const char* name, const ArrayRef& a, DType type,
                   std::initializer_list<Index> shape) {
  KREF_CHECK(
      a.dtype == type && std::equal(a.shape().begin(), a.shape().end(), shape.begin(), shape.end()),
      who, ": ", name, " is ", to_string(a), ", expected ", name_of(type),
      shape_string({shape.begin(), shape.size()}));
}

}  // namespace

KvCache::KvCache(DType type, const Sizes& n, Full full)
    : sizes_(n),
      full_(full),
      tokens_(static_cast<std::size_t>(std::max<Index>(0, n.sequences)), 0) {
  KREF_CHECK(is_float(type), "KvCache: element type ", name_of(type), ", expected a float type");
  KREF_CHECK(n.slots > 0, "KvCache: ", n.slots, " slots, expected at least 1");
  k_ = poisoned(type, {n.sequences, n.slots, n.heads, n.depth});
  v_ = poisoned(type, {n.sequences, n.slots, n.heads, n.width});
  const Index batches[] = {n.sequences};
  lengths_ = Array(DType::kI32, batches);
}

void KvCache::check_sequence(Index sequence) const {
  KREF_CHECK(sequence >= 0 && sequence < sizes_.sequences, "KvCache: sequence ", sequence,
             ", expected 0 to ", sizes_.sequences - 1);
}

void KvCache::append(Index sequence, const ArrayRef& k, const ArrayRef& v) {
  check_sequence(sequence);
  check_operand("KvCache", "k", k, k_.dtype(), {sizes_.heads, sizes_.depth});
  check_operand("KvCache", "v", v, v_.dtype(), {sizes_.heads, sizes_.width});
  Index& tokens = tokens_[static_cast<std::size_t>(sequence)];
  KREF_CHECK(tokens < sizes_.slots || full_ == Full::kRoll, "KvCache: sequence ", sequence,
             " has filled its ", sizes_.slots, " slots");
  const Index slot = tokens % sizes_.slots;
  detail::copy(k, at(k_.mutable_ref(), {sequence, slot}));
  detail::copy(v, at(v_.mutable_ref(), {sequence, slot}));
  ++tokens;
  lengths_.mutable_elements<std::int32_t>()[static_cast<std::size_t>(sequence)] =
      static_cast<std::int32_t>(length(sequence));
}

void KvCache::append(const ArrayRef& k_new, const ArrayRef& v_new) {
  check_operand("KvCache", "k_new", k_new, k_.dtype(),
                {sizes_.sequences, sizes_.heads, sizes_.depth});
  check_operand("KvCache", "v_new", v_new, v_.dtype(),
                {sizes_.sequences, sizes_.heads, sizes_.width});
  for (Index b = 0; b < sizes_.sequences && full_ == Full::kRefuse; ++b) {
    KREF_CHECK(length(b) < sizes_.slots, "KvCache: sequence ", b, " has filled its ", sizes_.slots,
               " slots");  // before any sequence takes its token
  }
  for (Index b = 0; b < sizes_.sequences; ++b) append(b, at(k_new, {b}), at(v_new, {b}));
}

void KvCache::clear(Index sequence) {
  check_sequence(sequence);
  tokens_[static_cast<std::size_t>(sequence)] = 0;
  lengths_.mutable_elements<std::int32_t>()[static_cast<std::size_t>(sequence)] = 0;
}

Index KvCache::tokens(Index sequence) const {
  check_sequence(sequence);
  return tokens_[static_cast<std::size_t>(sequence)];
}

Index KvCache::length(Index sequence) const { return std::min(tokens(sequence), sizes_.slots); }

Index KvCache::slot(Index sequence, Index i) const {
  KREF_CHECK(i >= 0 && i < length(sequence), "KvCache: token ", i, " of sequence ", sequence,
             ", which has ", length(sequence));
  return (tokens(sequence) - length(sequence) + i) % sizes_.slots;
}

Array with_token(const char* name, const Array& cache, const ArrayRef& token,
                 const ArrayRef& lengths) {
  KREF_CHECK(cache.rank() == 4, "with_token: the cache of ", name, " is ", to_string(cache.ref()),
             ", expected rank 4");
  const Index sequences = cache.extent(0), slots = cache.extent(1);
  check_operand("with_token", name, token, cache.dtype(),
                {sequences, cache.extent(2), cache.extent(3)});
  check_operand("with_token", "lengths", lengths, DType::kI32, {sequences});
  if (sequences > 0) detail::need_elements("with_token", "lengths", lengths.data);
  Array out = Array::unwritten(cache.dtype(), cache.shape());
  const bool copies = cache.bytes() > 0 && !detail::shapes_only();
  if (copies) std::memcpy(out.mutable_data(), cache.data(), cache.bytes());
  for (Index b = 0; b < sequences; ++b) {
    const Index length = lengths.ref<const std::int32_t, 1>()(b);
    KREF_CHECK(length >= 0 && length <= slots, "with_token: the length of sequence ", b, " is ",
               length, ", expected 0 to S = ", slots);
    if (length == 0 || !copies) continue;
    detail::copy(at(token, {b}), at(out.mutable_ref(), {b, length - 1}));
  }
  return out;
}

}  // namespace kref
