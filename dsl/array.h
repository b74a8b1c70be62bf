// SPDX-License-Identifier: Apache-2.0
// Array and ArrayRef: arrays whose element type and rank are known at run time only, as they come
// out of a file. Code that does not depend on the type works on these, so that it exists once.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "dsl/ref.h"
#include "dsl/tensor.h"

namespace kref {

// A view: element type, rank 0 to 6, extents and strides in elements. The last stride is 1 unless
// a transposed view was asked for; see Ref for the rest.
template <class Void>
struct BasicArrayRef {
  DType dtype = DType::kF32;
  std::size_t rank = 0;
  Shape<kMaxRank> extents{};
  Shape<kMaxRank> strides{};
  Void* data = nullptr;

  BasicArrayRef() = default;
  // Dense, row-major. Error on a rank above 6, a negative extent, more elements than an Index
  // counts.
  BasicArrayRef(DType type, std::span<const Index> shape, Void* bytes)
      : dtype(type), rank(shape.size()), data(bytes) {
    KREF_CHECK(rank <= kMaxRank, "array of rank ", rank, ", expected at most ", kMaxRank);
    for (std::size_t d = 0; d < rank; ++d) extents[d] = shape[d];
    detail::dense_strides("array", extents.data(), rank, strides.data());
  }
  template <ElementType T, std::size_t R>
  BasicArrayRef(Ref<T, R> ref) : dtype(dtype_of<T>), rank(R), data(ref.data()) {
    for (std::size_t d = 0; d < R; ++d) {
      extents[d] = ref.extent(d);
      strides[d] = ref.stride(d);
    }
  }
  operator BasicArrayRef<const Void>() const requires(!std::is_const_v<Void>) {
    BasicArrayRef<const Void> out;
    out.dtype = dtype, out.rank = rank, out.extents = extents, out.strides = strides,
    out.data = data;
    return out;
  }

  std::span<const Index> shape() const { return {extents.data(), rank}; }
  // Number of elements. Error when an Index does not count them, which takes a broadcast view.
  Index size() const { return detail::checked_product("array", extents.data(), rank); }

  // The same view with its type. Error when element type or rank differ.
  template <ElementType T, std::size_t R>
  Ref<T, R> ref() const {
    KREF_CHECK(dtype == dtype_of<T> && rank == R, "array is ", name_of(dtype), " of rank ", rank,
               ", expected ", name_of(dtype_of<T>), " of rank ", R);
    Shape<R> e{}, s{};
    for (std::size_t d = 0; d < R; ++d) e[d] = extents[d], s[d] = strides[d];
    return Ref<T, R>(static_cast<T*>(data), e, s);
  }
};

using ArrayRef = BasicArrayRef<const void>;
using MutableArrayRef = BasicArrayRef<void>;

// "F32[3,5]".
std::string to_string(const ArrayRef& array);
// "[3,5]".
std::string shape_string(std::span<const Index> shape);

// A dense, row-major array that shares ownership of its bytes: of memory of its own, or of a file
// mapped into memory. Copies share the bytes. Aligned to its element size.
class Array {
 public:
  Array() = default;
  // New memory, zero bytes. Error on a rank above 6, a negative extent, too many elements.
  Array(DType type, std::span<const Index> shape);
  // New memory that the caller fills: its bytes are whatever they are.
  static Array unwritten(DType type, std::span<const Index> shape);
  // Takes the memory of a tensor over.
  template <ElementType T, std::size_t R>
  Array(Tensor<T, R> tensor) {
    const auto kept = std::make_shared<Tensor<T, R>>(std::move(tensor));
    view_ = ArrayRef(kept->ref());
    own_ = kept->data();
    owner_ = kept;
  }
  // Existing bytes, kept alive by `owner`.
  Array(DType type, std::span<const Index> shape, std::shared_ptr<const void> owner,
        const void* data);

  DType dtype() const { return view_.dtype; }
  std::size_t rank() const { return view_.rank; }
  std::span<const Index> shape() const { return view_.shape(); }
  Index extent(std::size_t d) const { return view_.extents[d]; }
  Index size() const { return view_.size(); }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(dtype()); }
  const void* data() const { return view_.data; }
  // The elements as T; Error when T is not the element type.
  template <ElementType T>
  std::span<const T> elements() const {
    KREF_CHECK(dtype() == dtype_of<T>, "array is ", name_of(dtype()), ", expected ",
               name_of(dtype_of<T>));
    return {static_cast<const T*>(data()), static_cast<std::size_t>(size())};
  }
  // Element i of the flattened array as a double (I64 past 2^53 rounds).
  double at(Index i) const;

  ArrayRef ref() const { return view_; }
  operator ArrayRef() const { return view_; }
  // Keeps the bytes alive, for views of them.
  const std::shared_ptr<const void>& owner() const { return owner_; }
  // For whoever made the array, before it is shared. Bytes that are somebody else's (a file's, a
  // collective's result that all devices have) are copied first: views from before see the old
  // ones.
  void* mutable_data();
  MutableArrayRef mutable_ref();
  template <ElementType T>
  std::span<T> mutable_elements() {
    KREF_CHECK(dtype() == dtype_of<T>, "array is ", name_of(dtype()), ", expected ",
               name_of(dtype_of<T>));
    return {static_cast<T*>(mutable_data()), static_cast<std::size_t>(size())};
  }

 private:
  ArrayRef view_;
  std::shared_ptr<const void> owner_;
  void* own_ = nullptr;  // view_.data when the memory is ours to write
};

}  // namespace kref
