// SPDX-License-Identifier: Apache-2.0
// ragged_all_to_all: the example of its specification, random slices against plain loops, its
// transpose, its errors.
#include "sharding/ragged.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/collective_oracle.h"
#include "tests/far_transport.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using oracle::Where;

Array vector_of(std::vector<Index> values, DType type = DType::kI32) {
  oracle::Local local(oracle::Coordinates{static_cast<Index>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) local.values[i] = static_cast<double>(values[i]);
  return oracle::array_of(local, type);
}

std::vector<Index> integers(const Array& x) {
  std::vector<Index> out;
  for (Index i = 0; i < x.size(); ++i) out.push_back(static_cast<Index>(x.at(i)));
  return out;
}
using Rows = std::vector<Index>;

// One member's arguments.
struct Part {
  Rows operand, output, input_offsets, send_sizes, output_offsets, recv_sizes;

  RaggedSlices slices(DType type = DType::kI32) const {
    return {vector_of(input_offsets, type), vector_of(send_sizes, type),
            vector_of(output_offsets, type), vector_of(recv_sizes, type)};
  }
};

// The operation on a line of devices, or over groups of one; with traffic: on devices that are far
// from each other.
std::vector<Rows> exchanged(const Mesh& mesh, const std::vector<Part>& parts, const AxisNames& axes,
                            const AxisIndexGroups& groups = {}, FarTraffic* traffic = nullptr) {
  std::vector<Rows> out(static_cast<std::size_t>(mesh.device_count()));
  const auto body = [&](Device& d) {
    const auto at = static_cast<std::size_t>(d.index());
    const Part& p = parts[at];
    out[at] = integers(
        ragged_all_to_all(d, vector_of(p.operand), vector_of(p.output), p.slices(), axes, groups));
  };
  traffic != nullptr ? launch_far(mesh, body, *traffic) : launch(mesh, body);
  return out;
}

const std::vector<Part> kExample = {
    {{1, 2, 2}, {0, 0, 0, 0}, {0, 1}, {1, 2}, {0, 0}, {1, 1}},
    {{3, 4, 0}, {0, 0, 0, 0}, {0, 1}, {1, 1}, {1, 2}, {2, 1}},
};

TEST_CASE("behaviour 30: the example, and groups of one member") {
  const auto both = exchanged(Mesh::parse("X=2"), kExample, "X");
  CHECK(both[0] == Rows{1, 3, 0, 0});
  CHECK(both[1] == Rows{2, 2, 4, 0});
  // Each member alone: its one slice moves within it.
  const std::vector<Part> alone = {{{1, 2, 3}, {0, 0, 0, 0}, {0}, {1}, {2}, {1}},
                                   {{2, 3, 4}, {0, 0, 0, 0}, {0}, {3}, {1}, {3}}};
  const auto own = exchanged(Mesh::parse("X=2"), alone, "X", {{0}, {1}});
  CHECK(own[0] == Rows{0, 0, 1, 0});
  CHECK(own[1] == Rows{0, 2, 3, 4});
}

// Slices of random sizes over every device of a group, without overlap on either side.
std::vector<Part> random_parts(const Where& where, Index rows, Index each, unsigned seed) {
  std::minstd_rand random(seed);
  const auto draw = [&](Index below) {
    return static_cast<Index>(random() % static_cast<unsigned>(below));
  };
  std::vector<Part> parts(static_cast<std::size_t>(where.devices()));
  const Index n = where.n();
  for (Part& p : parts) {
    for (Index r = 0; r < rows; ++r)
      p.operand.push_back(draw(1000)), p.output.push_back(-1 - draw(1000));
    Index at = 0;
    for (Index i = 0; i < n * each; ++i) {
      at += draw(2);
      p.input_offsets.push_back(at);
      p.send_sizes.push_back(draw(4));
      at += p.send_sizes.back();
    }
    p.output_offsets.assign(static_cast<std::size_t>(n * each), 0);
    p.recv_sizes = p.output_offsets;
  }
  // Receivers lay what they get out from the last sender to the first.
  for (Index d = 0; d < where.devices(); ++d) {
    const auto all = where.group(d);
    Index at = draw(3);
    for (Index j = n; j-- > 0;) {
      Part& sender = parts[static_cast<std::size_t>(all[static_cast<std::size_t>(j)])];
      for (Index s = 0; s < each; ++s) {
        const auto i = static_cast<std::size_t>(where.rank(d) * each + s);
        sender.output_offsets[i] = at;
        const Index size = sender.send_sizes[i];
        parts[static_cast<std::size_t>(d)].recv_sizes[static_cast<std::size_t>(j * each + s)] =
            size;
        at += size;
        if (size > 0) at += draw(2);
      }
    }
  }
  return parts;
}

std::vector<Rows> expected(const Where& where, const std::vector<Part>& parts, Index each) {
  std::vector<Rows> out;
  for (const Part& p : parts) out.push_back(p.output);
  for (Index d = 0; d < where.devices(); ++d) {
    const Part& p = parts[static_cast<std::size_t>(d)];
    const auto all = where.group(d);
    for (std::size_t i = 0; i < p.send_sizes.size(); ++i) {
      const Index to = all[i / static_cast<std::size_t>(each)];
      for (Index r = 0; r < p.send_sizes[i]; ++r) {
        out[static_cast<std::size_t>(to)][static_cast<std::size_t>(p.output_offsets[i] + r)] =
            p.operand[static_cast<std::size_t>(p.input_offsets[i] + r)];
      }
    }
  }
  return out;
}

TEST_CASE("random slices arrive, and the adjoint identity holds") {
  std::size_t identities = 0;
  FarTraffic traffic;
  for (const Mesh& mesh : oracle::meshes()) {
    for (const AxisNames& axes : oracle::axis_choices(mesh)) {
      const Where where = {mesh, axes};
      for (const Index each : {1, 2}) {
        const Index rows = 80;
        const auto parts = random_parts(where, rows, each, 7u + static_cast<unsigned>(identities));
        const auto wanted = expected(where, parts, each);
        CHECK(exchanged(mesh, parts, axes) == wanted);
        CHECK(exchanged(mesh, parts, axes, {}, &traffic) == wanted);
        // <A (x, w), y> = <x, x_ct> + <w, w_ct> with y as another set of rows.
        const auto ys = random_parts(where, rows, each, 99);
        std::vector<RaggedCotangents> cts(parts.size());
        launch(mesh, [&](Device& d) {
          const auto at = static_cast<std::size_t>(d.index());
          cts[at] = RaggedAllToAll{axes}.transposed(d, vector_of(ys[at].operand), rows,
                                                    parts[at].slices(DType::kI64));
        });
        Index left = 0, right = 0;
        for (std::size_t d = 0; d < parts.size(); ++d) {
          const Rows x_ct = integers(cts[d].operand), w_ct = integers(cts[d].output);
          for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
            left += wanted[d][r] * ys[d].operand[r];
            right += parts[d].operand[r] * x_ct[r] + parts[d].output[r] * w_ct[r];
          }
        }
        CHECK(left == right);
        ++identities;
      }
    }
  }
  CHECK(identities == 82);
  // Every row that arrived was asked for in place first; the members' vectors were not.
  CHECK(traffic.refused > 1000);
  CHECK(traffic.fetched > traffic.refused);
  MESSAGE(identities, " adjoint identities of ragged_all_to_all");
}

// A mask by a cumulative sum of starts and ends goes wrong here.
TEST_CASE("an empty slice at the offset of another one leaves the cotangent of the output right") {
  const std::vector<Part> parts = {{{1, 2}, {5, 5, 5}, {0, 0}, {0, 0}, {0, 0}, {0, 2}},
                                   {{3, 4}, {5, 5, 5}, {0, 0}, {2, 0}, {0, 0}, {0, 0}}};
  CHECK(exchanged(Mesh::parse("X=2"), parts, "X") == std::vector<Rows>{{3, 4, 5}, {5, 5, 5}});
  std::vector<RaggedCotangents> cts(2);
  launch(Mesh::parse("X=2"), [&](Device& d) {
    const auto at = static_cast<std::size_t>(d.index());
    cts[at] = RaggedAllToAll{"X"}.transposed(d, vector_of({7, 8, 9}), 2, parts[at].slices());
  });
  CHECK(integers(cts[0].output) == Rows{0, 0, 9});
  CHECK(integers(cts[1].output) == Rows{7, 8, 9});
  CHECK(integers(cts[0].operand) == Rows{0, 0});
  CHECK(integers(cts[1].operand) == Rows{7, 8});
}

TEST_CASE("rows of several dimensions, and started") {
  const auto results = oracle::run(Mesh::parse("X=2"), [](Device& d) {
    const Part& p = kExample[static_cast<std::size_t>(d.index())];
    oracle::Local operand(oracle::Coordinates{3, 2}), output(oracle::Coordinates{4, 2});
    for (std::size_t r = 0; r < 6; ++r)
      operand.values[r] = static_cast<double>(p.operand[r / 2]) * (r % 2 == 0 ? 1 : -1);
    Pending started =
        ragged_all_to_all_start(d, oracle::array_of(operand, DType::kBF16),
                                oracle::array_of(output, DType::kBF16), p.slices(), "X");
    return started.done();
  });
  CHECK(integers(results[0]) == Rows{1, -1, 3, -3, 0, 0, 0, 0});
  CHECK(integers(results[1]) == Rows{2, -2, 2, -2, 4, -4, 0, 0});
}

// What device 0 is told when its arguments are these.
std::string refused(const std::function<void(std::vector<Part>&)>& spoil,
                    const std::function<void(RaggedSlices&)>& retype = {}) {
  std::vector<Part> parts = kExample;
  spoil(parts);
  return refusal([&] {
    launch(Mesh::parse("X=2"), [&](Device& d) {
      const Part& p = parts[static_cast<std::size_t>(d.index())];
      RaggedSlices slices = p.slices();
      if (retype) retype(slices);
      ragged_all_to_all(d, vector_of(p.operand), vector_of(p.output), slices, "X");
    });
  });
}

TEST_CASE("what does not fit is refused by name") {
  const auto nothing = [](std::vector<Part>&) {};
  const struct {
    std::string message;
    const char* part;
  } cases[] = {
      {refused(nothing,
               [](RaggedSlices& s) {
                 s.send_sizes = vector_of({1, 2}, DType::kF32);
               }),
       "send_sizes is F32[2], expected an integer type"},
      {refused(nothing,
               [](RaggedSlices& s) {
                 s.recv_sizes = Array(DType::kI32, std::vector<Index>{2, 1});
               }),
       "recv_sizes is I32[2,1], expected rank 1"},
      {refused(nothing, [](RaggedSlices& s) { s.input_offsets = vector_of({}); }),
       "input_offsets is empty, expected a positive length"},
      {refused(nothing,
               [](RaggedSlices& s) {
                 s.output_offsets = vector_of({0, 0}, DType::kI64);
               }),
       "output_offsets is I64[2], expected the type and length of input_offsets"},
      {refused(nothing,
               [](RaggedSlices& s) {
                 s = {vector_of({0, 0, 0}), vector_of({0, 0, 0}), vector_of({0, 0, 0}),
                      vector_of({0, 0, 0})};
               }),
       "3 slices, which the size of the group, 2, does not divide"},
      {refused([](std::vector<Part>& p) { p[0].send_sizes[1] = 3; }),
       "slice 1: 3 rows from 1 on are not rows of operand, which has 3"},
      {refused([](std::vector<Part>& p) { p[0].send_sizes[0] = -1; }),
       "slice 0: -1 rows from 0 on"},
      {refused([](std::vector<Part>& p) { p[1].output_offsets[0] = 4; }),
       "1 rows from 4 on are not rows of output, which has 4"},
      {refused([](std::vector<Part>& p) {
         // Two slices for each member; the second one for member 0 is wrong.
         p = {{{1, 2, 3, 4}, {0, 0, 0, 0}, {0, 1, 2, 3}, {1, 1, 1, 1}, {0, 1, 0, 1}, {1, 1, 1, 1}},
              {{5, 6, 7, 8}, {0, 0, 0, 0}, {0, 1, 2, 3}, {1, 1, 1, 1}, {2, 9, 2, 3}, {1, 1, 1, 1}}};
       }),
       "member 1, slice 1: 1 rows from 9 on are not rows of output, which has 4"},
      {refused([](std::vector<Part>& p) { p[0].recv_sizes[1] = 2; }),
       "recv_sizes[1] is 2, but member 1 sends 1 rows, its send_sizes[0]"},
      {refused([](std::vector<Part>& p) { p[1].output_offsets[0] = 0; }),
       "row 0 of output is sent by member"},
      {refused([](std::vector<Part>& p) { p[0].output.clear(), p[1].output.clear(); }),
       "are not rows of output, which has 0"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.message);
    CHECK(c.message.find(c.part) != std::string::npos);
    CHECK(c.message.find("ragged_test.cc:") != std::string::npos);
    CHECK(c.message.find("ragged_all_to_all") != std::string::npos);
  }
}

}  // namespace
}  // namespace kref
