// SPDX-License-Identifier: Apache-2.0
// What a newcomer writes first with several devices; the README quotes these.
#include <doctest/doctest.h>

#include "kernels/matmul.h"
#include "sharding/sharding.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// Tensor parallel: w_in is cut by columns and w_out by rows over "model", x by rows over "data".
Array tensor_parallel_layer(const Mesh& mesh, const Array& x, const Array& w_in,
                            const Array& w_out) {
  const auto body = [](Device& device, const Array& rows, const Array& in, const Array& out) {
    const Array hidden = matmul(rows, in);      // [m / data, f / model]
    const Array partial = matmul(hidden, out);  // [m / data, n], to be summed over "model"
    return psum(device, partial, "model");
  };
  const auto layer = shard_map(
      mesh, {.in_specs = {P{"data"}, P{none, "model"}, P{"model"}}, .out_specs = P{"data"}}, body);
  return layer(x, w_in, w_out);
}

// FSDP: each device keeps a part of the rows of w and gathers the whole when it needs it.
Array fsdp_layer(const Mesh& mesh, const Array& x, const Sharded& w) {
  const auto body = [](Device& device, const Array& rows, const Array& part) {
    const Array whole = all_gather(device, part, "data", {.axis = 0, .tiled = true});
    return matmul(rows, whole);
  };
  return shard_map(mesh, {.in_specs = {P{"data"}, P{"data"}}, .out_specs = P{"data"}}, body)(x, w);
}

// The same layer with a body on Values: its specs are proved, and it has a derivative.
std::vector<Array> fsdp_gradients(const Mesh& mesh, const Array& x, const Array& w,
                                  const Array& dy) {
  const auto body = [](Tracer&, const Value& rows, const Value& part) {
    return dot(rows, all_gather(part, "data", {.axis = 0, .tiled = true}));
  };
  const auto layer =
      shard_map(mesh, {.in_specs = {P{"data"}, P{"data"}}, .out_specs = P{"data"}}, body);
  const auto [y, pullback] = vjp(layer, x, w);
  return pullback(dy);  // of x, and of w: the transpose of all_gather is psum_scatter
}

// x w by loops.
std::vector<double> product(const Array& x, const Array& w, bool trans_x = false,
                            bool trans_w = false) {
  const Index m = x.extent(trans_x ? 1 : 0), k = x.extent(trans_x ? 0 : 1);
  const Index n = w.extent(trans_w ? 0 : 1);
  std::vector<double> out;
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      double sum = 0;
      for (Index l = 0; l < k; ++l) {
        sum += x.at(trans_x ? l * m + i : i * k + l) * w.at(trans_w ? j * k + l : l * n + j);
      }
      out.push_back(sum);
    }
  }
  return out;
}

Array rows_of(const std::vector<double>& values, Index columns) {
  return array_of({static_cast<Index>(values.size()) / columns, columns},
                  std::vector<float>(values.begin(), values.end()));
}

TEST_CASE("the layers of the README give the unsharded results") {
  const Mesh mesh = Mesh::parse("data=2,model=4");
  const Array x = mixed({6, 4}, 1), w_in = mixed({4, 8}, 2), w_out = mixed({8, 5}, 3);
  const Array hidden = rows_of(product(x, w_in), 8);
  CHECK(values(tensor_parallel_layer(mesh, x, w_in, w_out)) == product(hidden, w_out));

  const Mesh line = Mesh::parse("data=4");
  const Array rows = mixed({8, 4}, 4), w = mixed({4, 6}, 5), dy = mixed({8, 6}, 6);
  CHECK(values(fsdp_layer(line, rows, shard(line, w, P{"data"}))) == product(rows, w));
  const std::vector<Array> grads = fsdp_gradients(line, rows, w, dy);
  CHECK(values(grads[0]) == product(dy, w, false, true));
  CHECK(values(grads[1]) == product(rows, dy, true, false));
}

TEST_CASE("the mistakes that the README shows are told as it says") {
  const Mesh mesh = Mesh::parse("data=2,model=4");
  CHECK(refusal([&] {
          tensor_parallel_layer(mesh, iota({6, 4}), iota({4, 6}), iota({6, 5}));
        })
            .find("argument 1: dimension 1 of size 6 is not divisible by the 4 devices of axis "
                  "model") == 0);
  const auto unsummed = [](Tracer&, const Value& a, const Value& b) { return dot(a, b); };
  const auto f =
      shard_map(mesh, {.in_specs = {P{none, "model"}, P{"model"}}, .out_specs = P()}, unsummed);
  CHECK(refusal([&] {
          f(iota({2, 4}), iota({4, 2}));
        }).find("require replication") != std::string::npos);
}

}  // namespace
}  // namespace kref
