// SPDX-License-Identifier: Apache-2.0
#include "sharding/local_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "dsl/work_meter.h"
#include "sharding/block_view.h"

namespace kref {
namespace {

// The type that T computes in: unsigned of the same width for integers, which wrap.
template <class T, class = void>
struct Computing {
  using type = float;
};
template <>
struct Computing<double> {
  using type = double;
};
template <class T>
struct Computing<T, std::enable_if_t<std::is_integral_v<T>>> {
  using type = std::uint64_t;
};
template <class T>
using ComputingType = typename Computing<T>::type;

template <class T>
T from_computing(ComputingType<T> v) {
  return static_cast<T>(v);
}

void need_float(DType type, const char* name) {
  KREF_CHECK(is_float(type), name, " of ", name_of(type), ", expected a float type");
}

template <class F>
Array map1(const Array& x, F&& f) {
  Array out = Array::unwritten(x.dtype(), x.shape());
  if (detail::shapes_only()) return out;
  with_dtype(x.dtype(), [&]<class T>() {
    const auto from = x.elements<T>();
    const auto to = out.mutable_elements<T>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = from_computing<T>(f(static_cast<ComputingType<T>>(from[i])));
    }
  });
  return out;
}

template <class F>
Array map_float(const Array& x, const char* name, F&& f) {
  need_float(x.dtype(), name);
  return map1(x, [&](auto v) {
    if constexpr (std::is_floating_point_v<decltype(v)>) return f(v);
    return v;
  });
}

template <class F>
Array map2(const Array& a, const Array& b, F&& f) {
  Array out = Array::unwritten(a.dtype(), a.shape());
  if (detail::shapes_only()) return out;
  with_dtype(a.dtype(), [&]<class T>() {
    const auto x = a.elements<T>(), y = b.elements<T>();
    const auto to = out.mutable_elements<T>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = from_computing<T>(
          f(static_cast<ComputingType<T>>(x[i]), static_cast<ComputingType<T>>(y[i])));
    }
  });
  return out;
}

}  // namespace

const char* to_string(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNeg:
      return "neg";
    case UnaryOp::kSin:
      return "sin";
    case UnaryOp::kCos:
      return "cos";
    case UnaryOp::kExp:
      return "exp";
    case UnaryOp::kLog:
      return "log";
    case UnaryOp::kTanh:
      return "tanh";
  }
  return "?";
}

const char* to_string(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "add";
    case BinaryOp::kSub:
      return "sub";
    case BinaryOp::kMul:
      return "mul";
    case BinaryOp::kDiv:
      return "div";
  }
  return "?";
}

Array unary(UnaryOp op, const Array& x) {
  switch (op) {
    case UnaryOp::kNeg:
      return map1(x, [](auto v) {
        if constexpr (std::is_floating_point_v<decltype(v)>) return -v;
        return decltype(v){0} - v;
      });
    case UnaryOp::kSin:
      return map_float(x, "sin", [](auto v) { return std::sin(v); });
    case UnaryOp::kCos:
      return map_float(x, "cos", [](auto v) { return std::cos(v); });
    case UnaryOp::kExp:
      return map_float(x, "exp", [](auto v) { return std::exp(v); });
    case UnaryOp::kLog:
      return map_float(x, "log", [](auto v) { return std::log(v); });
    case UnaryOp::kTanh:
      break;
  }
  return map_float(x, "tanh", [](auto v) { return std::tanh(v); });
}

Array binary(BinaryOp op, const Array& a, const Array& b) {
  KREF_DCHECK(a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()));
  switch (op) {
    case BinaryOp::kAdd:
      return map2(a, b, [](auto x, auto y) { return x + y; });
    case BinaryOp::kSub:
      return map2(a, b, [](auto x, auto y) { return x - y; });
    case BinaryOp::kMul:
      return map2(a, b, [](auto x, auto y) { return x * y; });
    case BinaryOp::kDiv:
      break;
  }
  need_float(a.dtype(), "div");
  return map2(a, b, [](auto x, auto y) {
    if constexpr (std::is_floating_point_v<decltype(x)>) return x / y;
    return x;
  });
}

void check_factor(DType type, double factor) {
  KREF_CHECK(is_float(type) || (factor == std::trunc(factor) && std::fabs(factor) < 0x1p63),
             "scale: ", name_of(type), " by ", factor, ", expected an integer of 64 bits");
}

Array scaled(const Array& x, double factor) {
  check_factor(x.dtype(), factor);
  return map1(x, [&](auto v) {
    if constexpr (std::is_floating_point_v<decltype(v)>) {
      return v * static_cast<decltype(v)>(factor);
    } else {
      return v * static_cast<std::uint64_t>(static_cast<std::int64_t>(factor));
    }
  });
}

Array divided(const Array& x, Index divisor) {
  return map_float(x, "division", [&](auto v) { return v / static_cast<decltype(v)>(divisor); });
}

Array converted(const Array& x, DType dtype) {
  Array out = Array::unwritten(dtype, x.shape());
  if (detail::shapes_only()) return out;
  with_dtype(dtype, [&]<class T>() {
    const auto to = out.mutable_elements<T>();
    // The types that sums have, without asking for the type of each element.
    if (x.dtype() == DType::kF32) {
      const auto from = x.elements<float>();
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(from[i]);
    } else {
      for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] = static_cast<T>(x.at(static_cast<Index>(i)));
      }
    }
  });
  return out;
}

Array gathered(const Array& x, std::span<const Index> shape, std::span<const Index> strides,
               Index offset) {
  // copy_elements takes any strides; the view's last one need not be 1.
  ArrayRef view(x.dtype(), shape, x.data());
  for (std::size_t d = 0; d < shape.size(); ++d) view.strides[d] = strides[d];
  view.data = static_cast<const char*>(x.data()) + offset * static_cast<Index>(size_of(x.dtype()));
  Array out = Array::unwritten(x.dtype(), shape);
  if (out.size() > 0) copy_elements(view, out.mutable_ref());
  return out;
}

Array sum_over(const Array& x, std::span<const Index> dimensions) {
  std::vector<Index> kept, out_strides(x.rank(), 0);
  for (std::size_t d = 0; d < x.rank(); ++d) {
    if (std::ranges::find(dimensions, static_cast<Index>(d)) == dimensions.end()) {
      kept.push_back(x.extent(d));
    }
  }
  Index stride = 1;
  for (std::size_t d = x.rank(); d-- > 0;) {
    if (std::ranges::find(dimensions, static_cast<Index>(d)) != dimensions.end()) continue;
    out_strides[d] = stride;
    stride *= x.extent(d);
  }
  Array out = Array::unwritten(x.dtype(), kept);
  if (detail::shapes_only()) return out;
  with_dtype(x.dtype(), [&]<class T>() {
    using C = ComputingType<T>;
    std::vector<C> sums(static_cast<std::size_t>(out.size()), C{0});
    const auto from = x.elements<T>();
    std::vector<Index> at(x.rank(), 0);
    Index place = 0;
    for (const T& v : from) {
      sums[static_cast<std::size_t>(place)] += static_cast<C>(v);
      for (std::size_t d = x.rank(); d-- > 0;) {
        place += out_strides[d];
        if (++at[d] < x.extent(d)) break;
        place -= out_strides[d] * x.extent(d);
        at[d] = 0;
      }
    }
    const auto to = out.mutable_elements<T>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from_computing<T>(sums[i]);
  });
  return out;
}

}  // namespace kref
