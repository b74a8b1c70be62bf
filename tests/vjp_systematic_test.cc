// SPDX-License-Identifier: Apache-2.0
// Gradients of products of every sharding, checked and unchecked, against unsharded ones by loops
// (behaviours 2 and 41: JAX's systematic tests of values and gradients).
#include <doctest/doctest.h>

#include <algorithm>

#include "sharding/value_collectives.h"
#include "sharding/vjp.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Doubles = std::vector<double>;
using Names = std::vector<std::string>;

bool disjoint(const Names& a, const Names& b) {
  return std::none_of(a.begin(), a.end(), [&](const std::string& axis) {
    return std::find(b.begin(), b.end(), axis) != b.end();
  });
}

// a b, or with one of them transposed, by loops.
Doubles product(const Doubles& a, const Doubles& b, Index m, Index n, Index k, bool trans_a,
                bool trans_b) {
  Doubles out;
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      double sum = 0;
      for (Index l = 0; l < k; ++l) {
        sum += a[static_cast<std::size_t>(trans_a ? l * m + i : i * k + l)] *
               b[static_cast<std::size_t>(trans_b ? j * k + l : l * n + j)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

// z = (x w)^2 + c x w with a replicated scalar c.
TEST_CASE("systematic: values and gradients are those of the unsharded function") {
  const Index m = 12, k = 12, n = 12;
  const Array x = mixed({m, k}, 1), w = mixed({k, n}, 2);
  // Unchecked, a cotangent is divided by as many devices as share it: six at most.
  Array ct = mixed({m, n}, 3);
  for (float& v : ct.mutable_elements<float>()) v *= 6;
  const double c = 3;
  // The unsharded function and its gradients.
  const Doubles xs = values(x), ws = values(w), cts = values(ct);
  const Doubles y = product(xs, ws, m, n, k, false, false);
  Doubles z, dy;
  double dc = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    z.push_back(y[i] * y[i] + c * y[i]);
    dy.push_back(cts[i] * (2 * y[i] + c));
    dc += cts[i] * y[i];
  }
  const Doubles dx = product(dy, ws, m, k, n, false, true);
  const Doubles dw = product(xs, dy, k, n, m, true, false);

  int run = 0;
  for (const char* text : {"a=2,b=2", "a=3,b=2", "a=6", "a=1,b=2"}) {
    const Mesh mesh = Mesh::parse(text);
    std::vector<Names> choices = {{}, {"a"}};
    if (mesh.find("b")) {
      choices.insert(choices.end(), {{"b"}, {"a", "b"}, {"b", "a"}});
    }
    for (const Names& rows : choices) {
      for (const Names& inner : choices) {
        for (const Names& columns : choices) {
          if (!disjoint(rows, inner) || !disjoint(rows, columns) || !disjoint(inner, columns)) {
            continue;
          }
          const P in_x{SpecEntry(rows), SpecEntry(inner)},
              in_w{SpecEntry(inner), SpecEntry(columns)};
          const P out{SpecEntry(rows), SpecEntry(columns)};
          const auto body = [inner](Tracer&, const Value& a, const Value& b, const Value& s) {
            const Value p = psum(dot(a, b), AxisNames(inner));
            return p * p + s * p;
          };
          for (const bool checked : {true, false}) {
            const auto f = shard_map(
                mesh, {.in_specs = {in_x, in_w, P()}, .out_specs = {out}, .check_vma = checked},
                body);
            const auto made = vjp(f, x, w, full({}, static_cast<float>(c)));
            const std::vector<Array> grads = made.second(ct);
            const bool same = values(made.first) == z && values(grads[0]) == dx &&
                              values(grads[1]) == dw && grads[2].at(0) == dc;
            CHECK_MESSAGE(same, std::string(text),
                          std::string(checked ? " checked " : " unchecked "), to_string(in_x), " ",
                          to_string(in_w));
            ++run;
          }
        }
      }
    }
  }
  MESSAGE(run, " shardings");
  CHECK(run > 100);
}

}  // namespace
}  // namespace kref
