// SPDX-License-Identifier: Apache-2.0
// Collectives that are started and taken later, and sums that are shared out on any schedule;
// schedules_test has a thousand schedules of mixed ones.
#include <doctest/doctest.h>

#include <cstring>

#include "sharding/collective_calls.h"
#include "tests/collective_oracle.h"
#include "tests/refusal.h"

namespace kref {
namespace {

// Fractions whose sums depend on their order.
Array rough(Index device, const oracle::Coordinates& shape) {
  Array out(DType::kF32, shape);
  float v = 0.37f + static_cast<float>(device);
  for (float& e : out.mutable_elements<float>()) {
    v = v * 1.7f + 0.13f;
    if (v > 9000) v /= 77777;
    e = v;
  }
  return out;
}

bool same_bits(const Array& a, const Array& b) {
  return to_string(a) == to_string(b) &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

using Blocking = std::function<Array(Device&, const Array&)>;
using Started = std::function<Pending(Device&, const Array&)>;
const AxisNames kX = "X";

// Every collective in both forms.
const std::vector<std::pair<Blocking, Started>>& forms() {
  static const AllGatherOptions gather = {.axis = 1, .tiled = true};
  static const PsumScatterOptions scatter = {.scatter_dimension = 0, .tiled = true};
  static const std::vector<std::pair<Blocking, Started>> all = {
      {[](Device& d, const Array& x) { return all_gather(d, x, kX, gather); },
       [](Device& d, const Array& x) { return all_gather_start(d, x, kX, gather); }},
      {[](Device& d, const Array& x) { return psum(d, x, kX); },
       [](Device& d, const Array& x) { return psum_start(d, x, kX); }},
      {[](Device& d, const Array& x) { return pmean(d, x, kX); },
       [](Device& d, const Array& x) { return pmean_start(d, x, kX); }},
      {[](Device& d, const Array& x) { return pmax(d, x, kX); },
       [](Device& d, const Array& x) { return pmax_start(d, x, kX); }},
      {[](Device& d, const Array& x) { return pmin(d, x, kX); },
       [](Device& d, const Array& x) { return pmin_start(d, x, kX); }},
      {[](Device& d, const Array& x) { return pargmax(d, x, kX); },
       [](Device& d, const Array& x) { return pargmax_start(d, x, kX); }},
      {[](Device& d, const Array& x) { return pargmin(d, x, kX); },
       [](Device& d, const Array& x) { return pargmin_start(d, x, kX); }},
      {[](Device& d, const Array& x) { return psum_scatter(d, x, kX, scatter); },
       [](Device& d, const Array& x) { return psum_scatter_start(d, x, kX, scatter); }},
      {[](Device& d, const Array& x) { return all_to_all(d, x, kX, 0, 1, {.tiled = true}); },
       [](Device& d, const Array& x) { return all_to_all_start(d, x, kX, 0, 1, {.tiled = true}); }},
      {[](Device& d, const Array& x) { return ppermute(d, x, kX, ring(4, 1)); },
       [](Device& d, const Array& x) { return ppermute_start(d, x, kX, ring(4, 1)); }},
      {[](Device& d, const Array& x) {
         return pshuffle(d, x, kX, {3, 1, 0, 2});
       },
       [](Device& d, const Array& x) {
         return pshuffle_start(d, x, kX, {3, 1, 0, 2});
       }},
      {[](Device& d, const Array& x) { return pswapaxes(d, x, kX, 0); },
       [](Device& d, const Array& x) { return pswapaxes_start(d, x, kX, 0); }},
      {[](Device& d, const Array& x) { return pbroadcast(d, x, kX, 2); },
       [](Device& d, const Array& x) { return pbroadcast_start(d, x, kX, 2); }},
      {[](Device& d, const Array& x) { return pvary(d, x, kX); },
       [](Device& d, const Array& x) { return pvary_start(d, x, kX); }}};
  return all;
}

// Small and shared out.
const oracle::Coordinates kShapes[] = {{4, 3}, {4, 6000}};

TEST_CASE(
    "started, all at once, and taken in another order, each gives what the blocking form gives") {
  for (const oracle::Coordinates& shape : kShapes) {
    launch(Mesh::parse("X=4"), [&](Device& d) {
      const Array x = rough(d.index(), shape);
      std::vector<Array> expected;
      for (const auto& form : forms()) expected.push_back(form.first(d, x));
      std::vector<Pending> started;
      for (const auto& form : forms()) started.push_back(form.second(d, x));
      // One that blocks goes between them.
      const Array other = psum(d, rough(d.index() + 7, shape), kX);
      const bool shared_last =
          shape[1] == 3;  // only a shared-out reduction waits for others to come
      for (std::size_t k = 0; k < started.size(); ++k) {
        const std::size_t at = shared_last ? started.size() - 1 - k : k;
        CHECK(same_bits(started[at].done(), expected[at]));
      }
      CHECK(same_bits(other, psum(d, rough(d.index() + 7, shape), kX)));
    });
  }
}

TEST_CASE("every device may take results in its own order") {
  for (const oracle::Coordinates& shape : kShapes) {
    launch(Mesh::parse("X=4"), [&](Device& d) {
      const Array x = rough(d.index(), shape), y = rough(d.index() + 4, shape);
      Pending first = all_gather_start(d, x, kX), second = ppermute_start(d, y, kX, ring(4, 1));
      const bool forward = d.index() % 2 == 0;
      Array a = forward ? first.done() : second.done(), b = forward ? second.done() : first.done();
      if (!forward) std::swap(a, b);
      CHECK(same_bits(a, all_gather(d, x, kX)));
      CHECK(same_bits(b, ppermute(d, y, kX, ring(4, 1))));
    });
  }
}

TEST_CASE("the operand lives as long as it is needed") {
  launch(Mesh::parse("X=4"), [&](Device& d) {
    Pending started = [&] { return ppermute_start(d, rough(d.index(), {500}), kX, ring(4, 1)); }();
    const Array got = started.done();
    CHECK(same_bits(got, rough((d.index() + 3) % 4, {500})));
  });
}

TEST_CASE("a started collective that nobody takes ends the launch") {
  for (const auto& form : forms()) {
    if (&form == &forms().back()) break;  // pvary: nobody waits for anybody
    for (const oracle::Coordinates& shape :
         {oracle::Coordinates{4, 3}, oracle::Coordinates{4, 6000}}) {
      const std::string message = refusal([&] {
        launch(Mesh::parse("X=4"), [&](Device& d) {
          Pending started = form.second(d, rough(d.index(), shape));
          if (d.index() != 2) started.done();
        });
      });
      CAPTURE(message);
      CHECK(message.find("device (X=2)") != std::string::npos);
    }
  }
}

TEST_CASE("sums that are shared out have the same bits on every schedule") {
  const Mesh mesh = Mesh::parse("X=4");
  const auto run = [&](const LaunchOptions& options) {
    return oracle::run(
        mesh, [](Device& d) { return psum(d, rough(d.index(), {20001}), kX); }, options);
  };
  const std::vector<Array> expected = run({});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<Array> got = run({.delay_seed = seed});
    for (std::size_t d = 0; d < got.size(); ++d) CHECK(same_bits(got[d], expected[0]));
  }
}

}  // namespace
}  // namespace kref
