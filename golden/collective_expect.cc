// SPDX-License-Identifier: Apache-2.0
// What the output of a collective ought to hold: value and bound of every element, by index
// arithmetic on the global arrays.
#include <algorithm>
#include <cmath>

#include "golden/collective_bound.h"
#include "golden/collective_op.h"
#include "golden/collective_terms.h"

namespace kref {
namespace {

using Bases = std::span<const Index>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// The larger, or the smaller; a NaN wins.
template <class T>
T extreme(bool min, T a, T b) {
  if (a != a || b != b) return a != a ? a : b;
  return (min ? b < a : b > a) ? b : a;
}

// Copies, and the extremes: y holds elements of x.
template <class T>
void move_elements(const CollectiveRun& run, const Array& x, Expectation& e) {
  constexpr bool kWide = std::is_same_v<T, std::int64_t>;
  using Value = std::conditional_t<kWide, std::int64_t, double>;
  const bool min = run.which == Collective::kPmin;
  const std::span<const T> from = x.elements<T>();
  if (kWide) e.integers.resize(e.value.size());
  CollectiveTerms(run).for_each([&](Index y, Bases bases, Index offset) {
    Value value = 0;
    for (std::size_t k = 0; k < bases.size(); ++k) {
      const auto next = static_cast<Value>(from[at(bases[k] + offset)]);
      value = k == 0 ? next : extreme(min, value, next);
    }
    e.value[at(y)] = static_cast<double>(value);
    if constexpr (kWide) e.integers[at(y)] = value;
  });
}

void set_sum(Expectation& e, Index element, const ExpectedSum& sum) {
  e.value[at(element)] = sum.value;
  e.likely[at(element)] = e.worst[at(element)] = sum.bound;
  if (sum.overflow == Expectation::kNoOverflow) return;
  if (e.overflow.empty()) e.overflow.assign(e.value.size(), Expectation::kNoOverflow);
  e.overflow[at(element)] = sum.overflow;
}

void with_bounds(Expectation& e) {
  e.likely.resize(e.value.size());
  e.worst.resize(e.value.size());
}

// Sums of integers, which wrap in their own type; bool adds up in I32. The mean of that is F32.
template <class T>
void sum_integers(const CollectiveRun& run, const Array& x, Expectation& e) {
  using Sum = std::conditional_t<std::is_same_v<T, bool>, std::int32_t, T>;
  const bool mean = run.which == Collective::kPmean;
  const std::span<const T> from = x.elements<T>();
  if (mean) with_bounds(e);
  if (!mean && std::is_same_v<T, std::int64_t>) e.integers.resize(e.value.size());
  const SumRule rule{DType::kF32, run.group_size(), true, false};
  CollectiveTerms(run).for_each([&](Index y, Bases bases, Index offset) {
    std::uint64_t sum = 0;
    for (const Index base : bases) sum += static_cast<std::uint64_t>(from[at(base + offset)]);
    const auto wrapped = static_cast<Sum>(sum);
    if (mean) {
      set_sum(e, y, expected_sum(TermSums::exact(static_cast<double>(wrapped)), rule));
      return;
    }
    e.value[at(y)] = static_cast<double>(wrapped);
    if (!e.integers.empty()) e.integers[at(y)] = static_cast<std::int64_t>(wrapped);
  });
}

template <class T>
void sum_floats(const CollectiveRun& run, const Array& x, Expectation& e) {
  const std::span<const T> from = x.elements<T>();
  with_bounds(e);
  const Index n = run.which == Collective::kPmean ? run.group_size() : 1;
  CollectiveTerms(run).for_each([&](Index y, Bases bases, Index offset) {
    TermSums sums;
    for (const Index base : bases) {
      sums.add(static_cast<double>(from[at(base + offset)]), run.x_dtype);
    }
    set_sum(e, y, expected_sum(sums, {run.x_dtype, n, false, false}));
  });
}

// Elements of x whose sums are held at a time: an eighth of them, so that a sum's 48 bytes are 6 an
// element of x; but not so few that a small array is gone through more than once.
Index at_a_time(Index size) {
  constexpr Index kParts = 8, kLeast = Index{1} << 20;
  return std::max(kLeast, (size + kParts - 1) / kParts);
}

// ct.x: what is linear has a transpose, the map whose matrix is the transposed one. An element of x
// gets the cotangents of all that it went into. Copies, of which no element gets two, are exact.
template <class T>
void transpose(const CollectiveRun& run, const Array& ct_y, Expectation& e) {
  const std::span<const T> from = ct_y.elements<T>();
  const CollectiveTerms terms(run);
  const Index n = run.which == Collective::kPmean ? run.group_size() : 1;
  const auto size = static_cast<Index>(e.value.size());
  if (n > 1) with_bounds(e);
  std::vector<TermSums> sums;
  for (Index first = 0; first < size; first += at_a_time(size)) {
    const Index count = std::min(at_a_time(size), size - first);
    sums.assign(at(count), TermSums());
    terms.for_each([&](Index y, Bases bases, Index offset) {
      const auto ct = static_cast<double>(from[at(y)]);
      for (const Index base : bases) {
        const Index i = base + offset - first;
        if (0 <= i && i < count) sums[at(i)].add(ct, run.x_dtype);
      }
    });
    for (Index i = 0; i < count; ++i) {
      const ExpectedSum sum = expected_sum(sums[at(i)], {run.x_dtype, n, false, true});
      // Those before were copies, whose bounds are 0.
      if (sums[at(i)].count() > 1 && e.worst.empty()) with_bounds(e);
      e.value[at(first + i)] = sum.value;
      if (!e.worst.empty()) set_sum(e, first + i, sum);
    }
  }
}

// One block is what one device holds.
void set_devices(const CollectiveRun& run, Expectation& e) {
  const PartitionSpec& spec = run.vjp ? run.in_spec : run.out_spec;
  const std::vector<Index>& shape = run.vjp ? run.x_shape : run.y_shape;
  const std::vector<Index>& local = run.vjp ? run.x_local : run.y_local;
  e.blocks.axes.assign(local.size(), "");
  e.blocks.extents = local;
  for (Index& extent : e.blocks.extents) extent = std::max<Index>(1, extent);
  e.blocks.shards = e.blocks.extents;
  e.owner.shard = e.blocks.extents;
  e.owner.device = [spec = OutSpec{spec, {}}, shape, mesh = run.mesh](Index element) {
    std::vector<Index> index(shape.size());
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = element % shape[d];
      element /= shape[d];
    }
    return owner_name(spec, shape, mesh, index);
  };
}

}  // namespace

std::vector<Expectation> expect_collective(const Run& given) {
  const CollectiveRun run = read_collective(given);
  Expectation e;
  e.output = run.vjp ? "ct.x" : "y";
  e.value.resize(at(given.out.at(e.output).size()));
  const Array& from = given.in.at(run.vjp ? "ct.y" : "x");
  with_dtype(from.dtype(), [&]<class T>() {
    if (run.vjp) {
      if constexpr (!std::is_integral_v<T>) transpose<T>(run, from, e);
    } else if (run.axis_name.empty() || !is_sum(run.which)) {
      move_elements<T>(run, from, e);
    } else if constexpr (std::is_integral_v<T>) {
      sum_integers<T>(run, from, e);
    } else {
      sum_floats<T>(run, from, e);
    }
  });
  set_devices(run, e);
  std::vector<Expectation> out;
  out.push_back(std::move(e));
  return out;
}

}  // namespace kref
