// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference_vectors.h"

#include <bit>
#include <cmath>
#include <limits>

namespace kref::reference {
namespace {

using Dims = std::vector<std::size_t>;

// The dimensions that are not among `taken`, in order.
Dims others(std::size_t rank, const std::vector<std::span<const Index>>& taken) {
  Dims out;
  for (std::size_t d = 0; d < rank; ++d) {
    bool free = true;
    for (const auto& list : taken) {
      for (const Index t : list) free = free && static_cast<std::size_t>(t) != d;
    }
    if (free) out.push_back(d);
  }
  return out;
}

Dims listed(std::span<const Index> axes) {
  Dims out;
  for (const Index a : axes) out.push_back(static_cast<std::size_t>(a));
  return out;
}

// How many index tuples these dimensions have.
Index count(const ArrayRef& x, const Dims& dims) {
  Index n = 1;
  for (const std::size_t d : dims) n *= x.extents[d];
  return n;
}

// What tuple i of these dimensions, the last one fastest, adds to a row-major index into x.
std::size_t place(const ArrayRef& x, const Dims& dims, Index i) {
  std::vector<Index> dense(x.rank, 1);
  for (std::size_t d = x.rank; d-- > 1;) dense[d - 1] = dense[d] * x.extents[d];
  Index at = 0;
  for (std::size_t k = dims.size(); k-- > 0;) {
    at += i % x.extents[dims[k]] * dense[dims[k]];
    i /= x.extents[dims[k]];
  }
  return static_cast<std::size_t>(at);
}

bool above(double a, double b) { return a > b || (a == b && !std::signbit(a) && std::signbit(b)); }

}  // namespace

Sums reduce(Reduce op, const ArrayRef& x, std::span<const Index> axes) {
  const std::vector<double> v = values(x);
  const Dims kept = others(x.rank, {axes}), gone = listed(axes);
  const Index n = count(x, gone);
  KREF_CHECK(n > 0 || op == Reduce::kSum, "reference::reduce: x is ", to_string(x),
             ", of no elements there is no extremum");
  Sums out;
  for (Index i = 0; i < count(x, kept); ++i) {
    double value = 0, magnitude = 0;
    for (Index j = 0; j < n; ++j) {
      const double e = v[place(x, kept, i) + place(x, gone, j)];
      magnitude += std::abs(e);
      if (op == Reduce::kSum) {
        value += e;
      } else if (j == 0 || std::isnan(e)) {
        value = e;
      } else if (!std::isnan(value) && (op == Reduce::kMax ? above(e, value) : above(value, e))) {
        value = e;
      }
    }
    out.value.push_back(value);
    out.magnitude.push_back(magnitude);
  }
  return out;
}

std::vector<Index> arg_extreme(bool largest, const ArrayRef& x, Index axis) {
  const std::vector<double> v = values(x);
  const Index only[] = {axis};
  const Dims kept = others(x.rank, {only}), along = listed(only);
  std::vector<Index> out;
  for (Index i = 0; i < count(x, kept); ++i) {
    Index best = 0;
    for (Index j = 1; j < count(x, along); ++j) {
      const double a = v[place(x, kept, i) + place(x, along, j)],
                   b = v[place(x, kept, i) + place(x, along, best)];
      if ((largest ? a > b : a < b) || (std::isnan(a) && !std::isnan(b))) best = j;
    }
    out.push_back(best);
  }
  return out;
}

Sums dot_general(const ArrayRef& x, const ArrayRef& y, const DotNumbers& dims) {
  const std::vector<double> a = values(x), b = values(y);
  const Dims xf = others(x.rank, {dims.contract_x, dims.batch_x}),
             yf = others(y.rank, {dims.contract_y, dims.batch_y});
  const Dims xc = listed(dims.contract_x), yc = listed(dims.contract_y);
  const Dims xb = listed(dims.batch_x), yb = listed(dims.batch_y);
  Sums out;
  for (Index batch = 0; batch < count(x, xb); ++batch) {
    for (Index i = 0; i < count(x, xf); ++i) {
      for (Index j = 0; j < count(y, yf); ++j) {
        double value = 0, magnitude = 0;
        for (Index k = 0; k < count(x, xc); ++k) {
          const double p = a[place(x, xb, batch) + place(x, xf, i) + place(x, xc, k)] *
                           b[place(y, yb, batch) + place(y, yf, j) + place(y, yc, k)];
          value += p;
          magnitude += std::abs(p);
        }
        out.value.push_back(value);
        out.magnitude.push_back(magnitude);
      }
    }
  }
  return out;
}

std::array<std::uint32_t, 2> threefry2x32(const std::array<std::uint32_t, 2>& key,
                                          const std::array<std::uint32_t, 2>& counter) {
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const std::uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  std::uint32_t a = counter[0] + schedule[0], b = counter[1] + schedule[1];
  for (std::uint32_t round = 0; round < 20; ++round) {
    a += b;
    b = std::rotl(b, kRotations[round % 8]) ^ a;
    if (round % 4 == 3) {
      const std::uint32_t s = round / 4 + 1;
      a += schedule[s % 3];
      b += schedule[(s + 1) % 3] + s;
    }
  }
  return {a, b};
}

std::uint16_t stochastic_round(float x, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7FC0u);
  if (std::isinf(x)) return static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t dropped = bits & 0xFFFFu, up = dropped + (random & 0xFFFFu) >= 0x10000u;
  return static_cast<std::uint16_t>((bits >> 16) + up);
}

}  // namespace kref::reference
