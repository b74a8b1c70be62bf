// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot_general.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>

#include "dsl/tensor.h"
#include "kernels/move_ops.h"

namespace kref {

Precision precision_of(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "DEFAULT" || upper == "BF16_BF16_F32") return Precision::kBF16;
  if (upper == "HIGH" || upper == "BF16_BF16_F32_X3") return Precision::kBF16x3;
  if (upper == "BF16_BF16_F32_X6") return Precision::kBF16x6;
  KREF_CHECK(upper == "HIGHEST" || upper == "FLOAT32" || upper == "F32_F32_F32", "precision \"",
             std::string(name),
             "\" is not offered, expected DEFAULT, HIGH, HIGHEST, float32, BF16_BF16_F32, "
             "BF16_BF16_F32_X3, BF16_BF16_F32_X6 or F32_F32_F32");
  return Precision::kF32;
}

namespace detail {
namespace {

// The dimensions of an operand by what they are for, slowest first.
struct Sides {
  std::vector<std::size_t> batch, free, contract;
};

Sides sides_of(const char* name, const ArrayRef& a, const std::vector<Index>& contract,
               const std::vector<Index>& batch) {
  Sides s;
  std::uint32_t seen = 0;
  const auto take = [&](const std::vector<Index>& from, std::vector<std::size_t>& to) {
    for (const Index d : from) {
      KREF_CHECK(d >= 0 && static_cast<std::size_t>(d) < a.rank, "dot_general: dimension ", d,
                 " of ", name, " ", to_string(a), ", expected 0..", a.rank, " - 1");
      KREF_CHECK((seen >> d & 1) == 0, "dot_general: dimension ", d, " of ", name,
                 " is named twice");
      seen |= 1u << d;
      to.push_back(static_cast<std::size_t>(d));
    }
  };
  take(batch, s.batch);
  take(contract, s.contract);
  for (std::size_t d = 0; d < a.rank; ++d) {
    if ((seen >> d & 1) == 0) s.free.push_back(d);
  }
  return s;
}

void check_pairs(const char* what, const ArrayRef& x, const ArrayRef& y,
                 const std::vector<std::size_t>& xs, const std::vector<std::size_t>& ys) {
  KREF_CHECK(xs.size() == ys.size(), "dot_general: x has ", xs.size(), " ", what,
             " dimensions, y has ", ys.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    KREF_CHECK(x.extents[xs[i]] == y.extents[ys[i]], "dot_general: ", what, " dimension ", xs[i],
               " of x ", to_string(x), " and ", ys[i], " of y ", to_string(y),
               ", expected equal extents");
  }
}

Index product(const ArrayRef& a, const std::vector<std::size_t>& dims) {
  Index n = 1;
  for (const std::size_t d : dims) n *= a.extents[d];
  return n;
}

// The stride with which these dimensions are one; 0 where none is, 1 for one element.
Index joint_stride(const ArrayRef& a, const std::vector<std::size_t>& dims) {
  Index stride = 0, run = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (a.extents[dims[i]] == 1) continue;
    if (run == 1) {
      stride = a.strides[dims[i]];
    } else if (a.strides[dims[i]] != stride * run) {
      return 0;
    }
    run *= a.extents[dims[i]];
  }
  return run == 1 ? 1 : stride;
}

// An operand as batch x rows x cols matrices that `dot` reads: where it lies, or copied.
struct Matrices {
  ArrayRef first;
  std::vector<Index> offsets;  // of each batch, in elements
  bool transposed = false;     // stored with rows and columns swapped
  Bytes memory;

  Matrices(const ArrayRef& a, const std::vector<std::size_t>& batch,
           const std::vector<std::size_t>& rows, const std::vector<std::size_t>& cols) {
    const Index m = product(a, rows), n = product(a, cols), count = product(a, batch);
    const Index row_stride = joint_stride(a, rows), col_stride = joint_stride(a, cols);
    first = a;
    first.rank = 2;
    const bool plain = (n == 1 || col_stride == 1) && row_stride > 0;
    transposed = !plain && (m == 1 || row_stride == 1) && col_stride > 0;
    if (plain || transposed) {
      first.extents = transposed ? Shape<kMaxRank>{n, m} : Shape<kMaxRank>{m, n};
      first.strides = {transposed ? col_stride : row_stride, 1};
      offsets.assign(static_cast<std::size_t>(count), 0);
      for (Index b = 0; b < count; ++b) {
        Index rest = b;
        for (std::size_t i = batch.size(); i-- > 0;) {
          offsets[static_cast<std::size_t>(b)] += rest % a.extents[batch[i]] * a.strides[batch[i]];
          rest /= a.extents[batch[i]];
        }
      }
      return;
    }
    ArrayRef ordered = a;
    std::size_t d = 0;
    for (const auto* part : {&batch, &rows, &cols}) {
      for (const std::size_t from : *part) {
        ordered.extents[d] = a.extents[from];
        ordered.strides[d] = a.strides[from];
        ++d;
      }
    }
    memory =
        allocate(checked_bytes("dot_general", ordered.extents.data(), a.rank, size_of(a.dtype)));
    copy_strided("dot_general", ordered, MutableArrayRef(a.dtype, ordered.shape(), memory.get()));
    const Index shape[] = {m, n};
    first = ArrayRef(a.dtype, shape, memory.get());
    for (Index b = 0; b < count; ++b) offsets.push_back(b * m * n);
  }

  ArrayRef operator[](std::size_t b) const {
    ArrayRef one = first;
    one.data = static_cast<const std::byte*>(first.data) +
               offsets[b] * static_cast<Index>(size_of(first.dtype));
    return one;
  }
};

}  // namespace

void dot_general(const ArrayRef& x, const ArrayRef& y, const DotDimensions& dims,
                 const MutableArrayRef& out, Precision precision) {
  const Sides xs = sides_of("x", x, dims.contract_x, dims.batch_x),
              ys = sides_of("y", y, dims.contract_y, dims.batch_y);
  check_pairs("contracted", x, y, xs.contract, ys.contract);
  check_pairs("batch", x, y, xs.batch, ys.batch);
  std::vector<Index> shape;
  for (const std::size_t d : xs.batch) shape.push_back(x.extents[d]);
  for (const std::size_t d : xs.free) shape.push_back(x.extents[d]);
  for (const std::size_t d : ys.free) shape.push_back(y.extents[d]);
  KREF_CHECK(std::ranges::equal(shape, out.shape()), "dot_general: x is ", to_string(x), ", y is ",
             to_string(y), ", out is ", to_string(out), ", expected ", shape_string(shape));
  const Index batches = product(x, xs.batch), m = product(x, xs.free), n = product(y, ys.free);
  if (batches * m * n == 0) return;

  const Matrices a(x, xs.batch, xs.free, xs.contract), b(y, ys.batch, ys.contract, ys.free);
  const DotOptions options{a.transposed, b.transposed, precision};
  const DType type = accumulator_of(x.dtype);
  // Straight into out where it is as dot writes it.
  Shape<kMaxRank> dense{};
  dense_strides("dot_general", out.extents.data(), out.rank, dense.data());
  bool direct = out.dtype == type;
  for (std::size_t d = 0; d < out.rank; ++d)
    direct = direct && (out.extents[d] == 1 || out.strides[d] == dense[d]);
  Bytes memory;
  void* sums = out.data;
  if (!direct) {
    memory = allocate(static_cast<std::size_t>(batches * m * n) * size_of(type));
    sums = memory.get();
  }
  const Index plane[] = {m, n};
  for (Index i = 0; i < batches; ++i) {
    auto* const at = static_cast<std::byte*>(sums) + i * m * n * static_cast<Index>(size_of(type));
    dot_add(a[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i)],
            MutableArrayRef(type, plane, at), options, true);
  }
  if (!direct) cast(ArrayRef(type, out.shape(), sums), out, Overflow::kDefault);
}

}  // namespace detail
}  // namespace kref
