// SPDX-License-Identifier: Apache-2.0
// One program that ran under JAX's Pallas interpreters: its inputs, and what came out, for tests
// that port it. The files are in tests/pallas/.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "dsl/dsl.h"
#include "golden/array_file.h"

namespace kref {

// The ways to execute a grid, which must agree bit for bit.
enum class Way { kOneThread, kThreeThreads, kCheck };
inline constexpr Way kWays[] = {Way::kOneThread, Way::kThreeThreads, Way::kCheck};
// For programs whose poison is meant to be seen: check refuses them.
inline constexpr Way kRunOnly[] = {Way::kOneThread, Way::kThreeThreads};

template <class F>
Trace execute(Grid& grid, Way way, const F& body) {
  if (way == Way::kCheck) return grid.check(body);
  set_threads(way == Way::kOneThread ? 1 : 3);
  const Trace trace = grid.run(body);
  set_threads(0);
  return trace;
}

// 0, 1, 2, ... in row-major order: every element names its place.
template <class T, std::size_t R>
Tensor<T, R> counted(const Shape<R>& shape) {
  Tensor<T, R> x(shape);
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<T>(static_cast<float>(e));
  return x;
}

class PallasProgram {
 public:
  explicit PallasProgram(const std::string& name)
      : file_(read_array_file(std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/pallas/" +
                              name + ".safetensors")) {}

  template <class T, std::size_t R>
  Tensor<T, R> in(const std::string& name) const {
    const Array array = find("in." + name);
    Tensor<T, R> out = shaped<T, R>(array);
    std::memcpy(out.data(), array.data(), array.bytes());
    return out;
  }

  // A tensor for output `name`: its element type must be T, its shape is the expected one's.
  template <class T, std::size_t R>
  Tensor<T, R> out(const std::string& name) const {
    return shaped<T, R>(find("out." + name));
  }

  // The same bits; NaN as NaN.
  template <class T, std::size_t R>
  void expect(const std::string& name, const Tensor<T, R>& actual) const {
    const Array array = find("out." + name);
    const auto expected = array.elements<T>();
    for (Index i = 0; i < actual.size(); ++i) {
      const T e = expected[static_cast<std::size_t>(i)], a = actual.data()[i];
      const auto is_nan = [](T v) {
        return is_float(dtype_of<T>) && std::isnan(static_cast<float>(v));
      };
      CAPTURE(name);
      CAPTURE(i);
      if (!(is_nan(e) && is_nan(a))) CHECK(std::memcmp(&e, &a, sizeof(T)) == 0);
    }
  }

  // |actual - expected| <= bound(i) for element i of the flattened output.
  template <class T, std::size_t R, class Bound>
  void expect_within(const std::string& name, const Tensor<T, R>& actual, Bound bound) const {
    const Array expected = find("out." + name);
    for (Index i = 0; i < actual.size(); ++i) {
      CAPTURE(name);
      CAPTURE(i);
      CHECK(std::abs(static_cast<double>(actual.data()[i]) - expected.at(i)) <= bound(i));
    }
  }

 private:
  Array find(const std::string& name) const {
    const FileArray* array = file_.find(name);
    REQUIRE_MESSAGE(array != nullptr, name);
    return array->array();
  }
  template <class T, std::size_t R>
  static Tensor<T, R> shaped(const Array& array) {
    return Tensor<T, R>(array.ref().ref<const T, R>().extents());
  }

  ArrayFile file_;
};

}  // namespace kref
