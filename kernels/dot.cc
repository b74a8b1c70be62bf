// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot.h"

#include "dsl/tensor.h"
#include "dsl/work.h"
#include "dsl/work_meter.h"
#include "kernels/dot_args.h"
#include "kernels/passes.h"

namespace kref::detail {
namespace {

void check_rank(const char* name, const ArrayRef& a) {
  KREF_CHECK(a.rank == 2, "dot_add: ", name, " is ", to_string(a), ", expected rank 2");
}

void clear(const MutableArrayRef& acc, Index m, Index n) {
  with_dtype(acc.dtype, [&]<class T>() {
    const auto out = acc.ref<T, 2>();
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) out(i, j) = T{};
  });
}

}  // namespace

void* dot_scratch(int slot, std::size_t bytes) {
  struct Memory {
    Bytes memory;
    std::size_t size = 0;
  };
  thread_local Memory slots[2];
  Memory& s = slots[slot];
  if (s.size < bytes) {
    s.memory.reset();  // first, so that both are never held at once
    s.size = 0;
    s.memory = allocate(bytes);
    s.size = bytes;
  }
  return s.memory.get();
}

void dot_add(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& acc,
             const DotOptions& options, bool from_zero) {
  check_rank("x", x);
  check_rank("y", y);
  check_rank("acc", acc);
  KREF_CHECK(has_product(x.dtype), "dot_add: x is ", to_string(x), ", which has no product");
  KREF_CHECK(y.dtype == x.dtype, "dot_add: y is ", to_string(y),
             ", expected the element type of x, ", name_of(x.dtype));
  KREF_CHECK(acc.dtype == accumulator_of(x.dtype), "dot_add: acc is ", to_string(acc),
             ", expected ", name_of(accumulator_of(x.dtype)), " for x of ", name_of(x.dtype));
  KREF_CHECK(options.precision == Precision::kF32 || x.dtype == DType::kF32,
             "dot_add: a split precision is for F32 operands, x is ", name_of(x.dtype));
  const Index m = x.extents[options.trans_x ? 1 : 0], k = x.extents[options.trans_x ? 0 : 1];
  const Index ky = y.extents[options.trans_y ? 1 : 0], n = y.extents[options.trans_y ? 0 : 1];
  KREF_CHECK(k == ky, "dot_add: axis k is ", k, " in x ", to_string(x),
             options.trans_x ? " (transposed)" : "", " and ", ky, " in y ", to_string(y),
             options.trans_y ? " (transposed)" : "");
  KREF_CHECK(acc.extents[0] >= m && acc.extents[1] >= n, "dot_add: acc is ", to_string(acc),
             ", expected at least [", m, ",", n, "]");
  count_product(m, n, k);
  if (WorkMeter* const meter = work_meter(); meter != nullptr) {
    ProductWork work{.m = m, .n = n, .k = k, .adds = !from_zero};
    work.x = work.y = x.dtype;
    work.z = acc.dtype;
    work.passes = product_passes(x.dtype, options.precision);
    meter->product(work);
  }
  if (m == 0 || n == 0 || shapes_only()) return;
  if (k == 0) {
    if (from_zero) clear(acc, m, n);
    return;
  }
  const DotArgs args{x.dtype,
                     x.data,
                     x.strides[0],
                     options.trans_x,
                     y.data,
                     y.strides[0],
                     options.trans_y,
                     acc.data,
                     acc.strides[0],
                     m,
                     n,
                     k,
                     options.precision,
                     from_zero};
  switch (accumulator_of(x.dtype)) {
    case DType::kF32:
      return dot_add_f32(args);
    case DType::kF64:
      return dot_add_f64(args);
    default:
      return dot_add_s32(args);
  }
}

}  // namespace kref::detail
