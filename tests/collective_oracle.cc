// SPDX-License-Identifier: Apache-2.0
#include "tests/collective_oracle.h"

#include <algorithm>

namespace kref::oracle {

Local::Local(Coordinates extents) : shape(std::move(extents)) {
  Index count = 1;
  for (const Index e : shape) count *= e;
  values.assign(static_cast<std::size_t>(count), 0);
}

double& Local::at(const Coordinates& c) {
  Index flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + c[d];
  return values.at(static_cast<std::size_t>(flat));
}

void each(const Coordinates& shape, const std::function<void(const Coordinates&)>& f) {
  if (std::count(shape.begin(), shape.end(), 0) > 0) return;
  Coordinates c(shape.size(), 0);
  for (;;) {
    f(c);
    std::size_t d = shape.size();
    while (d > 0 && ++c[d - 1] == shape[d - 1]) c[--d] = 0;
    if (d == 0) return;
  }
}

std::vector<Index> members(const Mesh& mesh, const AxisNames& axes, const AxisIndexGroups& groups,
                           Index device) {
  const Coordinates own = mesh.coordinates(device);
  // By index along the axes, the first one major.
  std::vector<Index> all;
  std::vector<std::size_t> named;
  Index count = 1;
  for (const std::string& name : axes.names) {
    named.push_back(mesh.index(name));
    count *= mesh.size(name);
  }
  Index own_index = 0;
  for (const std::size_t a : named) own_index = own_index * mesh.axes()[a].size + own[a];
  for (Index i = 0; i < count; ++i) {
    Coordinates c = own;
    Index rest = i;
    for (std::size_t k = named.size(); k-- > 0;) {
      c[named[k]] = rest % mesh.axes()[named[k]].size;
      rest /= mesh.axes()[named[k]].size;
    }
    all.push_back(mesh.device(c));
  }
  for (const auto& group : groups) {
    if (std::count(group.begin(), group.end(), own_index) == 0) continue;
    std::vector<Index> out;
    for (const Index i : group) out.push_back(all[static_cast<std::size_t>(i)]);
    return out;
  }
  return all;
}

Index Where::rank(Index device) const {
  const std::vector<Index> all = group(device);
  return std::find(all.begin(), all.end(), device) - all.begin();
}

bool Where::in_mesh_order() const {
  for (std::size_t k = 1; k < axes.names.size(); ++k) {
    if (mesh.index(axes.names[k - 1]) > mesh.index(axes.names[k])) return false;
  }
  return true;
}

std::string Where::name() const {
  std::string out = to_string(mesh) + " over " + to_string(axes);
  for (const auto& g : groups) {
    out += ' ';
    out += shape_string(g);
  }
  return out;
}

namespace {

// Each device's result, of a shape made from its input's: value(device, members, rank,
// coordinates).
using Value = std::function<double(const std::vector<Index>&, Index, const Coordinates&)>;
World made(const Where& where, const World& x,
           const std::function<void(Coordinates&, Index)>& shape, const Value& value) {
  World out;
  for (Index d = 0; d < where.devices(); ++d) {
    const std::vector<Index> all = where.group(d);
    Coordinates s = x[static_cast<std::size_t>(d)].shape;
    shape(s, static_cast<Index>(all.size()));
    Local local(s);
    const Index rank = where.rank(d);
    each(s, [&](const Coordinates& c) { local.at(c) = value(all, rank, c); });
    out.push_back(local);
  }
  return out;
}

// The same of results whose element depends on that one element of each member: value(rank, those).
World element_wise(const Where& where, const World& x,
                   const std::function<double(Index, const std::vector<double>&)>& value) {
  World out = x;
  for (Index d = 0; d < where.devices(); ++d) {
    const std::vector<Index> all = where.group(d);
    const Index rank = where.rank(d);
    std::vector<double> terms(all.size());
    std::vector<double>& values = out[static_cast<std::size_t>(d)].values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) {
        terms[j] = x[static_cast<std::size_t>(all[j])].values[i];
      }
      values[i] = value(rank, terms);
    }
  }
  return out;
}

const Local& of(const World& x, const std::vector<Index>& all, Index member) {
  return x[static_cast<std::size_t>(all[static_cast<std::size_t>(member)])];
}

Coordinates inserted(Coordinates c, Index at, Index value) {
  c.insert(c.begin() + at, value);
  return c;
}
Coordinates removed(Coordinates c, Index at) {
  c.erase(c.begin() + at);
  return c;
}
void unchanged(Coordinates&, Index) {}

}  // namespace

World all_gather(const Where& where, const World& x, Index axis, bool tiled) {
  if (where.axes.names.empty()) return x;
  const auto a = static_cast<std::size_t>(axis);
  return made(
      where, x,
      [&](Coordinates& s, Index n) {
        if (tiled) s[a] *= n;
        if (!tiled) s = inserted(s, axis, n);
      },
      [&](const std::vector<Index>& all, Index, const Coordinates& c) {
        if (!tiled) return of(x, all, c[a]).at(removed(c, axis));
        const Index block = of(x, all, 0).shape[a];
        Coordinates in = c;
        in[a] = c[a] % block;
        return of(x, all, c[a] / block).at(in);
      });
}

World own_slice(const Where& where, const World& x, Index axis, bool tiled) {
  if (where.axes.names.empty()) return x;
  const auto a = static_cast<std::size_t>(axis);
  return made(
      where, x,
      [&](Coordinates& s, Index n) {
        if (tiled) s[a] /= n;
        if (!tiled) s = removed(s, axis);
      },
      [&](const std::vector<Index>& all, Index rank, const Coordinates& c) {
        if (!tiled) return of(x, all, rank).at(inserted(c, axis, rank));
        Coordinates in = c;
        in[a] += rank * (of(x, all, rank).shape[a] / static_cast<Index>(all.size()));
        return of(x, all, rank).at(in);
      });
}

World psum_scatter(const Where& where, const World& x, Index dimension, bool tiled) {
  if (where.axes.names.empty()) return x;
  return own_slice(where, psum(where, x), dimension, tiled);
}

World all_to_all(const Where& where, const World& x, Index split, Index concat, bool tiled) {
  if (where.axes.names.empty()) return x;
  const auto p = static_cast<std::size_t>(split), q = static_cast<std::size_t>(concat);
  return made(
      where, x,
      [&](Coordinates& s, Index n) {
        if (tiled) s[p] /= n, s[q] *= n;
        if (!tiled) s = inserted(removed(s, split), concat, n);
      },
      [&](const std::vector<Index>& all, Index rank, const Coordinates& c) {
        if (!tiled) return of(x, all, c[q]).at(inserted(removed(c, concat), split, rank));
        const auto n = static_cast<Index>(all.size());
        const Index chunk = of(x, all, 0).shape[p] / n;
        const Index block = p == q ? chunk : of(x, all, 0).shape[q];
        Coordinates in = c;
        in[q] = c[q] % block;
        in[p] += rank * chunk;
        return of(x, all, c[q] / block).at(in);
      });
}

World ppermute(const Where& where, const World& x,
               const std::vector<std::pair<Index, Index>>& perm) {
  if (where.axes.names.empty()) return x;
  return made(where, x, unchanged,
              [&](const std::vector<Index>& all, Index rank, const Coordinates& c) {
                for (const auto& pair : perm) {
                  if (pair.second == rank) return of(x, all, pair.first).at(c);
                }
                return 0.0;
              });
}

World pbroadcast(const Where& where, const World& x, Index source) {
  return made(where, x, unchanged, [&](const std::vector<Index>& all, Index, const Coordinates& c) {
    return of(x, all, source).at(c);
  });
}

World psum_to(const Where& where, const World& x, Index target) {
  return element_wise(where, psum(where, x), [&](Index rank, const std::vector<double>& sums) {
    return rank == target ? sums[0] : 0.0;
  });
}

World folded(const Where& where, const World& x,
             const std::function<double(double, double)>& fold) {
  return element_wise(where, x, [&](Index, const std::vector<double>& terms) {
    double out = terms[0];
    for (std::size_t j = 1; j < terms.size(); ++j) out = fold(out, terms[j]);
    return out;
  });
}

World psum(const Where& where, const World& x) {
  return folded(where, x, [](double a, double b) { return a + b; });
}

World pmean(const Where& where, const World& x) {
  return element_wise(where, psum(where, x), [&](Index, const std::vector<double>& sums) {
    return sums[0] / static_cast<double>(sums.size());
  });
}

World pargmax(const Where& where, const World& x, bool min) {
  return element_wise(where, x, [&](Index, const std::vector<double>& terms) {
    std::size_t best = 0;
    for (std::size_t j = 1; j < terms.size(); ++j) {
      if (min ? terms[j] < terms[best] : terms[j] > terms[best]) best = j;
    }
    return static_cast<double>(best);
  });
}

}  // namespace kref::oracle
