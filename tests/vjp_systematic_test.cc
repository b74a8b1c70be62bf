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

double inner_product(const Array& a, const Array& b) {
  double sum = 0;
  for (Index i = 0; i < a.size(); ++i) sum += a.at(i) * b.at(i);
  return sum;
}

TEST_CASE("systematic: <A x, y> = <x, A^T y> for collectives of a body, checked and unchecked") {
  int run = 0, telling = 0;
  for (const char* text : {"a=1", "a=2", "a=3", "a=2,b=2", "a=2,b=3", "a=2,b=2,c=2"}) {
    const Mesh mesh = Mesh::parse(text);
    std::vector<Names> choices;
    for (const MeshAxis& one : mesh.axes()) {
      choices.push_back({one.name});
      for (const MeshAxis& two : mesh.axes()) {
        if (one.name != two.name) choices.push_back({one.name, two.name});
      }
    }
    Names everything;
    for (const MeshAxis& axis : mesh.axes()) everything.push_back(axis.name);
    for (const Names& names : choices) {
      const Index n = axis_size(mesh, names);
      std::vector<std::pair<Index, Index>> ring, line;
      for (Index i = 0; i < n; ++i) ring.emplace_back(i, (i + 1) % n);
      for (Index i = 0; i + 1 < n; ++i) line.emplace_back(i, i + 1);
      std::vector<LinearCollective> ops = {
          AllGather{.axis_name = names},
          AllGather{.axis_name = names, .axis = 1, .tiled = true},
          AllGather{.axis_name = names, .tiled = true, .to = GatherTo::kInvarying},
          PsumScatter{.axis_name = names},
          PsumScatter{.axis_name = names, .scatter_dimension = 1, .tiled = true},
          Psum{.axis_name = names},
          Pmean{.axis_name = names},
          AllToAll{.axis_name = names, .concat_axis = 1},
          AllToAll{.axis_name = names, .split_axis = 1, .tiled = true},
          Pbroadcast{.axis_name = names, .source = n - 1}};
      if (names.size() == 1 || mesh.index(names[0]) < mesh.index(names[1])) {
        ops.push_back(Ppermute{names, ring});  // lax.ppermute asks for the order of the mesh
        ops.push_back(Ppermute{names, line});
      }
      for (const LinearCollective& op : ops) {
        const auto body = [op](Tracer&, const Value& v) { return apply(op, v); };
        // Local blocks [n, n], each device its own; the result put together along dimension 0.
        const P spec{SpecEntry(everything)};
        Array x = mixed({n * mesh.device_count(), n}, 1);
        for (float& v : x.mutable_elements<float>()) v *= static_cast<float>(n);  // for pmean
        for (const bool checked : {true, false}) {
          const auto f = shard_map(
              mesh, {.in_specs = {spec}, .out_specs = {spec}, .check_vma = checked}, body);
          const auto [y, back] = vjp(f, x);
          Array ct = mixed(shape_of(y), 2);
          for (float& v : ct.mutable_elements<float>()) v *= static_cast<float>(n);
          const Array dx = back(ct)[0];
          CHECK_MESSAGE(inner_product(y, ct) == inner_product(x, dx), std::string(text), " ",
                        std::string(checked ? "checked " : "unchecked "), to_string(op));
          ++run;
          if (inner_product(y, ct) != 0) ++telling;
        }
      }
    }
  }
  MESSAGE(run, " identities");
  CHECK(telling > run - run / 10);
}

}  // namespace
}  // namespace kref
