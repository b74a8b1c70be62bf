// SPDX-License-Identifier: Apache-2.0
// einshape: the dimensions of x are split into one a letter, put into the order of the result, and
// copied into the result split the same way; strides describe both.
#include <string>
#include <vector>

#include "dsl/overlap.h"
#include "kernels/move_ops.h"

namespace kref::detail {
namespace {

using Groups = std::vector<std::string>;  // the letters of each dimension

struct Einshape {
  std::string equation;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(cat("einshape: \"", equation, "\": ", parts...));
  }

  Groups parse(std::string_view side) const {
    Groups groups;
    bool open = false;
    std::string seen;
    for (const char c : side) {
      if (c == ' ') continue;
      if (c == '(') {
        if (open) refuse("a parenthesis within parentheses");
        open = true;
        groups.emplace_back();
      } else if (c == ')') {
        if (!open) refuse("unmatched parenthesis");
        if (groups.back().empty()) refuse("empty parentheses");
        open = false;
      } else {
        if (seen.find(c) != std::string::npos) refuse("dimension ", c, " appears twice on a side");
        seen += c;
        if (!open) groups.emplace_back();
        groups.back() += c;
      }
    }
    if (open) refuse("unmatched parenthesis");
    if (seen.size() > kMaxRank) refuse(seen.size(), " dimensions, at most ", kMaxRank);
    return groups;
  }

  // The sizes of all letters, from those that were given and the extents of x.
  std::vector<EinshapeSize> solve(const Groups& left, const ArrayRef& x,
                                  std::span<const EinshapeSize> given) const {
    if (left.size() != x.rank) {
      refuse("the left side has ", left.size(), " groups but x is ", to_string(x));
    }
    std::vector<EinshapeSize> out;
    for (std::size_t g = 0; g < left.size(); ++g) {
      Index known = 1;
      char open = 0;
      const std::size_t first = out.size();
      for (const char c : left[g]) {
        Index size = -1;
        for (const EinshapeSize& s : given) {
          if (s.dimension == c) size = s.size;
        }
        if (size < 0 && open != 0)
          refuse("ambiguous split of dimension ", g, ": sizes of ", open, " and ", c,
                 " are both unknown");
        if (size < 0) open = c;
        known *= size < 0 ? 1 : size;
        out.push_back({c, size});
      }
      if (open == 0 && known != x.extents[g])
        refuse("size mismatch for group ", g, ": (", left[g], ") is ", known, ", x is ",
               to_string(x));
      if (open == 0) continue;
      if (known == 0 || x.extents[g] % known != 0)
        refuse("cannot split dimension ", g, " of x ", to_string(x), " by ", known);
      for (std::size_t i = first; i < out.size(); ++i) {
        if (out[i].dimension == open) out[i].size = x.extents[g] / known;
      }
    }
    for (const EinshapeSize& s : given) {
      if (find(out, s.dimension) == nullptr) refuse("unknown dimension ", s.dimension);
    }
    return out;
  }

  static const EinshapeSize* find(const std::vector<EinshapeSize>& sizes, char c) {
    for (const EinshapeSize& s : sizes) {
      if (s.dimension == c) return &s;
    }
    return nullptr;
  }
};

// `a` with a dimension a letter, in the order of `order`.
template <class Void>
BasicArrayRef<Void> split(const BasicArrayRef<Void>& a, const Groups& groups,
                          const std::string& order, const std::vector<EinshapeSize>& sizes) {
  BasicArrayRef<Void> out = a;
  out.rank = order.size();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Index stride = a.strides[g];
    for (std::size_t i = groups[g].size(); i-- > 0;) {
      const std::size_t d = order.find(groups[g][i]);
      out.extents[d] = Einshape::find(sizes, groups[g][i])->size;
      out.strides[d] = stride;
      stride *= out.extents[d];
    }
  }
  return out;
}

}  // namespace

void einshape(std::string_view equation, const ArrayRef& x, const MutableArrayRef& out,
              std::span<const EinshapeSize> given) {
  const Einshape e{std::string(equation)};
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string_view::npos || equation.find("->", arrow + 1) != std::string_view::npos)
    e.refuse("expected exactly one '->'");
  const Groups left = e.parse(equation.substr(0, arrow)),
               right = e.parse(equation.substr(arrow + 2));
  const std::vector<EinshapeSize> sizes = e.solve(left, x, given);
  std::string order;
  for (const std::string& group : right) order += group;
  for (const char c : order) {
    if (Einshape::find(sizes, c) == nullptr) e.refuse("unknown dimension ", c, " on the right");
  }
  for (const EinshapeSize& s : sizes) {
    if (order.find(s.dimension) == std::string::npos)
      e.refuse("dimension ", s.dimension, " is missing on the right");
  }
  std::vector<Index> shape;
  for (const std::string& group : right) {
    shape.push_back(1);
    for (const char c : group) shape.back() *= Einshape::find(sizes, c)->size;
  }
  if (!std::equal(shape.begin(), shape.end(), out.shape().begin(), out.shape().end()))
    e.refuse("out is ", to_string(out), ", expected ", shape_string(shape));
  if (overlap(x, out)) e.refuse("out shares memory with x");
  copy_strided("einshape", split(x, left, order, sizes), split(out, right, order, sizes));
}

}  // namespace kref::detail
