// SPDX-License-Identifier: Apache-2.0
// Sums over devices of products that no device makes: the bits, the log and the messages of a
// product and the collective behind it.
#include "sharding/product_sum.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/matmul.h"
#include "sharding/layer.h"
#include "sharding/run_log.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// Numbers whose sums round, of every size within 2^12.
Array rough(const std::vector<Index>& shape, unsigned seed, DType type = DType::kF32) {
  Array out = Array::unwritten(type, shape);
  unsigned state = seed * 2654435761u + 1;
  with_dtype(type, [&]<class T>() {
    for (T& v : out.mutable_elements<T>()) {
      state = state * 1664525u + 1013904223u;
      const auto fraction = static_cast<float>(static_cast<int>(state >> 8 & 0xffff) - 0x8000);
      v = static_cast<T>(std::ldexp(fraction, static_cast<int>(state >> 28) - 26));
    }
  });
  return out;
}

bool same_bits(const Array& a, const Array& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

struct Sizes {
  Index m, n, k;
};

// The product of one device.
detail::Factors factors(const Sizes& s, Index device, bool trans_x, bool trans_y, DType type) {
  const auto seed = static_cast<unsigned>(2 * device + 1);
  return {rough(trans_x ? std::vector{s.k, s.m} : std::vector{s.m, s.k}, seed, type),
          rough(trans_y ? std::vector{s.n, s.k} : std::vector{s.k, s.n}, seed + 1, type), trans_x,
          trans_y};
}

// Element (i, j) of the sum over devices, as the collectives define it: chains of fma from zero
// along k, added up in ascending rank.
float defined(const std::vector<detail::Factors>& all, Index i, Index j, Index k) {
  float sum = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const detail::Factors& f = all[rank];
    float chain = 0;
    for (Index l = 0; l < k; ++l) {
      const Index x = f.trans_x ? l * f.x.extent(1) + i : i * k + l,
                  y = f.trans_y ? j * k + l : l * f.y.extent(1) + j;
      chain = std::fma(static_cast<float>(f.x.at(x)), static_cast<float>(f.y.at(y)), chain);
    }
    sum = rank == 0 ? chain : sum + chain;
  }
  return sum;
}

// Shape and type of a product that is not made.
Array unmade(const Sizes& s) {
  const std::vector<Index> shape{s.m, s.n};
  return Array(DType::kF32, shape, nullptr, nullptr);
}

void check_sum(const char* mesh, const LinearCollective& op, const Sizes& s, bool trans_x,
               bool trans_y, DType type) {
  const std::string what = detail::cat(to_string(op), " on ", mesh, ", ", name_of(type));
  CAPTURE(what);
  const Mesh devices = Mesh::parse(mesh);
  std::vector<std::vector<detail::Factors>> groups(
      static_cast<std::size_t>(devices.device_count()));
  std::vector<Array> found(groups.size()), apart(groups.size());
  launch(devices, [&](Device& device) {
    const auto at = static_cast<std::size_t>(device.index());
    const ReplicaGroup group = replica_group(device.mesh(), axis_name(op), {}, device.index());
    for (const Index member : group.members) {
      groups[at].push_back(factors(s, member, trans_x, trans_y, type));
    }
    const detail::Factors own = factors(s, device.index(), trans_x, trans_y, type);
    found[at] = detail::start_product_sum(op, device, unmade(s), own, CallSite::here()).done();
    apart[at] = apply(op, device,
                      matmul(own.x, own.y, {.trans_x = trans_x, .trans_y = trans_y}, DType::kF32));
  });
  for (std::size_t at = 0; at < found.size(); ++at) {
    CHECK(shape_of(found[at]) == shape_of(apart[at]));
    CHECK(same_bits(found[at], apart[at]));
    const Index rows = found[at].extent(0), columns = found[at].extent(1);
    const Index rank = replica_group(devices, axis_name(op), {}, static_cast<Index>(at)).rank;
    const Index i0 = rows < s.m ? rank * rows : 0, j0 = columns < s.n ? rank * columns : 0;
    Array right = Array::unwritten(DType::kF32, found[at].shape());
    float* element = right.mutable_elements<float>().data();
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) *element++ = defined(groups[at], i0 + i, j0 + j, s.k);
    }
    CHECK(same_bits(found[at], right));
  }
}

TEST_CASE("the bits of the products and their sum: meshes, sizes, storage, types") {
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
  Index tries = 0;
  for (const char* mesh : {"X=7", "X=2,Y=3", "Y=3,X=2"}) {
    for (const Sizes& s : {Sizes{42, 84, 5}, Sizes{210, 42, 3}, Sizes{42, 2520, 2}}) {
      const AxisNames x = "X", both = axes("Y", "X");
      for (const AxisNames& axis : {x, both}) {
        if (axis.names.size() > 1 && std::string(mesh) == "X=7") continue;
        const LinearCollective all[] = {
            Psum{.axis_name = axis},
            PsumScatter{.axis_name = axis, .scatter_dimension = 0, .tiled = true},
            PsumScatter{.axis_name = axis, .scatter_dimension = -1, .tiled = true}};
        for (const LinearCollective& op : all) {
          check_sum(mesh, op, s, tries % 2 == 0, tries % 4 > 1, types[(tries / 3 + tries) % 3]);
          ++tries;
        }
      }
    }
  }
  // Fewer rows than members; no k.
  check_sum("X=7", Psum{.axis_name = "X"}, {3, 5, 4}, true, false, DType::kF32);
  check_sum("X=4", Psum{.axis_name = "X"}, {5, 8, 0}, true, false, DType::kF32);
}

// A layer whose products are summed without being made, or in bodies of one's own, which make them.
struct Case {
  Mesh mesh;
  LayerOptions options;
  Index b, d, f;
  DType type = DType::kF32;

  std::vector<std::string> names() const {
    std::vector<std::string> out{"x", "w_in", "w_out"};
    if (options.plan.gate) out.emplace_back("w_gate");
    return out;
  }
  std::vector<Array> operands() const {
    std::vector<Array> out{rough({b, d}, 1, type), rough({d, f}, 2, type), rough({f, d}, 3, type)};
    if (options.plan.gate) out.push_back(rough({d, f}, 4, type));
    return out;
  }
  Array ct() const { return rough({b, d}, 5, type); }

  std::vector<Array> together(std::vector<LayerMeter>* meters) const {
    const std::vector<Array> in = operands();
    LayerOperands given{in[0], in[1], in[2]};
    if (options.plan.gate) given.w_gate = in[3];
    const LayerCotangents out = mlp_vjp(mesh, given, ct(), options, meters);
    std::vector<Array> all{out.x, out.w_in, out.w_out};
    if (options.plan.gate) all.push_back(out.w_gate);
    return all;
  }

  std::vector<Array> apart(std::vector<LayerMeter>* meters) const {
    const LayerSpecs specs = layer_specs(options.plan);
    std::vector<Placement> in, out;
    for (const std::string& name : names()) out.emplace_back(spec_of(specs, name));
    in = out;
    in.emplace_back(specs.x);
    meters->assign(static_cast<std::size_t>(mesh.device_count()), {});
    const auto body = [&](Device& device, std::span<const Array> blocks) {
      LayerArrays arrays = {{"ct.y", blocks.back()}};
      const std::vector<std::string> all = names();
      for (std::size_t i = 0; i < all.size(); ++i) arrays[all[i]] = blocks[i];
      layer_forward(device, options, arrays);
      arrays.erase("y");
      layer_backward(device, options, arrays, &(*meters)[static_cast<std::size_t>(device.index())]);
      std::vector<Array> made;
      for (const std::string& name : all) made.push_back(arrays.at("ct." + name));
      return made;
    };
    std::vector<ShardArgument> arguments;
    for (const Array& operand : operands()) arguments.emplace_back(operand);
    arguments.emplace_back(ct());
    return shard_map(mesh,
                     {.in_specs = Specs(in), .out_specs = Specs(out), .launch = options.launch},
                     body)
        .call(arguments);
  }
};

// Is the sum of the cotangents of w_in made so, and no sum of small products or of many k?
bool sums(const Case& c) {
  const LayerSpecs specs = layer_specs(c.options.plan);
  const Index k = c.b / block_count(specs.x[0], c.mesh),
              n = c.f / block_count(specs.w_in[1], c.mesh);
  std::atomic<bool> out = true;
  launch(c.mesh, [&](Device& device) {
    const auto made = [&](Index rows, Index columns, Index depth) {
      return detail::sums_products(Psum{.axis_name = "X"}, device, rows, columns, depth);
    };
    if (!made(c.d, n, k) || made(c.d, n, c.d + n) || made(8, 16, 1)) out = false;
  });
  return out;
}

// What a device computed and exchanged, in order.
std::vector<std::string> told(const DeviceLog& log) {
  std::vector<std::string> out;
  for (const LogEvent& event : log.events()) {
    std::string line = event.what;
    if (event.started) line += detail::cat(" sends ", event.started->sent_bytes);
    if (event.work && std::holds_alternative<ProductWork>(*event.work)) {
      const auto& work = std::get<ProductWork>(*event.work);
      line += detail::cat(' ', work.m, ' ', work.n, ' ', work.k, ' ', name_of(work.z));
    }
    out.push_back(line + detail::cat(" of ", event.awaited));
  }
  return out;
}

void check_case(Case c) {
  CAPTURE(to_string(c.mesh));
  CAPTURE(c.d);
  REQUIRE(sums(c));
  RunLog with, without;
  std::vector<LayerMeter> meters_with, meters_without;
  c.options.launch.log = &with;
  const std::vector<Array> found = c.together(&meters_with);
  c.options.launch.log = &without;
  const std::vector<Array> right = c.apart(&meters_without);
  REQUIRE(found.size() == right.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(same_bits(found[i], right[i]));
  for (std::size_t k = 0; k < meters_with.size(); ++k) {
    CHECK(meters_with[k].peak_bytes == meters_without[k].peak_bytes);
    CHECK(meters_with[k].collectives == meters_without[k].collectives);
    CHECK(told(with.devices[k]) == told(without.devices[k]));
  }
}

TEST_CASE("layers: bits, log, memory and collectives of bodies that make every product") {
  using S = LayerStrategy;
  const auto layer = [](S strategy, bool gate, bool overlap) {
    LayerOptions out;
    out.plan = {.strategy = strategy, .gate = gate};
    out.activation = Activation::kSilu;
    out.overlap = overlap;
    return out;
  };
  for (const bool gate : {false, true}) {
    for (const S strategy : {S::kDp, S::kFsdp}) {
      check_case({Mesh::parse("X=7"), layer(strategy, gate, gate), 21, 70, 91});
      check_case({Mesh::parse("X=3,Y=2"), layer(strategy, gate, !gate), 9, 90, 190, DType::kBF16});
    }
    check_case({Mesh::parse("X=3,Y=2"), layer(S::kFsdpTp, gate, gate), 9, 150, 222});
    check_case({Mesh::parse("Y=2,X=4"), layer(S::kFsdpTp, gate, !gate), 8, 96, 248, DType::kF16});
  }
  LayerOptions slices = layer(S::kFsdp, true, false);
  slices.plan.slice_axis = "S";
  check_case({Mesh::parse("S=2,X=3"), slices, 12, 93, 189, DType::kBF16});
}

TEST_CASE("schedules and threads change no bit") {
  LayerOptions options;
  options.plan.strategy = LayerStrategy::kDp;
  Case c{Mesh::parse("X=5"), options, 15, 101, 203};
  REQUIRE(sums(c));
  const auto right = c.together(nullptr);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    c.options.launch.delay_seed = seed;
    c.options.launch.threads = static_cast<int>(5 * seed);
    const std::vector<Array> found = c.together(nullptr);
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(same_bits(found[i], right[i]));
  }
}

TEST_CASE("what a group does not agree on, and a sum that nobody takes") {
  const auto run = [](auto body) { return refusal([&] { launch(Mesh::parse("X=2"), body); }); };
  const auto start = [](Device& device, const Sizes& s) {
    return detail::start_product_sum(Psum{.axis_name = "X"}, device, unmade(s),
                                     factors(s, device.index(), true, false, DType::kF32),
                                     CallSite::here());
  };
  const std::string shapes = run([&](Device& device) {
    start(device, {2, 3 + device.index(), 4}).done();
  });
  CHECK(says(shapes, "psum"));
  CHECK(says(shapes, "f32[2,3]"));
  CHECK(says(shapes, "f32[2,4]"));
  CHECK(says(run([&](Device& device) {
               if (device.index() == 0) start(device, {2, 3, 4}).done();
             }),
             "psum over X"));
  CHECK(says(run([&](Device& device) {
               const Pending left = start(device, {2, 3, 4});
             }),
             "psum over X"));
}

}  // namespace
}  // namespace kref
