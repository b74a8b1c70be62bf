// SPDX-License-Identifier: Apache-2.0
#include "sharding/reshard_move.h"

#include <algorithm>
#include <map>

#include "sharding/block_view.h"
#include "sharding/collectives_reduce.h"

namespace kref::detail {
namespace {

// Arrays of this process, as terms of a reduction.
class Terms : public Exchange {
 public:
  explicit Terms(std::span<const ArrayRef> terms) : terms_(terms) {}

  void match() override {}
  const std::byte* view(Index rank, std::size_t begin, std::size_t, std::byte*) override {
    return static_cast<const std::byte*>(terms_[static_cast<std::size_t>(rank)].data) + begin;
  }
  void put(Index, std::size_t, std::size_t, const std::byte*) override {}
  std::byte* target(Index) override { return nullptr; }
  std::shared_ptr<void> common(std::size_t) override { return nullptr; }
  void wait(End) override {}

 private:
  std::span<const ArrayRef> terms_;
};

Folding folding_of(DType dtype, UnreducedKind kind) {
  if (kind == UnreducedKind::kMin) return extremum_folding(Fold::kMin, dtype);
  // What adds bools is or, which is their maximum.
  const bool maximum = kind == UnreducedKind::kMax || dtype == DType::kBool;
  if (maximum) return extremum_folding(Fold::kMax, dtype);
  return sum_folding("reshard", Fold::kSum, dtype, {});
}

// Views of one shape and the same strides, combined in order to a dense array.
Array combined(std::span<const ArrayRef> terms, UnreducedKind kind) {
  const ArrayRef& shape = terms[0];
  const Folding folding = folding_of(shape.dtype, kind);
  Array out = Array::unwritten(shape.dtype, shape.shape());
  if (out.size() == 0) return out;
  Terms exchange(terms);
  // Rows and columns; what is before them one by one.
  const std::size_t rank = shape.rank;
  Part part;
  part.columns = rank > 0 ? shape.extents[rank - 1] : 1;
  part.rows = rank > 1 ? shape.extents[rank - 2] : 1;
  part.stride = rank > 1 ? shape.strides[rank - 2] : part.columns;
  auto* to = static_cast<std::byte*>(out.mutable_data());
  if (is_dense(shape)) {
    part.columns = part.stride = out.size();
    part.rows = 1;
  }
  const Index each = part.rows * part.columns;
  for (Index i = 0; i < out.size() / each;
       ++i, to += each * static_cast<Index>(size_of(shape.dtype))) {
    part.begin = 0;
    Index left = i;
    for (std::size_t d = rank > 2 ? rank - 2 : 0; d-- > 0;) {
      part.begin += left % shape.extents[d] * shape.strides[d];
      left /= shape.extents[d];
    }
    Sink sink;
    sink.out = to;
    reduce(exchange, static_cast<Index>(terms.size()), 0, folding, part, sink);
  }
  return out;
}

// The part of one dimension of a new block that lies in one old block.
struct Segment {
  Index begin, extent;  // in the global array
  Index from, to;       // begin in the old block, in the new one
};

// How the blocks of one placement are made of those of another.
class Move {
 public:
  Move(const Sharded& x, const Placement& to)
      : x_(x), mesh_(x.mesh()), from_(x.placement()), to_(to) {
    const auto axes = [&](auto&& chosen) {
      std::vector<std::size_t> out;
      for (std::size_t k = 0; k < mesh_.axes().size(); ++k) {
        if (chosen(mesh_.axes()[k].name)) out.push_back(k);
      }
      return out;
    };
    const auto in = [](const std::vector<std::string>& set, const std::string& axis) {
      return std::find(set.begin(), set.end(), axis) != set.end();
    };
    summed_ =
        axes([&](const std::string& a) { return in(from_.unreduced, a) && !in(to.unreduced, a); });
    gained_ =
        axes([&](const std::string& a) { return !in(from_.unreduced, a) && in(to.unreduced, a); });
    old_shape_ = local_shape(from_.spec, x.shape(), mesh_);
    new_shape_ = local_shape(to.spec, x.shape(), mesh_);
  }

  Array block(Index device) {
    const std::vector<Index> at = mesh_.coordinates(device);
    const std::vector<std::vector<Segment>> segments = segments_of(device);
    std::size_t boxes = 1;
    for (const auto& each : segments) boxes *= each.size();

    // Which devices each box comes from; with the new block's place that is all that makes it.
    std::vector<std::vector<Index>> sources;
    std::vector<Index> key;
    for (std::size_t b = 0; b < boxes; ++b) {
      const std::vector<Segment> box = box_of(segments, b);
      sources.push_back(sources_of(box, at));
      for (const Segment& each : box) key.push_back(each.begin);
      for (const Index source : sources.back()) {
        key.push_back(static_cast<Index>(reinterpret_cast<std::intptr_t>(x_.block(source).data())));
      }
      key.push_back(-1);
    }
    // Devices that would hold the same share it.
    const auto [made, is_new] = made_.try_emplace(std::move(key));
    if (is_new) made->second = assemble(segments, sources);
    return made->second;
  }

 private:
  std::vector<std::vector<Segment>> segments_of(Index device) const {
    std::vector<std::vector<Segment>> out;
    for (std::size_t d = 0; d < new_shape_.size(); ++d) {
      const Index begin = block_index(to_.spec[d], mesh_, device) * new_shape_[d];
      const Index end = begin + new_shape_[d];
      std::vector<Segment> parts;
      for (Index i = begin; i < end;) {
        const Index from = i % old_shape_[d];
        const Index extent = std::min(end - i, old_shape_[d] - from);
        parts.push_back({i, extent, from, i - begin});
        i += extent;
      }
      out.push_back(std::move(parts));
    }
    return out;
  }

  static std::vector<Segment> box_of(const std::vector<std::vector<Segment>>& segments,
                                     std::size_t number) {
    std::vector<Segment> box(segments.size());
    for (std::size_t d = segments.size(); d-- > 0;) {
      box[d] = segments[d][number % segments[d].size()];
      number /= segments[d].size();
    }
    return box;
  }

  // The devices whose terms make a box for the device at `at`, in order; none: it is zero.
  std::vector<Index> sources_of(const std::vector<Segment>& box,
                                const std::vector<Index>& at) const {
    std::vector<Index> element;
    for (const Segment& each : box) element.push_back(each.begin);
    const std::vector<Index> owner =
        owner_coordinates(OutSpec{from_.spec, {}}, x_.shape(), mesh_, element);
    for (const std::size_t k : gained_) {
      if (at[k] != std::max<Index>(owner[k], 0)) return {};
    }
    std::vector<Index> source = at;
    for (std::size_t k = 0; k < owner.size(); ++k) {
      if (owner[k] >= 0) source[k] = owner[k];
    }
    Index terms = 1;
    for (const std::size_t k : summed_) terms *= mesh_.axes()[k].size;
    std::vector<Index> out;
    for (Index term = 0; term < terms; ++term) {
      Index left = term;
      for (std::size_t s = summed_.size(); s-- > 0;) {
        const Index size = mesh_.axes()[summed_[s]].size;
        source[summed_[s]] = left % size;
        left /= size;
      }
      out.push_back(mesh_.device(source));
    }
    return out;
  }

  Array assemble(const std::vector<std::vector<Segment>>& segments,
                 const std::vector<std::vector<Index>>& sources) const {
    if (sources.size() == 1 && !sources[0].empty()) {
      const std::vector<ArrayRef> terms = terms_of(box_of(segments, 0), sources[0]);
      if (terms.size() > 1) return combined(terms, from_.kind);
      return dense(terms[0], x_.block(sources[0][0]).owner());
    }
    const bool some_zero = std::any_of(sources.begin(), sources.end(),
                                       [](const auto& devices) { return devices.empty(); });
    Array out =
        some_zero ? Array(x_.dtype(), new_shape_) : Array::unwritten(x_.dtype(), new_shape_);
    const MutableArrayRef whole = out.mutable_ref();
    for (std::size_t b = 0; b < sources.size(); ++b) {
      if (sources[b].empty()) continue;
      const std::vector<Segment> box = box_of(segments, b);
      MutableArrayRef part = whole;
      Index offset = 0;
      for (std::size_t d = 0; d < box.size(); ++d) {
        part.extents[d] = box[d].extent;
        offset += box[d].to * whole.strides[d];
      }
      part.data = static_cast<std::byte*>(whole.data) + offset * element_bytes();
      const std::vector<ArrayRef> terms = terms_of(box, sources[b]);
      copy_elements(terms.size() > 1 ? combined(terms, from_.kind).ref() : terms[0], part);
    }
    return out;
  }

  // A box in the blocks of its devices.
  std::vector<ArrayRef> terms_of(const std::vector<Segment>& box,
                                 const std::vector<Index>& devices) const {
    std::vector<ArrayRef> out;
    for (const Index device : devices) {
      ArrayRef view = x_.block(device).ref();
      Index offset = 0;
      for (std::size_t d = 0; d < box.size(); ++d) {
        view.extents[d] = box[d].extent;
        offset += box[d].from * view.strides[d];
      }
      view.data = static_cast<const std::byte*>(view.data) + offset * element_bytes();
      out.push_back(view);
    }
    return out;
  }

  Index element_bytes() const { return static_cast<Index>(size_of(x_.dtype())); }

  const Sharded& x_;
  const Mesh& mesh_;
  const Placement& from_;
  const Placement& to_;
  std::vector<std::size_t> summed_, gained_;  // unreduced axes, in mesh order
  std::vector<Index> old_shape_, new_shape_;
  std::map<std::vector<Index>, Array> made_;
};

}  // namespace

std::vector<Array> move_blocks(const Sharded& x, const Placement& to) {
  Move move(x, to);
  std::vector<Array> out;
  for (Index device = 0; device < x.mesh().device_count(); ++device)
    out.push_back(move.block(device));
  return out;
}

}  // namespace kref::detail
