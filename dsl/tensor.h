// SPDX-License-Identifier: Apache-2.0
// Tensor<T, R>: owning, dense, row-major, aligned to 64 bytes.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "dsl/ref.h"

namespace kref {

namespace detail {

// Bytes aligned to 64, or to 2 MiB with huge pages advised where that helps; freed by the deleter.
struct FreeBytes {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<void, FreeBytes>;
// Throws std::bad_alloc when there is no such memory; 0 bytes are allowed.
Bytes allocate(std::size_t bytes);

// extents multiplied, times `element` bytes. Error on a negative extent or past 2^62 bytes.
std::size_t checked_bytes(const Index* extents, std::size_t rank, std::size_t element);

}  // namespace detail

template <ElementType T, std::size_t R>
class Tensor {
 public:
  Tensor() = default;

  // Every element has the poison value: what was never written shows.
  explicit Tensor(const Shape<R>& extents)
      : data_(detail::allocate(detail::checked_bytes(extents.data(), R, sizeof(T)))),
        extents_(extents) {
    fill(poison<T>());
  }
  Tensor(const Shape<R>& extents, T value) : Tensor(extents) { fill(value); }

  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  Tensor(const Tensor& other) : Tensor(other.extents_) {
    for (Index i = 0; i < size(); ++i) data()[i] = other.data()[i];
  }
  Tensor& operator=(const Tensor& other) { return *this = Tensor(other); }

  T* data() { return static_cast<T*>(data_.get()); }
  const T* data() const { return static_cast<const T*>(data_.get()); }
  Index extent(std::size_t d) const { return extents_[d]; }
  const Shape<R>& extents() const { return extents_; }
  Index size() const { return ref().size(); }

  Ref<T, R> ref() { return Ref<T, R>(data(), extents_); }
  Ref<const T, R> ref() const { return Ref<const T, R>(data(), extents_); }
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

  void fill(T value) {
    for (Index i = 0; i < size(); ++i) data()[i] = value;
  }

 private:
  detail::Bytes data_;
  Shape<R> extents_{};
};

}  // namespace kref
