// SPDX-License-Identifier: Apache-2.0
// <A x, y> = <x, A^T y>, exactly, for every linear collective on every mesh.
//
// Integers, summed over all devices. How often a value counts is what the typings differ in:
// - unchecked, all values may differ from device to device, and each device's counts: psum is its
//   own transpose;
// - checked, an invariant value (the result of psum, pmean and all_gather to invarying, the operand
//   of pvary and own_slice) is one value that a whole group shares and counts once a group: psum
//   and pvary are each other's transpose, and nothing moves in pvary. A reduced value is one whose
//   cotangents are partial sums, one a device: it counts as a varying one.
#include <doctest/doctest.h>

#include <cmath>

#include "sharding/collective_calls.h"
#include "tests/collective_oracle.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using oracle::Where;
using oracle::World;

struct Identity {
  Where where;
  LinearCollective op, transposed;
  bool operand_shared, result_shared;  // one value of a group
  std::vector<Array> x, y;
};

// Is the operand, is the result an invariant value?
bool takes_shared(const LinearCollective& op) {
  return std::holds_alternative<Pvary>(op) || std::holds_alternative<OwnSlice>(op);
}
bool gives_shared(const LinearCollective& op) {
  if (const auto* gather = std::get_if<AllGather>(&op)) return gather->to == GatherTo::kInvarying;
  return std::holds_alternative<Psum>(op) || std::holds_alternative<Pmean>(op);
}

// A collective and the shape of its operand.
struct Shaped {
  LinearCollective op;
  oracle::Coordinates shape;
};

std::vector<Shaped> collectives(const Where& where) {
  const AxisNames& axes = where.axes;
  const AxisIndexGroups& groups = where.groups;
  const Index n = where.n();
  std::vector<Shaped> out;
  for (const GatherTo to : {GatherTo::kVarying, GatherTo::kInvarying, GatherTo::kReduced}) {
    for (Index a = 0; a < 2; ++a) out.push_back({AllGather{axes, a, true, groups, to}, {2, 3}});
    for (Index a = 0; a < 3; ++a) out.push_back({AllGather{axes, a, false, groups, to}, {2, 3}});
  }
  for (Index d = 0; d < 2; ++d) {
    oracle::Coordinates wide = {2, 3}, exact = {2, 3};
    wide[static_cast<std::size_t>(d)] *= n;
    exact[static_cast<std::size_t>(d)] = n;
    out.push_back({OwnSlice{axes, d, true, groups}, wide});
    out.push_back({OwnSlice{axes, d, false, groups}, exact});
    out.push_back({PsumScatter{axes, d, true, groups}, wide});
    out.push_back({PsumScatter{axes, d, false, groups}, exact});
    for (Index q = 0; q < 2; ++q) {
      out.push_back({AllToAll{axes, d, q, true, groups}, wide});
      out.push_back({AllToAll{axes, d, q, false, groups}, exact});
    }
  }
  for (const bool mean : {false, true}) out.push_back({Pvary{axes, groups, mean}, {2, 3}});
  out.push_back({Psum{axes, groups}, {2, 3}});
  out.push_back({Psum{axes, groups}, {140, 141}});  // shared out
  out.push_back({Pmean{axes, groups}, {2, 3}});
  out.push_back({Pbroadcast{axes, n - 1, groups}, {2, 3}});
  out.push_back({PsumTo{axes, 0, groups}, {2, 3}});
  if (groups.empty() && where.in_mesh_order()) {
    out.push_back({Ppermute{axes, ring(n, 1)}, {2, 3}});
    out.push_back({Ppermute{axes, {{n - 1, 0}}}, {2, 3}});
    std::vector<Index> backwards;
    for (Index i = n; i-- > 0;) backwards.push_back(i);
    out.push_back({pshuffle_op(axes, backwards), {2, 3}});
  }
  return out;
}
constexpr std::size_t kCollectives = 15 + 16 + 7, kPermutes = 3, kOwnSlices = 4;

// Every device's array; those of a group are one and the same where they share a value. In f32,
// multiples of `n`: means are exact.
std::vector<Array> values(const Where& where, const oracle::Coordinates& shape, bool shared) {
  World out = oracle::small_integers(where.devices(), shape, 9);
  for (oracle::Local& local : out) {
    for (double& v : local.values) v *= static_cast<double>(where.n());
  }
  for (Index d = 0; shared && d < where.devices(); ++d) {
    out[static_cast<std::size_t>(d)] = out[static_cast<std::size_t>(where.group(d)[0])];
  }
  return oracle::arrays_of(out, DType::kF32);
}

double dot(const Where& where, const std::vector<Array>& a, const std::vector<Array>& b,
           bool shared) {
  double sum = 0;
  for (Index d = 0; d < where.devices(); ++d) {
    if (shared && where.rank(d) != 0) continue;
    const auto p = a[static_cast<std::size_t>(d)].elements<float>(),
               q = b[static_cast<std::size_t>(d)].elements<float>();
    if (p.size() != q.size()) return std::nan("");
    for (std::size_t i = 0; i < p.size(); ++i) {
      sum += static_cast<double>(p[i]) * static_cast<double>(q[i]);
    }
  }
  return sum;
}

std::vector<Identity> identities(const Where& where, Typing typing) {
  std::vector<Identity> out;
  const bool checked = typing == Typing::kChecked;
  for (const Shaped& c : collectives(where)) {
    if (!checked && std::holds_alternative<OwnSlice>(c.op)) continue;
    Identity i{where,
               c.op,
               transpose(c.op, typing),
               checked && takes_shared(c.op),
               checked && gives_shared(c.op),
               {},
               {}};
    const auto result =
        std::visit([&](const auto& o) { return o.result_shape(c.shape, where.n()); }, c.op);
    i.x = values(where, c.shape, i.operand_shared);
    i.y = values(where, result, i.result_shared);
    out.push_back(std::move(i));
  }
  return out;
}

// How many do not hold; all run in one launch.
std::size_t check(const Mesh& mesh, const std::vector<Identity>& all) {
  const auto devices = static_cast<std::size_t>(mesh.device_count());
  std::vector<std::vector<Array>> ax(all.size(), std::vector<Array>(devices)), aty = ax;
  launch(mesh, [&](Device& device) {
    const auto d = static_cast<std::size_t>(device.index());
    for (std::size_t k = 0; k < all.size(); ++k) {
      ax[k][d] = apply(all[k].op, device, all[k].x[d]);
      aty[k][d] = apply(all[k].transposed, device, all[k].y[d]);
    }
  });
  std::size_t wrong = 0, nonzero = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Identity& i = all[k];
    const double left = dot(i.where, ax[k], i.y, i.result_shared),
                 right = dot(i.where, i.x, aty[k], i.operand_shared);
    nonzero += left != 0;
    if (left == right) continue;
    ++wrong;
    FAIL_CHECK(i.where.name(), " ", to_string(i.op), ", transpose ", to_string(i.transposed), ": ",
               left, " and ", right);
  }
  CHECK(nonzero * 10 >= all.size() * 9);
  return wrong;
}

TEST_CASE("adjoint identities hold on every mesh in both typings") {
  std::size_t count = 0, choices = 0, in_order = 0;
  for (const Mesh& mesh : oracle::meshes()) {
    for (const Typing typing : {Typing::kChecked, Typing::kUnchecked}) {
      std::vector<Identity> all;
      for (const AxisNames& axes : oracle::axis_choices(mesh)) {
        const auto more = identities({mesh, axes}, typing);
        all.insert(all.end(), more.begin(), more.end());
        choices += typing == Typing::kChecked;
        in_order += typing == Typing::kChecked && Where{mesh, axes}.in_mesh_order();
      }
      CHECK(check(mesh, all) == 0);
      count += all.size();
    }
  }
  MESSAGE(count, " adjoint identities");
  // Ordered choices of axes: 2 on each of five lines, 5 on three squares, 16 on the cube.
  CHECK(choices == 5 * 2 + 3 * 5 + 16);
  CHECK(in_order == 5 * 2 + 3 * 4 + 8);
  CHECK(count == choices * (2 * kCollectives - kOwnSlices) + in_order * 2 * kPermutes);
}

TEST_CASE("adjoint identities hold within axis_index_groups") {
  const Mesh line = Mesh::parse("X=6"), square = Mesh::parse("X=2,Y=4");
  const Where cases[] = {{line, "X", {{0, 3, 5}, {4, 2, 1}}},
                         {square, "Y", {{0, 2}, {3, 1}}},
                         {square, axes("Y", "X"), {{0, 1, 2, 3}, {7, 6, 5, 4}}}};
  std::size_t count = 0;
  for (const Where& where : cases) {
    for (const Typing typing : {Typing::kChecked, Typing::kUnchecked}) {
      const auto all = identities(where, typing);
      CHECK(check(where.mesh, all) == 0);
      count += all.size();
    }
  }
  MESSAGE(count, " adjoint identities within groups");
  CHECK(count == 3 * (2 * kCollectives - kOwnSlices));
}

// The table of sharding_semantics 2.2.
TEST_CASE("transposes are the collectives that JAX has, and their transpose leads back") {
  const AxisNames x = "X";
  const AxisIndexGroups groups = {{0, 1}, {2, 3}};
  const struct {
    LinearCollective op, checked, unchecked;
  } table[] = {
      {Psum{x, groups}, Pvary{x, groups}, Psum{x, groups}},
      {Pvary{x}, Psum{x}, Pvary{x}},
      {Pmean{x}, Pvary{x, {}, true}, Pmean{x}},
      {AllGather{x, 1, true, groups}, PsumScatter{x, 1, true, groups},
       PsumScatter{x, 1, true, groups}},
      {AllGather{x, 2, false}, PsumScatter{x, 2, false}, PsumScatter{x, 2, false}},
      {PsumScatter{x, -1, true}, AllGather{x, -1, true}, AllGather{x, -1, true}},
      {AllToAll{x, 0, 2, true, groups}, AllToAll{x, 2, 0, true, groups},
       AllToAll{x, 2, 0, true, groups}},
      {AllToAll{x, -1, 0}, AllToAll{x, 0, -1}, AllToAll{x, 0, -1}},
      {Ppermute{x, {{0, 1}, {1, 3}}}, Ppermute{x, {{1, 0}, {3, 1}}}, Ppermute{x, {{1, 0}, {3, 1}}}},
      {pshuffle_op(x, {1, 2, 0}), Ppermute{x, {{0, 1}, {1, 2}, {2, 0}}, true},
       Ppermute{x, {{0, 1}, {1, 2}, {2, 0}}, true}},
      {Pbroadcast{x, 2, groups}, PsumTo{x, 2, groups}, PsumTo{x, 2, groups}},
      {PsumTo{x, 1}, Pbroadcast{x, 1}, Pbroadcast{x, 1}},
  };
  for (const auto& row : table) {
    CAPTURE(to_string(row.op));
    CHECK(transpose(row.op) == row.checked);
    CHECK(transpose(row.op, Typing::kUnchecked) == row.unchecked);
    CHECK(transpose(transpose(row.op)) == row.op);
    CHECK(transpose(transpose(row.op, Typing::kUnchecked), Typing::kUnchecked) == row.op);
  }
  const LinearCollective shared = AllGather{x, 0, true, {}, GatherTo::kInvarying};
  CHECK(transpose(shared) == LinearCollective(OwnSlice{x, 0, true}));
  CHECK(transpose(transpose(shared)) == shared);
  // How a sum adds is no part of what its transpose is, so it does not come back from there.
  const SumOptions wire = {.wire = DType::kBF16, .order = SumOrder::kRing};
  CHECK(transpose(transpose(Psum{x, {}, wire})) == LinearCollective(Psum{x, {}, {}}));
  CHECK(transpose(transpose(Pmean{x, {}, wire})) == LinearCollective(Pmean{x, {}, {}}));
  CHECK(transpose(transpose(PsumScatter{x, 0, true, {}, wire})) ==
        LinearCollective(PsumScatter{x, 0, true}));
  CHECK(transpose(transpose(PsumTo{x, 1, {}, wire})) == LinearCollective(PsumTo{x, 1}));
  CHECK(transpose(Psum{x, {}, wire}, Typing::kUnchecked) == LinearCollective(Psum{x, {}, wire}));
  CHECK(transpose(shared, Typing::kUnchecked) == LinearCollective(PsumScatter{x, 0, true}));
  CHECK(transpose(AllGather{x, 0, true, {}, GatherTo::kReduced}) ==
        LinearCollective(PsumScatter{x, 0, true}));
  CHECK(refusal([&] {
          transpose(OwnSlice{x, 0, true}, Typing::kUnchecked);
        }).find("own_slice: ") == 0);
}

}  // namespace
}  // namespace kref
