// SPDX-License-Identifier: Apache-2.0
// Tensor<T, R>: owning, dense, row-major, aligned to 64 bytes.
#pragma once

#include <memory>
#include <new>
#include <utility>

#include "dsl/ref.h"

namespace kref {

namespace detail {

// Bytes aligned to 64, a cache line and the widest vector; freed by the deleter, which keeps large
// blocks for the next allocate().
struct FreeBytes {
  std::size_t bytes = 0;  // of the block
  void operator()(void* p) const;
};
using Bytes = std::unique_ptr<void, FreeBytes>;
// Throws std::bad_alloc when there is no such memory; 0 bytes are allowed.
Bytes allocate(std::size_t bytes);

// The bytes of an array; Error as checked_product.
std::size_t checked_bytes(const char* who, const Index* extents, std::size_t rank,
                          std::size_t element);

}  // namespace detail

template <ElementType T, std::size_t R>
class Tensor {
 public:
  Tensor() = default;

  // Every element has the poison value: what was never written shows. Error on a negative extent
  // and on more bytes than an Index counts.
  explicit Tensor(const Shape<R>& extents) : Tensor(extents, poison<T>()) {}
  Tensor(const Shape<R>& extents, T value) : Tensor(Unfilled{}, extents) { fill(value); }

  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  Tensor(const Tensor& other) : Tensor(Unfilled{}, other.extents_) {
    std::uninitialized_copy_n(other.data(), size(), data());
  }
  Tensor& operator=(const Tensor& other) { return *this = Tensor(other); }

  T* data() { return static_cast<T*>(data_.get()); }
  const T* data() const { return static_cast<const T*>(data_.get()); }
  Index extent(std::size_t d) const { return extents_[d]; }
  const Shape<R>& extents() const { return extents_; }
  Index size() const { return ref().size(); }

  Ref<T, R> ref() { return Ref<T, R>(data(), extents_, strides_); }
  Ref<const T, R> ref() const { return Ref<const T, R>(data(), extents_, strides_); }
  operator Ref<T, R>() { return ref(); }
  operator Ref<const T, R>() const { return ref(); }

  template <class... I>
  T& operator()(I... index) {
    return ref()(index...);
  }
  template <class... I>
  const T& operator()(I... index) const {
    return ref()(index...);
  }

  void fill(T value) { std::uninitialized_fill_n(data(), size(), value); }

 private:
  struct Unfilled {};
  Tensor(Unfilled, const Shape<R>& extents)
      : data_(detail::allocate(detail::checked_bytes("Tensor", extents.data(), R, sizeof(T)))),
        extents_(extents) {
    detail::dense_strides("Tensor", extents_.data(), R, strides_.data());
  }

  detail::Bytes data_;
  Shape<R> extents_{};
  Shape<R> strides_{};
};

}  // namespace kref
