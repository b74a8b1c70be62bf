// SPDX-License-Identifier: Apache-2.0
// The collectives that move elements, exactly as the oracle says: every mesh, all choices of axes
// in every order, tiled and untiled, every dimension; over the transport of threads and over one
// that only copies.
#include <doctest/doctest.h>

#include "sharding/collective_calls.h"
#include "tests/collective_oracle.h"
#include "tests/far_transport.h"

namespace kref {
namespace {

using oracle::Where;
using oracle::World;

// One collective on one kind of input, and what it should give.
struct Case {
  std::string name;
  LinearCollective op;
  World input, expected;
};

// The same on all devices in one launch, and in one with devices that are far from each other:
// whatever is wrong, by case and device. Gives what went between the far ones.
Index check_cases(const Mesh& mesh, const std::vector<Case>& cases, DType type) {
  std::vector<std::vector<Array>> inputs;
  for (const Case& c : cases) inputs.push_back(oracle::arrays_of(c.input, type));
  FarTraffic traffic;
  for (const bool far : {false, true}) {
    std::vector<std::vector<Array>> results(static_cast<std::size_t>(mesh.device_count()));
    const auto body = [&](Device& device) {
      const auto d = static_cast<std::size_t>(device.index());
      for (std::size_t k = 0; k < cases.size(); ++k) {
        results[d].push_back(apply(cases[k].op, device, inputs[k][d]));
      }
    };
    far ? launch_far(mesh, body, traffic) : launch(mesh, body);
    for (std::size_t d = 0; d < results.size(); ++d) {
      for (std::size_t k = 0; k < cases.size(); ++k) {
        const std::string wrong = oracle::difference(results[d][k], cases[k].expected[d], type);
        if (!wrong.empty()) {
          FAIL_CHECK(cases[k].name, " ", name_of(type), far ? " far" : "", " device ", d, ": ",
                     wrong);
        }
      }
    }
  }
  return traffic.fetched;
}

// The types by size; values must fit.
const struct {
  DType type;
  Index spread;
  bool negative;
} kTypes[] = {{DType::kF32, 5000, true},
              {DType::kBF16, 120, true},
              {DType::kI8, 120, true},
              {DType::kBool, 1, false},
              {DType::kF64, 100000, true}};

std::vector<Case> cases_of(const Where& where, Index spread, bool negative) {
  std::vector<Case> out;
  const Index n = where.n(), devices = where.devices();
  const std::string at = where.name();
  const auto input = [&](const oracle::Coordinates& shape) {
    return oracle::small_integers(devices, shape, spread, negative);
  };
  const World x = input({2, 3, 2});
  for (Index a = 0; a < 3; ++a) {
    const std::string axis = " axis " + std::to_string(a);
    out.push_back({at + " all_gather tiled" + axis, AllGather{where.axes, a, true, where.groups}, x,
                   oracle::all_gather(where, x, a, true)});
    out.push_back({at + " all_gather tiled, negative" + axis,
                   AllGather{where.axes, a - 3, true, where.groups}, x,
                   oracle::all_gather(where, x, a, true)});
    oracle::Coordinates wide = {2, 3, 2}, exact = {2, 3, 2};
    wide[static_cast<std::size_t>(a)] *= n;
    exact[static_cast<std::size_t>(a)] = n;
    const World many = input(wide), one = input(exact);
    out.push_back({at + " own_slice tiled" + axis, OwnSlice{where.axes, a, true, where.groups},
                   many, oracle::own_slice(where, many, a, true)});
    out.push_back({at + " own_slice" + axis, OwnSlice{where.axes, a - 3, false, where.groups}, one,
                   oracle::own_slice(where, one, a, false)});
    for (Index q = 0; q < 3; ++q) {
      const std::string both = " " + std::to_string(a) + " -> " + std::to_string(q);
      out.push_back({at + " all_to_all tiled" + both,
                     AllToAll{where.axes, a, q - 3, true, where.groups}, many,
                     oracle::all_to_all(where, many, a, q, true)});
      out.push_back({at + " all_to_all" + both, AllToAll{where.axes, a - 3, q, false, where.groups},
                     one, oracle::all_to_all(where, one, a, q, false)});
    }
  }
  for (Index a = 0; a < 4; ++a) {
    out.push_back({at + " all_gather axis " + std::to_string(a),
                   AllGather{where.axes, a, false, where.groups}, x,
                   oracle::all_gather(where, x, a, false)});
    out.push_back({at + " all_gather negative axis " + std::to_string(a),
                   AllGather{where.axes, a - 4, false, where.groups}, x,
                   oracle::all_gather(where, x, a, false)});
  }
  for (Index source = 0; source < n; ++source) {
    out.push_back({at + " pbroadcast", Pbroadcast{where.axes, source, where.groups}, x,
                   oracle::pbroadcast(where, x, source)});
  }
  if (where.groups.empty() && where.in_mesh_order()) {
    for (const Permutation& perm :
         {ring(n, 1), ring(n, -1), Permutation{{n - 1, 0}}, Permutation{}}) {
      out.push_back({at + " " + to_string(Ppermute{where.axes, perm}), Ppermute{where.axes, perm},
                     x, oracle::ppermute(where, x, perm)});
    }
  }
  out.push_back({at + " pvary", Pvary{where.axes, where.groups, false}, x, x});
  return out;
}

TEST_CASE("moves are exact on every mesh, over every choice of axes in every order") {
  std::size_t run = 0;
  Index fetched = 0;
  for (const Mesh& mesh : oracle::meshes()) {
    for (const auto& [type, spread, negative] : kTypes) {
      std::vector<Case> cases;
      for (const AxisNames& axes : oracle::axis_choices(mesh)) {
        // All types on one-axis meshes and on the last one; elsewhere f32.
        if (type != DType::kF32 && axes.names.size() != mesh.axes().size()) continue;
        const auto more = cases_of({mesh, axes}, spread, negative);
        cases.insert(cases.end(), more.begin(), more.end());
      }
      fetched += check_cases(mesh, cases, type);
      run += cases.size();
    }
  }
  CHECK(run > 3000);
  CHECK(fetched > static_cast<Index>(run));
  MESSAGE(run, " moves");
}

TEST_CASE("moves within axis_index_groups") {
  const Mesh line = Mesh::parse("X=4"), square = Mesh::parse("X=2,Y=4");
  const Where cases[] = {{line, "X", {{0, 1}, {2, 3}}},
                         {line, "X", {{0, 2}, {1, 3}}},
                         {line, "X", {{3, 0}, {2, 1}}},
                         {line, "X", {{0}, {1}, {2}, {3}}},
                         {square, "Y", {{2, 0}, {1, 3}}},
                         {square, axes("X", "Y"), {{0, 7}, {1, 6}, {2, 5}, {3, 4}}},
                         {square, axes("Y", "X"), {{0, 2, 4, 6}, {1, 3, 5, 7}}}};
  for (const Where& where : cases)
    check_cases(where.mesh, cases_of(where, 5000, true), DType::kF32);
}

// Every element type, also those that only travel.
TEST_CASE("any element type moves") {
  const Where where = {Mesh::parse("X=3"), "X"};
  for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) {
    check_cases(where.mesh, cases_of(where, 1, false), static_cast<DType>(t));
  }
}

TEST_CASE("arrays without elements and of rank 0 move") {
  const Where where = {Mesh::parse("X=2,Y=2"), axes("X", "Y")};
  const World empty = oracle::small_integers(4, {4, 0, 2}, 5);
  const World scalar = oracle::small_integers(4, {}, 50);
  const AxisNames& over = where.axes;
  check_cases(
      where.mesh,
      {{"gather", AllGather{over, 1, true}, empty, oracle::all_gather(where, empty, 1, true)},
       {"stack", AllGather{over, 0}, empty, oracle::all_gather(where, empty, 0, false)},
       {"swap", AllToAll{over, 0, 1, true}, empty, oracle::all_to_all(where, empty, 0, 1, true)},
       {"split", AllToAll{over, 1, 0, true}, empty, oracle::all_to_all(where, empty, 1, 0, true)},
       {"slice", OwnSlice{over, 0}, empty, oracle::own_slice(where, empty, 0, false)},
       {"permute", Ppermute{over, ring(4, 1)}, empty, empty},
       {"broadcast", Pbroadcast{over, 2}, empty, empty},
       {"stack scalars", AllGather{over, 0}, scalar, oracle::all_gather(where, scalar, 0, false)},
       {"permute scalars", Ppermute{over, ring(4, 3)}, scalar,
        oracle::ppermute(where, scalar, ring(4, 3))},
       {"broadcast scalars", Pbroadcast{over, 1}, scalar, oracle::pbroadcast(where, scalar, 1)}},
      DType::kF32);
}

// Runs that are long, short and of every width the copies distinguish; where they are fetched, of
// more bytes than one fetch takes, alone or a few rows at a time.
TEST_CASE("runs of every length are copied") {
  const Where where = {Mesh::parse("X=2"), "X"};
  for (const Index run : {1, 2, 3, 4, 8, 16, 32, 33, 70000}) {
    const World x = oracle::small_integers(2, {3, 2, run}, 120);
    for (const DType type : {DType::kI8, DType::kF32}) {
      check_cases(where.mesh,
                  {{"gather", AllGather{"X", 1, true}, x, oracle::all_gather(where, x, 1, true)},
                   {"swap", AllToAll{"X", 1, 0, true}, x, oracle::all_to_all(where, x, 1, 0, true)},
                   {"permute", Ppermute{"X", {{0, 1}}}, x, oracle::ppermute(where, x, {{0, 1}})}},
                  type);
    }
  }
  const World rows = oracle::small_integers(2, {40, 2, 3000}, 120);
  CHECK(check_cases(where.mesh,
                    {{"rows", AllToAll{"X", 1, 0, true}, rows,
                      oracle::all_to_all(where, rows, 1, 0, true)}},
                    DType::kI8) == 2 * 2 * 4);
  const World planes = oracle::small_integers(2, {3, 2, 40, 2, 500}, 120);
  CHECK(check_cases(where.mesh,
                    {{"planes", AllToAll{"X", 3, 1, true}, planes,
                      oracle::all_to_all(where, planes, 3, 1, true)}},
                    DType::kI8) == 2 * 2 * 3 * 2);
}

TEST_CASE("pshuffle takes from perm[i], ppermute indices wrap, pswapaxes swaps") {
  const Mesh mesh = Mesh::parse("X=4");
  const Where where = {mesh, "X"};
  const World x = oracle::small_integers(4, {4, 2}, 100);
  const auto arrays = oracle::arrays_of(x, DType::kI32);
  const auto input = [&](Device& d) { return arrays[static_cast<std::size_t>(d.index())]; };
  const auto shuffled = oracle::run(mesh, [&](Device& d) {
    return pshuffle(d, input(d), "X", {2, 0, 3, 1});
  });
  const auto wrapped = oracle::run(mesh, [&](Device& d) {
    return ppermute(d, input(d), "X", {{-1, 4}, {5, -3}});  // 3 -> 0, 1 -> 1
  });
  const auto swapped = oracle::run(mesh, [&](Device& d) { return pswapaxes(d, input(d), "X", 0); });
  const World expected[] = {oracle::ppermute(where, x, {{2, 0}, {0, 1}, {3, 2}, {1, 3}}),
                            oracle::ppermute(where, x, {{3, 0}, {1, 1}}),
                            oracle::all_to_all(where, x, 0, 0, false)};
  for (std::size_t d = 0; d < 4; ++d) {
    CHECK(oracle::difference(shuffled[d], expected[0][d], DType::kI32) == "");
    CHECK(oracle::difference(wrapped[d], expected[1][d], DType::kI32) == "");
    CHECK(oracle::difference(swapped[d], expected[2][d], DType::kI32) == "");
  }
}

TEST_CASE("a result shares no memory with the operand of another device") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto results = oracle::run(mesh, [](Device& d) {
    Array x(DType::kF32, std::vector<Index>{4});
    const Array other(DType::kF32, std::vector<Index>{1});
    x.mutable_elements<float>()[0] = static_cast<float>(d.index() + 1);
    const Array got = pbroadcast(d, x, "X", 0);
    psum(d, other, "X");  // both are done with the broadcast, which read x; nobody reads it now
    x.mutable_elements<float>()[0] = 9;
    psum(d, other, "X");
    return got;
  });
  for (const Array& r : results) CHECK(r.at(0) == 1);
}

TEST_CASE("a result that is made once for all devices is each one's own to change") {
  const Mesh mesh({{"X", 3}});
  const Index shape[] = {1 << 14};  // large enough to be made in parts
  launch(mesh, [&](Device& device) {
    Array x(DType::kF32, shape);
    for (float& v : x.mutable_elements<float>()) v = static_cast<float>(device.index() + 1);
    Array sum = psum(device, x, "X");
    Array all = all_gather(device, x, "X", {.tiled = true});
    const Array before = sum;
    for (float& v : sum.mutable_elements<float>()) v += static_cast<float>(device.index());
    all.mutable_elements<float>()[0] = static_cast<float>(device.index());
    psum(device, Array(DType::kF32, std::span<const Index>()), "X");  // all have written
    bool right = true;
    for (const float v : sum.elements<float>())
      right = right && v == 6.0f + static_cast<float>(device.index());
    for (const float v : before.elements<float>()) right = right && v == 6;
    for (Index i = 1; i < all.size(); ++i)
      right = right && all.at(i) == static_cast<double>(i / shape[0] + 1);
    if (!right || all.at(0) != static_cast<double>(device.index())) {
      throw Error("another device's change is seen");
    }
  });
}

}  // namespace
}  // namespace kref
