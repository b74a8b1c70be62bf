// SPDX-License-Identifier: Apache-2.0
#include "dsl/array.h"

#include <cstring>

#include "dsl/work_meter.h"

namespace kref {

namespace detail {

void refuse_shape(const char* who, const Index* extents, std::size_t rank, int bad, Index unit) {
  const bool negative = extents[bad] < 0;
  throw Error(cat(who, ": shape ", shape_string({extents, rank}), ": dimension ", bad,
                  negative ? " is negative" : " makes more than 2^63 - 1 ",
                  negative    ? ""
                  : unit == 1 ? "elements"
                              : "bytes"));
}

std::size_t checked_bytes(const char* who, const Index* extents, std::size_t rank,
                          std::size_t element) {
  return static_cast<std::size_t>(checked_product(who, extents, rank, static_cast<Index>(element)));
}

}  // namespace detail

std::string shape_string(std::span<const Index> shape) {
  std::string out = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) out += ',';
    out += std::to_string(shape[d]);
  }
  return out + "]";
}

std::string to_string(const ArrayRef& array) {
  return name_of(array.dtype) + shape_string(array.shape());
}

Array::Array(DType type, std::span<const Index> shape) : Array(unwritten(type, shape)) {
  if (own_ != nullptr && bytes() > 0) std::memset(own_, 0, bytes());
}

Array Array::unwritten(DType type, std::span<const Index> shape) {
  KREF_CHECK(shape.size() <= kMaxRank, "array of rank ", shape.size(), ", expected at most ",
             kMaxRank);
  const std::size_t n = detail::checked_bytes("array", shape.data(), shape.size(), size_of(type));
  if (detail::shapes_only()) return Array(type, shape, nullptr, nullptr);
  detail::Bytes memory = detail::allocate(n);
  Array array;
  array.own_ = memory.get();
  array.view_ = ArrayRef(type, shape, array.own_);
  array.owner_ = std::shared_ptr<const void>(std::move(memory));
  return array;
}

Array::Array(DType type, std::span<const Index> shape, std::shared_ptr<const void> owner,
             const void* data)
    : view_(type, shape, data), owner_(std::move(owner)) {
  KREF_DCHECK(reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0);
}

double Array::at(Index i) const {
  return with_dtype(
      dtype(), [&]<class T>() { return static_cast<double>(static_cast<const T*>(data())[i]); });
}

void* Array::mutable_data() {
  if (own_ == nullptr && bytes() > 0 && !detail::shapes_only()) {
    Array copy = unwritten(dtype(), shape());
    std::memcpy(copy.own_, data(), bytes());
    *this = std::move(copy);
  }
  return own_;
}

MutableArrayRef Array::mutable_ref() { return MutableArrayRef(dtype(), shape(), mutable_data()); }

}  // namespace kref
