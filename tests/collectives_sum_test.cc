// SPDX-License-Identifier: Apache-2.0
// The collectives that reduce, exactly as the oracle says, over the transport of threads and over
// one that only copies.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "sharding/collective_calls.h"
#include "tests/collective_oracle.h"
#include "tests/far_transport.h"

namespace kref {
namespace {

using oracle::Where;
using oracle::World;

using Body = std::function<Array(Device&, const Array&)>;
struct Case {
  std::string name;
  Body body;
  std::vector<Array> input;
  World expected;
  DType type;
};

void check_cases(const Mesh& mesh, const std::vector<Case>& cases, FarTraffic& traffic) {
  for (const bool far : {false, true}) {
    std::vector<std::vector<Array>> results(static_cast<std::size_t>(mesh.device_count()));
    const auto body = [&](Device& device) {
      const auto d = static_cast<std::size_t>(device.index());
      for (const Case& c : cases) results[d].push_back(c.body(device, c.input[d]));
    };
    far ? launch_far(mesh, body, traffic) : launch(mesh, body);
    for (std::size_t d = 0; d < results.size(); ++d) {
      for (std::size_t k = 0; k < cases.size(); ++k) {
        const Case& c = cases[k];
        const std::string wrong = oracle::difference(results[d][k], c.expected[d], c.type);
        if (!wrong.empty()) FAIL_CHECK(c.name, far ? " far" : "", " device ", d, ": ", wrong);
      }
    }
  }
}

// All reductions of one shape and type. Sums must be exact in the type.
void add_cases(std::vector<Case>& out, const Where& where, const oracle::Coordinates& shape,
               DType type, Index spread, bool negative) {
  const std::string at = where.name() + " " + name_of(type) + shape_string(shape) + " ";
  const AxisNames& over = where.axes;
  const AxisIndexGroups& groups = where.groups;
  const Index n = where.n();
  const World x = oracle::small_integers(where.devices(), shape, spread, negative);
  const auto add = [&](const std::string& name, const World& input, const World& expected,
                       DType result, const Body& body) {
    out.push_back({at + name, body, oracle::arrays_of(input, type), expected, result});
  };
  const bool same = over.names.empty();  // the identity
  const DType sum = type == DType::kBool && !same ? DType::kI32 : type;
  const DType mean = is_float(type) || same ? type : DType::kF32;
  for (const SumOrder order : {SumOrder::kRank, SumOrder::kRing}) {
    const PsumOptions options = {groups, {.order = order}};
    const std::string by = order == SumOrder::kRank ? "by rank" : "by ring";
    add("psum " + by, x, oracle::psum(where, x), sum,
        [=](Device& d, const Array& a) { return psum(d, a, over, options); });
    add("pmean " + by, x, oracle::pmean(where, x), mean,
        [=](Device& d, const Array& a) { return pmean(d, a, over, options); });
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const auto dim = static_cast<Index>(k);
      for (const bool tiled : {false, true}) {
        oracle::Coordinates wide = shape;
        wide[k] = tiled ? wide[k] * n : n;
        const World y = oracle::small_integers(where.devices(), wide, spread, negative);
        add("psum_scatter " + by + " dimension " + std::to_string(dim) + (tiled ? " tiled" : ""), y,
            oracle::psum_scatter(where, y, dim, tiled), sum, [=](Device& d, const Array& a) {
              return psum_scatter(
                  d, a, over,
                  {dim - static_cast<Index>(tiled) * static_cast<Index>(shape.size()),
                   tiled,
                   groups,
                   {.order = order}});
            });
      }
    }
    add("psum_to " + by, x, oracle::psum_to(where, x, n - 1), sum, [=](Device& d, const Array& a) {
      return PsumTo{over, n - 1, groups, {.order = order}}(d, a);
    });
  }
  add("pmax", x, oracle::folded(where, x, [](double a, double b) { return std::max(a, b); }), type,
      [=](Device& d, const Array& a) { return pmax(d, a, over, groups); });
  add("pmin", x, oracle::folded(where, x, [](double a, double b) { return std::min(a, b); }), type,
      [=](Device& d, const Array& a) { return pmin(d, a, over, groups); });
  if (over.names.size() == 1 && groups.empty()) {
    add("pargmax", x, oracle::pargmax(where, x, false), DType::kI32,
        [=](Device& d, const Array& a) { return pargmax(d, a, over); });
    add("pargmin", x, oracle::pargmax(where, x, true), DType::kI32,
        [=](Device& d, const Array& a) { return pargmin(d, a, over); });
  }
}

TEST_CASE("reductions are exact on every mesh, over every choice of axes in every order") {
  std::size_t run = 0;
  FarTraffic traffic;
  for (const Mesh& mesh : oracle::meshes()) {
    std::vector<Case> cases;
    for (const AxisNames& axes : oracle::axis_choices(mesh)) {
      add_cases(cases, {mesh, axes}, {2, 3, 2}, DType::kF32, 1000, true);
      // 19999 elements: large enough to be shared out, and no number of members divides them.
      add_cases(cases, {mesh, axes}, {19999}, DType::kI32, 100000, true);
    }
    check_cases(mesh, cases, traffic);
    run += cases.size();
  }
  CHECK(run > 1300);
  CHECK(traffic.fetched > static_cast<Index>(run));
  CHECK(traffic.put > static_cast<Index>(run));
  MESSAGE(run, " reductions");
}

TEST_CASE("reductions of every element type, small and shared out") {
  FarTraffic traffic;
  for (const char* mesh : {"X=2", "X=3", "X=2,Y=2"}) {
    const Where where = {Mesh::parse(mesh), Mesh::parse(mesh).axes().size() == 1
                                                ? AxisNames("X")
                                                : AxisNames(axes("Y", "X"))};
    std::vector<Case> cases;
    for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) {
      const auto type = static_cast<DType>(t);
      const bool narrow = type == DType::kF8E4M3 || type == DType::kF8E5M2 || type == DType::kBool;
      const bool negative = !narrow && type != DType::kU8 && type != DType::kU32;
      for (const oracle::Coordinates& shape :
           {oracle::Coordinates{3, 2}, oracle::Coordinates{3, 7001}}) {
        add_cases(cases, where, shape, type, narrow ? 1 : 30, negative);
      }
    }
    check_cases(where.mesh, cases, traffic);
  }
}

TEST_CASE("reductions within axis_index_groups, which may differ in size for some") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  FarTraffic traffic;
  std::vector<Case> cases;
  const Where even = {mesh, axes("X", "Y"), {{0, 2, 4, 6}, {7, 5, 3, 1}}};
  add_cases(cases, even, {2, 3}, DType::kF32, 1000, true);
  add_cases(cases, even, {20000}, DType::kF32, 1000, true);
  const Where uneven = {mesh, axes("X", "Y"), {{0}, {4, 1, 2}, {3, 5, 6, 7}}};
  for (const oracle::Coordinates& shape : {oracle::Coordinates{3}, oracle::Coordinates{20000}}) {
    const World x = oracle::small_integers(8, shape, 1000);
    const auto arrays = oracle::arrays_of(x, DType::kF32);
    cases.push_back({"uneven psum",
                     [=](Device& d, const Array& a) {
                       return psum(d, a, uneven.axes, {uneven.groups, {}});
                     },
                     arrays, oracle::psum(uneven, x), DType::kF32});
    cases.push_back(
        {"uneven pmax",
         [=](Device& d, const Array& a) { return pmax(d, a, uneven.axes, uneven.groups); }, arrays,
         oracle::folded(uneven, x, [](double a, double b) { return std::max(a, b); }),
         DType::kF32});
  }
  check_cases(mesh, cases, traffic);
}

TEST_CASE("arrays without elements, of rank 0, and no axes") {
  const Where where = {Mesh::parse("X=3"), "X"};
  FarTraffic traffic;
  std::vector<Case> cases;
  add_cases(cases, where, {}, DType::kF32, 100, true);
  add_cases(cases, where, {3, 0}, DType::kBF16, 100, true);
  add_cases(cases, {where.mesh, AxisNames()}, {2, 2}, DType::kBool, 1, false);
  check_cases(where.mesh, cases, traffic);
}

TEST_CASE("a NaN wins in pmax and pmin, the first one in pargmax; -0 is less than +0") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Where where = {Mesh::parse("X=3"), "X"};
  World x(3, oracle::Local(oracle::Coordinates{4}));
  x[0].values = {1, nan, 0.0, 5};
  x[1].values = {nan, 7, -0.0, 5};
  x[2].values = {2, nan, -0.0, 4};
  for (const DType type : {DType::kF32, DType::kF64, DType::kBF16, DType::kF8E4M3}) {
    const auto arrays = oracle::arrays_of(x, type);
    const auto each = [&](auto collective) {
      return oracle::run(where.mesh, [&](Device& d) {
        return collective(d, arrays[static_cast<std::size_t>(d.index())]);
      })[1];
    };
    const Array most = each([](Device& d, const Array& a) { return pmax(d, a, "X"); });
    const Array least = each([](Device& d, const Array& a) { return pmin(d, a, "X"); });
    const Array where_most = each([](Device& d, const Array& a) { return pargmax(d, a, "X"); });
    const Array where_least = each([](Device& d, const Array& a) { return pargmin(d, a, "X"); });
    CHECK(std::isnan(most.at(0)));
    CHECK(std::isnan(most.at(1)));
    CHECK(std::isnan(least.at(0)));
    CHECK_FALSE(std::signbit(most.at(2)));
    CHECK(std::signbit(least.at(2)));
    CHECK(most.at(3) == 5);
    CHECK(least.at(3) == 4);
    const auto places = where_most.elements<std::int32_t>(),
               low = where_least.elements<std::int32_t>();
    CHECK(std::vector<int>(places.begin(), places.end()) == std::vector<int>{1, 0, 0, 0});
    CHECK(std::vector<int>(low.begin(), low.end()) == std::vector<int>{1, 0, 0, 2});
  }
}

}  // namespace
}  // namespace kref
