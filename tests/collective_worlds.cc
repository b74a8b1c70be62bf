// SPDX-License-Identifier: Apache-2.0
// Meshes, inputs and comparisons of the tests of collectives.
#include <algorithm>
#include <cmath>

#include "tests/collective_oracle.h"

namespace kref::oracle {

Array array_of(const Local& x, DType type) {
  Array out(type, x.shape);
  with_dtype(type, [&]<class T>() {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      out.mutable_elements<T>()[i] = static_cast<T>(x.values[i]);
    }
  });
  return out;
}

std::vector<Array> arrays_of(const World& x, DType type) {
  std::vector<Array> out;
  for (const Local& local : x) out.push_back(array_of(local, type));
  return out;
}

Local local_of(const Array& x) {
  Local out(Coordinates(x.shape().begin(), x.shape().end()));
  for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] = x.at(static_cast<Index>(i));
  return out;
}

const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> all = {
      Mesh::parse("X=1"),     Mesh::parse("X=2"),     Mesh::parse("X=3"),
      Mesh::parse("X=4"),     Mesh::parse("X=6"),     Mesh::parse("X=2,Y=2"),
      Mesh::parse("X=2,Y=3"), Mesh::parse("X=2,Y=4"), Mesh::parse("X=2,Y=2,Z=2")};
  return all;
}

std::vector<AxisNames> axis_choices(const Mesh& mesh) {
  std::vector<std::vector<std::string>> all = {{}};
  for (std::size_t k = 0; k < all.size(); ++k) {
    for (const MeshAxis& axis : mesh.axes()) {
      std::vector<std::string> longer = all[k];
      if (std::count(longer.begin(), longer.end(), axis.name) > 0) continue;
      longer.push_back(axis.name);
      all.push_back(longer);
    }
  }
  return std::vector<AxisNames>(all.begin(), all.end());
}

World small_integers(Index devices, const Coordinates& shape, Index spread, bool negative) {
  World out;
  const Index count = negative ? 2 * spread + 1 : spread + 1;
  std::uint32_t state = 12345;
  for (Index d = 0; d < devices; ++d) {
    Local local(shape);
    for (double& v : local.values) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<double>(static_cast<Index>(state >> 8) % count - (negative ? spread : 0));
    }
    out.push_back(local);
  }
  return out;
}

std::vector<Array> run(const Mesh& mesh, const std::function<Array(Device&)>& body,
                       const LaunchOptions& options) {
  std::vector<Array> out(static_cast<std::size_t>(mesh.device_count()));
  launch(
      mesh, [&](Device& device) { out[static_cast<std::size_t>(device.index())] = body(device); },
      options);
  return out;
}

std::string difference(const Array& actual, const Local& expected, DType type) {
  const Array wanted = array_of(expected, type);
  if (actual.dtype() != type || shape_string(actual.shape()) != shape_string(expected.shape)) {
    return "is " + to_string(actual) + ", expected " + to_string(wanted);
  }
  for (Index i = 0; i < actual.size(); ++i) {
    const double a = actual.at(i), e = wanted.at(i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    return to_string(actual) + " has " + std::to_string(a) + " at " + std::to_string(i) +
           ", expected " + std::to_string(e);
  }
  return "";
}

}  // namespace kref::oracle
