// SPDX-License-Identifier: Apache-2.0
#include "sharding/slice.h"

#include <algorithm>
#include <numeric>

#include "dsl/check.h"
#include "sharding/spelling.h"

namespace kref {
namespace {

std::string shape_text(const std::vector<Index>& shape) {
  std::string out;
  for (const Index n : shape) out += detail::cat(out.empty() ? "" : "x", n);
  return out;
}

// Does a pod have this shape, its axes in some order?
bool fits(const Chip& chip, std::vector<Index> shape) {
  std::vector<Index> pod = chip.pod;
  shape.resize(std::max(shape.size(), pod.size()), 1);
  std::sort(shape.begin(), shape.end(), std::greater<>());
  std::sort(pod.begin(), pod.end(), std::greater<>());
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] > (k < pod.size() ? pod[k] : 1)) return false;
  }
  return true;
}

std::vector<bool> wraps_of(const Chip& chip, const std::vector<Index>& shape) {
  std::vector<bool> wraps(shape.size(), false);
  if (chip.wrap == Chip::Wrap::kFullAxis) {
    for (std::size_t k = 0; k < shape.size(); ++k) wraps[k] = shape[k] == chip.pod[0];
  } else {
    const bool cubes =
        std::all_of(shape.begin(), shape.end(), [](Index n) { return n > 1 && n % 4 == 0; });
    wraps.assign(shape.size(), cubes);
  }
  return wraps;
}

Slice slice_of(const Chip& chip, std::vector<Index> shape) {
  shape.resize(static_cast<std::size_t>(chip.link_axes()), 1);
  std::vector<bool> wraps = wraps_of(chip, shape);
  return {chip, std::move(shape), std::move(wraps)};
}

// Finds how the axes of a slice are shared out among those of a mesh: share[p][m] chips of slice
// axis p for mesh axis m, the product over m is the extent of p and the product over p that of m.
class Layout {
 public:
  Layout(const std::vector<Index>& slice, const std::vector<Index>& mesh)
      : slice_(slice), open_(mesh), share_(slice.size(), std::vector<Index>(mesh.size(), 1)) {}

  bool find() {
    fewest_ = slice_.size() * open_.size() + 1;
    visit(0, 0, slice_.empty() ? 1 : slice_[0], 0);
    return !best_.empty();
  }
  const std::vector<std::vector<Index>>& best() const { return best_; }

 private:
  // Slice axis p has `left` chips to share out from mesh axis m on.
  void visit(std::size_t p, std::size_t m, Index left, std::size_t parts) {
    if (parts >= fewest_) return;
    if (m == open_.size()) {
      if (left != 1) return;
      if (p + 1 < slice_.size()) return visit(p + 1, 0, slice_[p + 1], parts);
      if (std::any_of(open_.begin(), open_.end(), [](Index n) { return n != 1; })) return;
      best_ = share_;
      fewest_ = parts;
      return;
    }
    const Index most = std::gcd(left, open_[m]);
    for (Index n = most; n >= 1; --n) {
      if (most % n != 0) continue;
      share_[p][m] = n;
      open_[m] /= n;
      visit(p, m + 1, left / n, parts + (n > 1 ? 1 : 0));
      open_[m] *= n;
      share_[p][m] = 1;
    }
  }

  const std::vector<Index>& slice_;
  std::vector<Index> open_;  // what each mesh axis still needs
  std::vector<std::vector<Index>> share_, best_;
  std::size_t fewest_ = 0;  // parts that the best one cuts the slice into
};

std::vector<Index> link_sizes(const Mesh& mesh, const std::vector<std::string>& network) {
  std::vector<Index> sizes;
  for (const MeshAxis& axis : mesh.axes()) {
    const bool outside = std::find(network.begin(), network.end(), axis.name) != network.end();
    sizes.push_back(outside ? 1 : axis.size);
  }
  return sizes;
}

Slice default_slice(const Chip& chip, const std::vector<Index>& sizes) {
  std::vector<Index> own;
  Index count = 1;
  for (const Index n : sizes) {
    count *= n;
    if (n > 1) own.push_back(n);
  }
  const bool serves = own.size() <= chip.pod.size() && fits(chip, own);
  return serves ? slice_of(chip, own) : cubic_slice(chip, count);
}

}  // namespace

Index Slice::chip_count() const {
  return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>());
}

Slice make_slice(const Chip& chip, std::vector<Index> shape) {
  KREF_CHECK(!shape.empty() && shape.size() <= chip.pod.size(), "slice ", shape_text(shape),
             " has ", shape.size(), " axes, expected 1 to ", chip.pod.size(),
             ", the axes of links of ", chip.name);
  for (const Index n : shape) {
    KREF_CHECK(n >= 1, "slice ", shape_text(shape), ": extent ", n, ", expected at least 1");
  }
  KREF_CHECK(fits(chip, shape), "slice ", shape_text(shape), " is larger than a pod of ", chip.name,
             ", ", shape_text(chip.pod));
  return slice_of(chip, std::move(shape));
}

Slice parse_slice(const Chip& chip, std::string_view text) {
  std::vector<Index> shape;
  std::string_view rest = text;
  while (true) {
    const std::size_t cross = rest.find('x');
    const std::string_view part = rest.substr(0, cross);
    Index n = 0;
    for (const char c : part) {
      KREF_CHECK(c >= '0' && c <= '9' && part.size() < 10, "slice '", abridged(text),
                 "', expected chips along each axis, as in 4x4x4");
      n = n * 10 + (c - '0');
    }
    KREF_CHECK(!part.empty(), "slice '", abridged(text),
               "', expected chips along each axis, as in 4x4x4");
    shape.push_back(n);
    if (cross == std::string_view::npos) break;
    rest = rest.substr(cross + 1);
  }
  return make_slice(chip, std::move(shape));
}

Slice cubic_slice(const Chip& chip, Index count) {
  std::optional<Slice> best;
  const auto worth = [](const Slice& s) {
    const auto rings = std::count(s.wraps.begin(), s.wraps.end(), true);
    return std::pair(rings, -std::accumulate(s.shape.begin(), s.shape.end(), Index{0}));
  };
  const auto consider = [&](std::vector<Index> shape) {
    if (!fits(chip, shape)) return;
    Slice s = slice_of(chip, std::move(shape));
    if (!best || worth(s) > worth(*best)) best = std::move(s);
  };
  const Index most = *std::max_element(chip.pod.begin(), chip.pod.end());
  for (Index a = 1; a <= most; ++a) {
    if (count % a != 0) continue;
    if (chip.pod.size() == 2 && a <= count / a) consider({a, count / a});
    for (Index b = a; chip.pod.size() == 3 && b <= most; ++b) {
      if ((count / a) % b == 0 && count / a / b >= b) consider({a, b, count / a / b});
    }
  }
  KREF_CHECK(best.has_value(), "no slice of ", chip.name, " has ", count, " chips; a pod is ",
             shape_text(chip.pod));
  return *best;
}

std::string to_string(const Slice& slice) {
  std::string out = slice.chip.name + ' ' + shape_text(slice.shape);
  const auto rings = std::count(slice.wraps.begin(), slice.wraps.end(), true);
  if (rings == 0) return out + ", no axis wraps";
  if (static_cast<std::size_t>(rings) == slice.wraps.size()) return out + ", all axes wrap";
  for (std::size_t k = 0; k < slice.wraps.size(); ++k) {
    if (slice.wraps[k]) out += detail::cat(", axis ", k, " wraps");
  }
  return out;
}

std::vector<LinkAxis> MeshLinks::of(const std::vector<std::string>& names) const {
  std::vector<LinkAxis> out;
  for (const std::string& name : names) {
    for (const LinkAxis& axis : axes[mesh.index(name)]) {
      if (axis.size > 1) out.push_back(axis);
    }
  }
  return out;
}

MeshLinks lay_out(const Chip& chip, const Mesh& mesh, const std::optional<Slice>& given,
                  const std::vector<std::string>& network) {
  for (const std::string& name : network) mesh.index(name);
  const std::vector<Index> sizes = link_sizes(mesh, network);
  Index count = 1;
  for (const Index n : sizes) {
    KREF_CHECK(!__builtin_mul_overflow(count, n, &count), "mesh ", to_string(mesh),
               " has too many devices for any slice");
  }
  const Slice slice = given ? *given : default_slice(chip, sizes);
  KREF_CHECK(slice.chip_count() == count,
             mesh.axes().empty() ? "a run without mesh" : "mesh " + to_string(mesh), " needs ",
             count, " chips a slice, slice ", shape_text(slice.shape), " has ", slice.chip_count());
  Layout layout(slice.shape, sizes);
  KREF_CHECK(layout.find(), "mesh ", to_string(mesh), " does not fit on slice ",
             shape_text(slice.shape),
             ": an axis of the mesh is neither axes of the slice nor parts of them");
  MeshLinks links{mesh, slice, std::vector<std::vector<LinkAxis>>(sizes.size())};
  for (std::size_t p = 0; p < slice.shape.size(); ++p) {
    Index stride = slice.shape[p];
    for (std::size_t m = 0; m < sizes.size(); ++m) {
      const Index n = layout.best()[p][m];
      if (n == 1) continue;
      stride /= n;
      const bool major = n * stride == slice.shape[p];
      links.axes[m].push_back({n, major && slice.wraps[p], stride, false});
    }
  }
  for (const std::string& name : network) {
    const std::size_t m = mesh.index(name);
    links.axes[m] = {{mesh.axes()[m].size, true, 1, true}};
  }
  return links;
}

std::string to_string(const MeshLinks& links) {
  std::string out;
  for (std::size_t m = 0; m < links.axes.size(); ++m) {
    const MeshAxis& axis = links.mesh.axes()[m];
    out += detail::cat(out.empty() ? "" : "; ", axis.name, '=', axis.size, " over ");
    std::string parts;
    for (const LinkAxis& one : links.axes[m]) {
      parts += (parts.empty() ? "" : " and ");
      if (one.network) {
        parts += "the network";
        continue;
      }
      parts += detail::cat(one.wraps ? "a ring of " : "a line of ", one.size);
      if (one.stride > 1)
        parts += detail::cat(" (every ", one.stride,
                             one.stride == 2   ? "nd chip)"
                             : one.stride == 3 ? "rd chip)"
                                               : "th chip)");
    }
    out += parts.empty() ? "nothing" : parts;
  }
  return out.empty() ? "one chip" : out;
}

}  // namespace kref
