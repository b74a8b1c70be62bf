// SPDX-License-Identifier: Apache-2.0
// Chapter 3.
#include <cmath>

#include "sharding/cost_model.h"
#include "sharding/planning.h"
#include "tests/worked_problems.h"

namespace kref {
namespace {

using enum Printed;
constexpr double kMicro = 1e6;

double local_elements(const char* mesh, const PartitionSpec& spec, std::vector<Index> shape) {
  double n = 1;
  for (const Index extent : local_shape(spec, shape, Mesh::parse(mesh))) {
    n *= static_cast<double>(extent);
  }
  return n;
}

// us of a collective over rings of four.
double rings(Traffic traffic, double bytes, std::size_t count, const Chip& chip,
             const LinkOptions& options = {}) {
  const std::vector<LinkAxis> axes(count, LinkAxis{4, true});
  return link_time(traffic, bytes, axes, chip, options).seconds() * kMicro;
}

// A product [4096, 4096] [4096, 4096] in bf16 on v5e 4x4.
Cost product(const PartitionSpec& x, const PartitionSpec& y, const PartitionSpec& z) {
  const Mesh mesh = Mesh::parse("X=4,Y=4");
  const MatmulShape shape{.m = 4096, .n = 4096, .k = 4096};
  return price_matmul(place_matmul(mesh, shape, x, y, {z, {}}), lay_out(find_chip("v5e"), mesh));
}

}  // namespace

std::vector<Worked> sharding_problems() {
  const Chip v5e = find_chip("v5e"), v5p = find_chip("v5p"), v4p = find_chip("v4p");
  using enum Traffic;

  const double local = local_elements("X=8,Y=2", {axes("X", "Y"), none}, {1024, 4096});
  const double block = local_elements("X=2,Y=8,Z=2", {axes("X", "Y"), none}, {128, 2048});
  const double copies = local_elements("X=4,Y=8,Z=2", {"X"}, {64, 64, 64}) * 64 / (64 * 64 * 64);

  // AG_Y of [E_Y, F] on v5e 8x4, whose axes do not wrap.
  const MeshLinks slice = lay_out(v5e, Mesh::parse("X=8,Y=4"), parse_slice(v5e, "8x4"));
  const double big = 2.0 * 2048 * 8192, small = 2.0 * 256 * 256;
  const auto on_slice = [&](double bytes) {
    return link_time(kAllGather, bytes, slice.of({"Y"}), v5e);
  };

  // Q5: I = J = K = 8192, C on every device.
  const double n = 8192, product_bytes = 2 * n * n;
  // Q6: the sum of C [I_X, K] in bf16, over a line of four.
  const std::vector<LinkAxis> line = {{4, false}};
  const double sum = link_time(kAllReduce, 2 * 4096.0 * 4096 / 4, line, v5e).seconds() * kMicro;

  // Q7: D = 8192, F = 32768, B = 128 on v5e 2x2.
  const LayerSize q7{.b = 128, .d = 8192, .f = 32768};
  const Mesh four = Mesh::parse("Y=4"), four_x = Mesh::parse("X=4");
  const Slice square = parse_slice(v5e, "2x2");
  const LayerPrice forward{.backward = false};
  const Cost tp =
      price_layer({.strategy = LayerStrategy::kTp}, q7, lay_out(v5e, four, square), forward);
  const Cost fsdp =
      price_layer({.strategy = LayerStrategy::kFsdp}, q7, lay_out(v5e, four_x, square), forward);
  const double weight = 2.0 * 8192 * 32768;
  double weights_read = 0;
  for (const CostStep& step : tp.steps) {
    if (!step.moves) weights_read += weight / 4 / v5e.hbm_rate;
  }

  // Q10, on a ring of 16 with bandwidth to spare for hops.
  const std::vector<LinkAxis> ring = {{16, true}};
  const LinkOptions one_way{.hop_seconds = 0, .one_way = true}, both{.hop_seconds = 0};
  const auto on_ring = [&](Traffic traffic, const LinkOptions& options) {
    return link_time(traffic, 16e6, ring, v5e, options).seconds();
  };

  return {
      {"S.a", "bytes of f32 [1024, 4096] / I_XY a device", 1048576, 1048576, 4 * local},
      {"S.a", "ns to read them on an H100", 294, 308.4, 4 * local / 3.4e12 * 1e9, kErratum},
      {"S.b", "bytes of s8 [128, 2048] / I_XY a device", 16384, 16384, block},
      {"S.b", "on all of them", 512 * 1024, 524288, 32 * block},
      {"S.c", "elements of A (8, 2048) P(X, Y) a device", 2 * 1024, 2048,
       local_elements("X=4,Y=2", {"X", "Y"}, {8, 2048})},
      {"S.c", "of B (2048, 8192) P(None, Y)", 2048 * 4096, 2048 * 4096,
       local_elements("X=4,Y=2", {none, "Y"}, {2048, 8192})},
      {"S.d1", "us of AG_Y on v5e as if it wrapped", 377, 372.8, rings(kAllGather, big, 1, v5e)},
      {"S.d1", "us of AG_Y on v5e 8x4", 560, 559.2, on_slice(big).seconds() * kMicro},
      {"S.d2", "us of AG_Y when E = F = 256", 3, 3, on_slice(small).seconds() * kMicro},
      {"S.d2", "us of the bytes of one hop", kNoNumber, 0.728,
       on_slice(small).bandwidth / 3 * kMicro, kNoAnswer},
      {"S.e", "bytes below which a hop counts, v5e", 45e3, 45000, latency_bytes(v5e)},
      {"S.1", "bytes on all devices over those of one copy", 16, 16, copies},
      {"S.2.1", "us of AG_X([B_X, D_Y]), v4p 4x4x4", 23, 23.30,
       rings(kAllGather, 2.0 * 1024 * 4096 / 4, 1, v4p)},
      {"S.2.2", "us of AG_XY", 46, 46.60, rings(kAllGather, 2.0 * 1024 * 4096, 2, v4p)},
      {"S.2.3", "us of AR_Z([B_X, D_Y]{U_Z})", 11.6, 11.65,
       rings(kAllReduce, 2.0 * 1024 * 4096 / 16, 1, v4p)},
      {"S.2.3", "the same in the edition of February 2025", 190, 11.65,
       rings(kAllReduce, 2.0 * 1024 * 4096 / 16, 1, v4p), kErratum},
      {"S.2.4", "us of S.2.1 by X and Z, once sliced", 11.5, 11.65,
       rings(kAllGather, 2.0 * 1024 * 4096 / 4, 2, v4p)},
      {"S.2.4", "us of S.2.2 by X, Y and Z", 31, 31.07,
       rings(kAllGather, 2.0 * 1024 * 4096, 3, v4p)},
      {"S.3", "us of AG_X([B_X]), B = 128", 2, 2, rings(kAllGather, 256, 1, v4p)},
      {"S.4", "B from which gathering is compute-bound, v5p", 2550, 2550, link_intensity(v5p)},
      {"S.4", "D / X from which summing is", 5100, 5100, hidden_columns(v5p, false)},
      {"S.5", "us of the product, 64 ways", kNoNumber, 2 * n * n * n / (64 * 2.75e14) * kMicro,
       matmul_roofline(v4p, {.m = n / 64, .n = n, .k = n}).compute * kMicro, kNoAnswer},
      {"S.5", "us to gather C over three axes", kNoNumber, product_bytes / (3 * 9e10) * kMicro,
       rings(kAllGather, product_bytes, 3, v4p), kNoAnswer},
      {"S.5", "us to sum C over three axes", kNoNumber, 2 * product_bytes / (3 * 9e10) * kMicro,
       rings(kAllReduce, product_bytes, 3, v4p), kNoAnswer},
      {"S.6a", "us to sum C [I_X, K], v5e 4x4", kNoNumber,
       2 * 0.75 * (2 * 4096.0 * 4096 / 4) / 4.5e10 * kMicro, sum, kNoAnswer},
      {"S.6b", "us to gather B [J_X, K_Y]", kNoNumber,
       0.75 * (2 * 4096.0 * 4096 / 4) / 4.5e10 * kMicro,
       product({"X", none}, {"X", "Y"}, {"X", "Y"}).moved_seconds() * kMicro, kNoAnswer},
      {"S.6c", "us of A [I_X, J] B [J, K_Y]", kNoNumber,
       2 * 4096.0 * 4096 * 4096 / (16 * 1.97e14) * kMicro,
       product({"X", none}, {none, "Y"}, {"X", "Y"}).steps.at(0).unit.compute * kMicro, kNoAnswer},
      {"S.7", "bytes of a weight", 536e6, 536870912, weight},
      {"S.7", "us of TP's products", kNoNumber, 174.4,
       (tp.steps.at(1).unit.compute + tp.steps.at(2).unit.compute) * kMicro, kNoAnswer},
      {"S.7", "us to read TP's weights", kNoNumber, 331, weights_read * kMicro, kNoAnswer},
      {"S.7", "us of TP's collectives", kNoNumber, 34.95, tp.moved_seconds() * kMicro, kNoAnswer},
      {"S.7", "ms of FSDP's", kNoNumber, 8.95, fsdp.moved_seconds() * 1e3, kNoAnswer},
      {"S.9", "gathering A [N, M_X] over scattering C, M / K = 4", 4, 4,
       rings(kAllGather, 2e9, 1, v5e) / rings(kReduceScatter, 0.5e9, 1, v5e)},
      {"S.10", "one way, all_to_all over all_gather", 0.5, 0.5,
       on_ring(kAllToAll, one_way) / on_ring(kAllGather, one_way)},
      {"S.10", "both ways", 0.25, 0.25, on_ring(kAllToAll, both) / on_ring(kAllGather, both)},
      {"S.10", "us of all_gather one way", kNoNumber, 16e6 * (15.0 / 16) / 4.5e10 * kMicro,
       on_ring(kAllGather, one_way) * kMicro, kNoAnswer},
  };
}

}  // namespace kref
