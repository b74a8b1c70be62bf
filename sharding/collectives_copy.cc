// SPDX-License-Identifier: Apache-2.0
#include "sharding/collectives_copy.h"

#include <algorithm>
#include <cstring>

#include "dsl/work_meter.h"

namespace kref::detail {
namespace {

// How much is fetched at once where another member's array cannot be read in place.
constexpr std::size_t kFetched = std::size_t{64} << 10;

// Dimensions in bytes, none of extent 1, neighbours merged where both sides go on without a gap,
// round runs of `run` bytes.
struct Runs {
  std::array<Box::Dim, kMaxRank + 2> dims{};
  std::size_t rank = 0, run = 0;
  bool empty = false;

  Runs(const Box& box, std::size_t element) : run(element) {
    const auto bytes = static_cast<Index>(element);
    for (std::size_t d = 0; d < box.rank; ++d) {
      const Box::Dim dim = {box.dims[d].extent, box.dims[d].from * bytes, box.dims[d].to * bytes};
      empty = empty || dim.extent == 0;
      if (dim.extent == 1) continue;
      Box::Dim& outer = dims[rank > 0 ? rank - 1 : 0];
      if (rank > 0 && outer.from == dim.from * dim.extent && outer.to == dim.to * dim.extent) {
        outer = {outer.extent * dim.extent, dim.from, dim.to};
      } else {
        dims[rank++] = dim;
      }
    }
    if (rank > 0 && dims[rank - 1].from == bytes && dims[rank - 1].to == bytes) {
      run = static_cast<std::size_t>(dims[--rank].extent) * element;
    }
  }

  // Bytes from the first to behind the last one that dimensions d, d + 1, ... read.
  std::size_t span(std::size_t d) const {
    std::size_t out = run;
    for (; d < rank; ++d) out += static_cast<std::size_t>((dims[d].extent - 1) * dims[d].from);
    return out;
  }
};

// One dimension of runs of a size that the compiler knows, or 0.
template <std::size_t kRun>
void copy_row(const std::byte* from, std::byte* to, const Box::Dim& dim, std::size_t run) {
  for (Index i = 0; i < dim.extent; ++i) {
    std::memcpy(to + i * dim.to, from + i * dim.from, kRun == 0 ? run : kRun);
  }
}

void copy_dims(const std::byte* from, std::byte* to, const Runs& r, std::size_t d) {
  if (d == r.rank) {
    std::memcpy(to, from, r.run);
    return;
  }
  const Box::Dim& dim = r.dims[d];
  if (d + 1 < r.rank) {
    for (Index i = 0; i < dim.extent; ++i) {
      copy_dims(from + i * dim.from, to + i * dim.to, r, d + 1);
    }
    return;
  }
  switch (r.run) {
    case 1:
      return copy_row<1>(from, to, dim, 0);
    case 2:
      return copy_row<2>(from, to, dim, 0);
    case 4:
      return copy_row<4>(from, to, dim, 0);
    case 8:
      return copy_row<8>(from, to, dim, 0);
    case 16:
      return copy_row<16>(from, to, dim, 0);
    case 32:
      return copy_row<32>(from, to, dim, 0);
    default:
      return copy_row<0>(from, to, dim, r.run);
  }
}

// The same of what a member offered, fetched kFetched bytes at a time at most.
class Fetched {
 public:
  Fetched(Exchange& exchange, Index member, const Runs& runs)
      : exchange_(exchange), member_(member), runs_(runs) {}

  void copy(std::size_t from, std::byte* to, std::size_t d) {
    if (d == runs_.rank) {
      for (std::size_t done = 0; done < runs_.run; done += kFetched) {
        const std::size_t bytes = std::min(kFetched, runs_.run - done);
        std::memcpy(to + done, exchange_.view(member_, from + done, bytes, scratch_), bytes);
      }
      return;
    }
    // As many steps along this dimension as one fetch holds; none: the next dimension in turn.
    const Box::Dim& dim = runs_.dims[d];
    const std::size_t inner = runs_.span(d + 1), step = static_cast<std::size_t>(dim.from);
    const Index at_once = inner > kFetched ? 0 : 1 + static_cast<Index>((kFetched - inner) / step);
    for (Index i = 0; i < dim.extent; i += std::max<Index>(at_once, 1)) {
      const std::size_t begin = from + static_cast<std::size_t>(i) * step;
      if (at_once == 0) {
        copy(begin, to + i * dim.to, d + 1);
        continue;
      }
      Runs part = runs_;
      part.dims[d].extent = std::min(at_once, dim.extent - i);
      const std::byte* fetched = exchange_.view(member_, begin, part.span(d), scratch_);
      copy_dims(fetched, to + i * dim.to, part, d);
    }
  }

 private:
  Exchange& exchange_;
  Index member_;
  const Runs& runs_;
  std::byte scratch_[kFetched];
};

}  // namespace

void copy_box(const std::byte* from, std::byte* to, Box box, std::size_t element) {
  if (shapes_only()) return;
  const Runs runs(box, element);
  const auto bytes = static_cast<Index>(element);
  if (!runs.empty) copy_dims(from + box.from_begin * bytes, to + box.to_begin * bytes, runs, 0);
}

void copy_box(Exchange& exchange, Index rank, std::byte* to, Box box, std::size_t element) {
  const Runs runs(box, element);
  if (runs.empty || shapes_only()) return;
  const auto from = static_cast<std::size_t>(box.from_begin) * element;
  to += static_cast<std::size_t>(box.to_begin) * element;
  if (const std::byte* whole = exchange.view(rank, from, runs.span(0), nullptr)) {
    return copy_dims(whole, to, runs, 0);
  }
  Fetched(exchange, rank, runs).copy(from, to, 0);
}

}  // namespace kref::detail
