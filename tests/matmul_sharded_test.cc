// SPDX-License-Identifier: Apache-2.0
// Sharded runs of matmul on random legal placements: the bits are those that the order of sums
// promises, and the judge accepts them and nothing that lost a partial sum.
#include "golden/matmul_sharded.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>

#include "golden/judge.h"
#include "golden/operation.h"
#include "tests/refusal.h"

namespace kref {
namespace {

constexpr Index kM = 12, kN = 24, kK = 48;

template <class T>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <>
struct AccumulatorOf<std::int8_t> {
  using Type = std::int32_t;
};

template <class T>
Array random_array(std::mt19937& random, std::vector<Index> shape) {
  Array out(dtype_of<T>, shape);
  for (T& v : out.mutable_elements<T>()) {
    if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(static_cast<int>(random() % 255) - 127);
    } else {
      v = static_cast<T>((static_cast<double>(random()) / 4294967296.0 - 0.4) * 3);
    }
  }
  return out;
}

PartitionSpec random_spec(std::mt19937& random, const Mesh& mesh) {
  PartitionSpec spec;
  spec.entries.resize(2);
  for (const MeshAxis& axis : mesh.axes()) {
    const std::size_t d = random() % 3;
    if (d < 2) spec.entries[d].push_back(axis.name);
  }
  return spec;
}

// A run whose x [M, K], y [K, N] and z are placed at random, so that it is legal; what is stored
// transposed has its spec transposed too.
template <class T>
Run random_run(std::mt19937& random) {
  Run run;
  run.origin = "test";
  run.op = "matmul";
  run.mesh = Mesh::parse("X=2,Y=3,Z=2");
  const bool trans_x = random() % 2 == 0, trans_y = random() % 2 == 0;
  run.set["trans_x"] = trans_x;
  run.set["trans_y"] = trans_y;
  using Dims = std::vector<Index>;
  run.in.emplace("x", random_array<T>(random, trans_x ? Dims{kK, kM} : Dims{kM, kK}));
  run.in.emplace("y", random_array<T>(random, trans_y ? Dims{kN, kK} : Dims{kK, kN}));
  while (true) {
    run.in_specs["x"] = random_spec(random, *run.mesh);
    // Half the time as the contraction of x has it, else partial sums would be rare.
    run.in_specs["y"] = random_spec(random, *run.mesh);
    if (random() % 2 == 0) {
      PartitionSpec& y = run.in_specs["y"];
      y.entries = {{}, {}};
      y.entries[trans_y ? 1 : 0] = run.in_specs["x"].entries[trans_x ? 0 : 1];
    }
    OutSpec z{random_spec(random, *run.mesh), {}};
    for (const MeshAxis& axis : run.mesh->axes()) {
      if (!z.spec.names(axis.name) && random() % 3 == 0) z.unreduced.push_back(axis.name);
    }
    run.out_specs["z"] = z;
    if (refusal([&] { find_operation("matmul").validate(run, false); }) == "(not refused)")
      return run;
  }
}

// z by plain loops: each device's block of K summed with fused multiply-add, the blocks' sums
// added in ascending order, rounded once. Its placement is worked out from the specs alone: the
// device at (coordinates along the contraction axes) has the block of that number.
template <class T, class Z>
std::vector<Z> by_hand(const Run& run, bool& partial) {
  using A = typename AccumulatorOf<T>::Type;
  const bool trans_x = run.set["trans_x"], trans_y = run.set["trans_y"];
  const auto x = run.in.at("x").elements<T>(), y = run.in.at("y").elements<T>();
  std::vector<std::string> axes = run.in_specs.at("x").entries[trans_x ? 0 : 1];
  if (axes != run.in_specs.at("y").entries[trans_y ? 1 : 0]) axes.clear();  // gathered
  partial = !axes.empty();
  Index blocks = 1, kept = 1;
  for (const std::string& axis : axes) blocks *= run.mesh->size(axis);
  const std::vector<std::string>& unreduced = run.out_specs.at("z").unreduced;
  for (const std::string& axis : unreduced) kept *= run.mesh->size(axis);

  std::vector<Z> z(static_cast<std::size_t>(kept * kM * kN));
  for (Index i = 0; i < kM; ++i) {
    for (Index j = 0; j < kN; ++j) {
      std::vector<A> sums(static_cast<std::size_t>(kept));
      std::vector<bool> begun(static_cast<std::size_t>(kept));
      for (Index block = 0; block < blocks; ++block) {
        A sum = 0;
        for (Index k = block * (kK / blocks); k < (block + 1) * (kK / blocks); ++k) {
          const T xv = x[static_cast<std::size_t>(trans_x ? k * kM + i : i * kK + k)];
          const T yv = y[static_cast<std::size_t>(trans_y ? j * kK + k : k * kN + j)];
          if constexpr (std::is_integral_v<A>) {
            sum += static_cast<A>(xv) * static_cast<A>(yv);
          } else {
            sum = std::fma(static_cast<A>(xv), static_cast<A>(yv), sum);
          }
        }
        // Which of the kept sums: the block's index along each unreduced axis.
        std::size_t at = 0;
        for (const std::string& axis : unreduced) {
          Index below = 1;  // blocks per step along the axis
          for (std::size_t a = axes.size(); axes[--a] != axis;) below *= run.mesh->size(axes[a]);
          const Index size = run.mesh->size(axis);
          at = at * static_cast<std::size_t>(size) + static_cast<std::size_t>(block / below % size);
        }
        sums[at] = begun[at] ? sums[at] + sum : sum;
        begun[at] = true;
      }
      for (Index u = 0; u < kept; ++u) {
        z[static_cast<std::size_t>((u * kM + i) * kN + j)] =
            static_cast<Z>(sums[static_cast<std::size_t>(u)]);
      }
    }
  }
  return z;
}

template <class T, class Z = T>
void check_random_runs(unsigned seed) {
  std::mt19937 random(seed);
  const Operation& operation = find_operation("matmul");
  int with_parts = 0, kept = 0;
  for (int trial = 0; trial < 160; ++trial) {
    Run run = random_run<T>(random);
    CAPTURE(to_string(run.in_specs.at("x")));
    CAPTURE(to_string(run.in_specs.at("y")));
    CAPTURE(to_string(run.out_specs.at("z")));
    const Array z = operation.compute(run).at("z");
    bool partial = false;
    const std::vector<Z> hand = by_hand<T, Z>(run, partial);
    REQUIRE(z.dtype() == dtype_of<Z>);
    REQUIRE(z.size() == static_cast<Index>(hand.size()));
    CHECK(std::memcmp(z.data(), hand.data(), z.bytes()) == 0);
    with_parts += partial ? 1 : 0;
    kept += run.out_specs.at("z").unreduced.empty() ? 0 : 1;

    run.out.emplace("z", z);
    operation.validate(run, true);
    const Expectation expected = operation.expect(run).at(0);
    CHECK_MESSAGE(judge(expected, z, BoundKind::kLikely).ok(), report(judge(expected, z)));
    // A machine that forgot the last device's block of K.
    if (!partial) continue;
    const std::vector<Index> shape(run.in.at("x").shape().begin(), run.in.at("x").shape().end());
    Array cut(dtype_of<T>, shape);
    const std::span<const T> from = run.in.at("x").elements<T>();
    const std::span<T> to = cut.mutable_elements<T>();
    const bool trans_x = run.set["trans_x"];
    for (Index e = 0; e < cut.size(); ++e) {
      const Index k = trans_x ? e / kM : e % kK;
      // The smallest block is a twelfth of K.
      if (k < kK - kK / 12) to[static_cast<std::size_t>(e)] = from[static_cast<std::size_t>(e)];
    }
    Run short_run = run;
    short_run.in.at("x") = cut;
    CHECK_FALSE(judge(expected, operation.compute(short_run).at("z"), BoundKind::kWorst).ok());
  }
  CHECK(with_parts > 30);
  CHECK(kept > 6);
}

TEST_CASE("sums of a sharded run are cut and added as its placement says, bit for bit") {
  SUBCASE("F32") { check_random_runs<float>(1); }
  SUBCASE("BF16") { check_random_runs<bf16>(2); }
  SUBCASE("F16") { check_random_runs<f16>(3); }
  SUBCASE("F64") { check_random_runs<double>(4); }
  SUBCASE("I8") { check_random_runs<std::int8_t, std::int32_t>(5); }
}

TEST_CASE("what cannot be placed or run is refused with the name of the run") {
  std::mt19937 random(9);
  const auto message = [&](const char* mesh, const P& x, const P& y, const OutSpec& z) {
    Run run;
    run.origin = "test";
    run.op = "matmul";
    run.in.emplace("x", random_array<float>(random, {8, 16}));
    run.in.emplace("y", random_array<float>(random, {16, 4}));
    run.mesh = Mesh::parse(mesh);
    run.in_specs = {{"x", x}, {"y", y}};
    run.out_specs = {{"z", z}};
    return refusal([&] { find_operation("matmul").validate(run, false); });
  };
  CHECK(message("X=2,Y=2", {none, "X"}, {"Y"}, {})
            .find("test: matmul: contracting dimensions sharded over different axes, X and Y") ==
        0);
  CHECK(message("X=1025", {}, {}, {}).find("1025 devices, expected at most 1024") !=
        std::string::npos);
  CHECK(message("X=2", {"X"}, {none, "X"}, {}).find("the result is not gathered") !=
        std::string::npos);
  CHECK(message("X=2", {none, "X"}, {}, {P{}, {"X"}}).find("is unreduced over 'X'") !=
        std::string::npos);
  CHECK(message("X=3", {"X"}, {}, {}).find("in_specs.x: dimension 0 of size 8 is not divisible") !=
        std::string::npos);
}

}  // namespace
}  // namespace kref
