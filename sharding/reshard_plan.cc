// SPDX-License-Identifier: Apache-2.0
// Which collectives take an array from one placement to another.
//
// A dimension is split over a list of axes, the last one minor. Collectives work at the minor end:
// slices and scatters append an axis, gathers and exchanges take one away. So axes that leave a
// dimension must stand behind those that stay, and a permute of blocks sees to that where needed.
#include <algorithm>
#include <functional>

#include "sharding/reshard.h"
#include "sharding/spelling.h"

namespace kref {
namespace {

using Kind = ReshardStep::Kind;
using Axes = std::vector<std::string>;

void remove(Axes& axes, const Axes& gone) {
  std::erase_if(axes, [&](const std::string& axis) { return contains(gone, axis); });
}

// Where all the axes of a mesh go.
class Planner {
 public:
  Planner(const Placement& from, const Placement& to, const Mesh& mesh)
      : mesh_(mesh), now_(without_ones(from, mesh)), to_(without_ones(to, mesh)) {
    const std::size_t rank = std::max(now_.spec.entries.size(), to_.spec.entries.size());
    now_.spec.entries.resize(rank);
    to_.spec.entries.resize(rank);
    check_kinds(from, to);
  }

  // `to` of the steps without axes of one device.
  std::vector<ReshardStep> steps() {
    leave_reduced();
    append_slices();
    scatter_sums();
    sum_rest();
    append_slices();
    exchange_blocks();
    mask();
    become_reduced();
    return std::move(steps_);
  }

 private:
  // Axes of one device make no difference.
  static Placement without_ones(Placement placement, const Mesh& mesh) {
    const auto clean = [&](Axes& axes) {
      std::erase_if(axes, [&](const std::string& a) { return a.empty() || mesh.size(a) == 1; });
    };
    for (Axes& axes : placement.spec.entries) clean(axes);
    clean(placement.unreduced);
    clean(placement.reduced);
    if (placement.unreduced.empty()) placement.kind = UnreducedKind::kSum;
    return placement;
  }

  void check_kinds(const Placement& from, const Placement& to) const {
    for (const std::string& axis : to_.unreduced) {
      const bool kept = contains(now_.unreduced, axis);
      KREF_CHECK(kept || to_.kind == UnreducedKind::kSum, "reshard of ", to_string(from), " to ",
                 to_string(to), ": axis '", axis, "' cannot become unreduced with kind ",
                 to_string(to_.kind), ", expected sum");
      KREF_CHECK(!kept || to_.kind == now_.kind, "reshard of ", to_string(from), " to ",
                 to_string(to), ": cannot change the kind of the unreduced axis '", axis, "' from ",
                 to_string(now_.kind), " to ", to_string(to_.kind));
    }
  }

  Axes& now(std::size_t d) { return now_.spec.entries[d]; }
  const Axes& want(std::size_t d) const { return to_.spec.entries[d]; }
  std::size_t rank() const { return now_.spec.entries.size(); }

  // The dimension that an axis is to split; rank() when none.
  std::size_t destination(const std::string& axis) const {
    std::size_t d = 0;
    while (d < rank() && !contains(want(d), axis)) ++d;
    return d;
  }
  // From which axis of a dimension on none can be moved: who owns what along an axis that becomes
  // unreduced must stay, and that depends on what is before it.
  Axes::const_iterator first_padded(std::size_t d) const {
    const Axes& axes = now_.spec.entries[d];
    return std::find_if(axes.begin(), axes.end(),
                        [&](const std::string& axis) { return contains(to_.unreduced, axis); });
  }
  // Will an axis of dimension d split it no more, or has it to make way for one that will not?
  bool leaves(std::size_t d, const std::string& axis) const {
    return !contains(want(d), axis) || std::find(first_padded(d), now_.spec.entries[d].end(),
                                                 axis) != now_.spec.entries[d].end();
  }
  bool has_leaving(std::size_t d) {
    return std::any_of(now(d).begin(), now(d).end(),
                       [&](const std::string& axis) { return leaves(d, axis); });
  }
  bool is_replicated(const std::string& axis) const {
    return !now_.spec.names(axis) && !contains(now_.unreduced, axis) &&
           !contains(now_.reduced, axis);
  }

  void step(Kind kind, Axes axes, std::size_t dim = 0, std::size_t to_dim = 0) {
    if (now_.unreduced.empty()) now_.kind = UnreducedKind::kSum;
    steps_.push_back({kind, std::move(axes), dim, to_dim, now_});
  }

  void leave_reduced() {
    Axes gone = now_.reduced;
    remove(gone, to_.reduced);
    if (gone.empty()) return;
    remove(now_.reduced, gone);
    step(Kind::kRelabel, gone);
  }

  void become_reduced() {
    Axes gained = to_.reduced;
    remove(gained, now_.reduced);
    if (gained.empty()) return;
    now_.reduced = to_.reduced;
    step(Kind::kRelabel, gained);
  }

  // A dimension whose axes all stay takes replicated ones, as far as those before them are there.
  void append_slices() {
    for (std::size_t d = 0; d < rank(); ++d) {
      if (has_leaving(d)) continue;
      Axes gained;
      for (const std::string& axis : want(d)) {
        if (contains(now(d), axis)) continue;
        if (!is_replicated(axis)) break;
        gained.push_back(axis);
      }
      if (gained.empty()) continue;
      now(d).insert(now(d).end(), gained.begin(), gained.end());
      step(Kind::kSlice, gained, d);
    }
  }

  void scatter_sums() {
    for (std::size_t d = 0; d < rank(); ++d) {
      if (has_leaving(d)) continue;
      Axes gained;
      for (const std::string& axis : want(d)) {
        if (contains(now_.unreduced, axis)) gained.push_back(axis);
      }
      if (gained.empty()) continue;
      now(d).insert(now(d).end(), gained.begin(), gained.end());
      remove(now_.unreduced, gained);
      step(Kind::kReduceScatter, gained, d);
    }
  }

  void sum_rest() {
    Axes summed = now_.unreduced;
    remove(summed, to_.unreduced);
    if (summed.empty()) return;
    remove(now_.unreduced, summed);
    step(Kind::kAllReduce, summed);
  }

  // Splits become what they are to be.
  void exchange_blocks() {
    const bool pads = std::any_of(to_.unreduced.begin(), to_.unreduced.end(),
                                  [&](const std::string& axis) { return now_.spec.names(axis); });
    bool same_counts = true;
    for (std::size_t d = 0; d < rank(); ++d) {
      same_counts = same_counts && block_count(now(d), mesh_) == block_count(want(d), mesh_);
    }
    if (same_counts && !pads) return permute(to_.spec);
    put_leaving_last();
    while (take_away()) append_slices();
    permute(to_.spec);
  }

  void permute(const PartitionSpec& spec) {
    if (now_.spec == spec) return;
    now_.spec = spec;
    step(Kind::kPermute, {});
  }

  // Axes that stay in front, in the order they will have; behind them those to be gathered, and to
  // go to each other dimension, these in its order.
  void put_leaving_last() {
    PartitionSpec ordered = now_.spec;
    bool needed = false;
    for (std::size_t d = 0; d < rank(); ++d) {
      const auto begin = ordered.entries[d].begin();
      const auto end = begin + (first_padded(d) - now_.spec.entries[d].cbegin());
      const auto leaving = [&](const std::string& axis) { return leaves(d, axis); };
      needed = needed || !std::is_partitioned(begin, end, std::not_fn(leaving));
      const auto place = [&](const std::string& axis) {
        const std::size_t to = destination(axis);
        if (to == rank()) return std::pair(std::size_t{1}, std::size_t{0});
        const auto within = std::find(want(to).begin(), want(to).end(), axis) - want(to).begin();
        return std::pair(to == d ? 0 : to + 2, static_cast<std::size_t>(within));
      };
      std::stable_sort(begin, end, [&](const std::string& a, const std::string& b) {
        return place(a) < place(b);
      });
    }
    if (needed) permute(ordered);
  }

  // The axes at the minor end of dimension d that all go where the last one goes.
  Axes leaving_together(std::size_t d) {
    Axes out;
    for (auto axis = now(d).rbegin(); axis != now(d).rend() && leaves(d, *axis); ++axis) {
      const bool same =
          out.empty() || (destination(*axis) == destination(out.back()) &&
                          contains(to_.unreduced, *axis) == contains(to_.unreduced, out.back()));
      if (!same) break;
      out.push_back(*axis);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  // One step that takes axes out of a dimension; false when none has to.
  bool take_away() {
    for (std::size_t d = 0; d < rank(); ++d) {
      const Axes moved = leaving_together(d);
      if (moved.empty()) continue;
      const std::size_t to = destination(moved[0]);
      if (to == rank() || has_leaving(to)) continue;
      remove(now(d), moved);
      now(to).insert(now(to).end(), moved.begin(), moved.end());
      step(Kind::kAllToAll, moved, d, to);
      return true;
    }
    // No exchange is possible: a gather or a pad makes way. Axes that are wanted elsewhere wait for
    // those that are not.
    for (const bool wanted : {false, true}) {
      for (std::size_t d = 0; d < rank(); ++d) {
        const Axes gone = leaving_together(d);
        if (gone.empty() || (destination(gone[0]) < rank()) != wanted) continue;
        const bool pad = contains(to_.unreduced, gone[0]);
        remove(now(d), gone);
        if (pad) now_.unreduced.insert(now_.unreduced.end(), gone.begin(), gone.end());
        step(pad ? Kind::kPad : Kind::kAllGather, gone, d);
        return true;
      }
    }
    return false;
  }

  void mask() {
    Axes gained = to_.unreduced;
    remove(gained, now_.unreduced);
    if (gained.empty()) return;
    now_.unreduced = to_.unreduced;
    step(Kind::kMask, gained);
  }

  const Mesh& mesh_;
  Placement now_, to_;
  std::vector<ReshardStep> steps_;
};

}  // namespace

std::vector<ReshardStep> plan_reshard(const Placement& from, const Placement& to,
                                      const Mesh& mesh) {
  std::vector<ReshardStep> steps = Planner(from, to, mesh).steps();
  if (!steps.empty()) {
    steps.back().to = to;
  } else if (!(from == to)) {
    steps.push_back({Kind::kRelabel, {}, 0, 0, to});
  }
  return steps;
}

}  // namespace kref
