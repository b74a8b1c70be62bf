// SPDX-License-Identifier: Apache-2.0
// Chapters 1 and 2, and the GPUs.
#include <cmath>

#include "sharding/link_cost.h"
#include "sharding/planning.h"
#include "sharding/roofline.h"
#include "sharding/serving.h"
#include "tests/worked_problems.h"

namespace kref {
namespace {

using enum Printed;

double intensity(double m, double k, double n, DType type, double batch = 1) {
  return matmul_roofline(find_chip("v5e"), {.m = m,
                                            .n = n,
                                            .k = k,
                                            .batch = batch,
                                            .x = type,
                                            .y = type,
                                            .z = type,
                                            .compute = type})
      .intensity();
}

double chips_of(const std::vector<Index>& shape) {
  double n = 1;
  for (const Index extent : shape) n *= static_cast<double>(extent);
  return n;
}

}  // namespace

std::vector<Worked> roofline_problems() {
  const Chip v5e = find_chip("v5e"), v5e_240 = find_chip("v5e-240"), v5p = find_chip("v5p");
  const Chip h100 = gpu(9.89e14, 3.35e12);
  const double tiled =
      matmul_roofline(
          v5e, {.m = 65536, .n = 65536, .k = 65536, .tile_m = 512, .tile_n = 256, .tile_k = 512})
          .intensity();
  using enum DType;
  return {
      {"R.a", "ms for 1e12 operations on an H100", 1.01, 1.011, 1e15 / h100.bf16_rate},
      {"R.a", "the same on v6e", 1.1, 1.099,
       1e15 / operation_rate(find_chip("v6e-9.1"), DType::kBF16)},
      {"R.b", "HBM intensity of v5e", 240, 240.24, hbm_intensity(v5e_240)},
      {"R.c", "intensity of a long dot product", 0.5, 0.5, intensity(1, 1e6, 1, kBF16)},
      {"R.d", "operations a byte of one TensorCore's vector units, v5p", 3, 2.5,
       vector_rate(v5p) / 2 / v5p.hbm_rate, kCoarse, 0.03},
      {"R.e", "D from which a product split on D over two chips is compute-bound", 8755, 8755.6,
       2 * hidden_columns(v5e, false)},
      {"R.f", "intensity with tiles of 512 x 256", kNoNumber, 512.0 * 256 / (512 + 256), tiled,
       kNoAnswer},
      {"R.1", "B from which int8 is compute-bound", 243, 243.2, critical_batch(v5e, kI8, kI8)},
      {"R.1", "intensity of int8 at B = 32", 64,
       2.0 * 32 * 65536 * 65536 / (65536.0 * 65536 + 2 * 32 * 65536),
       intensity(32, 65536, 65536, kI8)},
      {"R.2", "B with int8 weights and bf16 products", 120, 120.1,
       critical_batch(v5e_240, kI8, kBF16)},
      {"R.3", "the same with every byte, D = F = 4096", kNoNumber, 136.1,
       exact_critical_batch(v5e_240, 4096, 4096, kI8, kBF16, kBF16), kNoAnswer},
      {"R.3", "and D = F = 1024", kNoNumber, 226.3,
       exact_critical_batch(v5e_240, 1024, 1024, kI8, kBF16, kBF16), kNoAnswer},
      {"R.4", "intensity of a matrix for each row", 2, 2.0 * 4096 * 4096 / (4096.0 * 4096 + 8192),
       intensity(1, 4096, 4096, kI8, 64)},
      {"R.5", "HBM intensity of an H100", 298, 298.5, hbm_intensity(gpu(1e15, 3.35e12))},
  };
}

std::vector<Worked> chip_problems() {
  const Chip v5e = find_chip("v5e"), v5p = find_chip("v5p"), v6e = find_chip("v6e-pcie");
  const double e_chips = chips_of(v5e.pod), p_chips = chips_of(v5p.pod);
  Chip from_vmem = v5e;
  from_vmem.hbm_rate = v5e.vmem_rate;
  const DecodeStep load{.chips = 32, .batch = 0, .parameter_bytes = 2 * 200e9};
  // From corner to corner of 4 x 4, and what may leave the first one by both its links.
  const std::vector<LinkAxis> lines = {{4, false}, {4, false}};
  const std::pair<Index, Index> corners[] = {{0, 15}};
  const double block = 8.0 * 128 * 8192 * 2;
  const LinkTime path = permute_time(block, corners, lines, v5e);
  // A matrix of 128k x 128k bytes from the hosts of 4 x 4 chips to one of them.
  const double decimal = 16e9, binary = std::pow(2.0, 34);
  const double pcie = 16 * find_chip("v5e-pcie").pcie_rate;
  const auto to_one = [&](double bytes) {
    return link_time(Traffic::kAllGather, bytes, lines, v5e).seconds() * 1e3;
  };
  using enum DType;
  const Roofline product =
      matmul_roofline(v5e, {.m = 8, .n = 131072, .k = 131072, .y = kI8, .compute = kBF16});
  return {
      {"T.1", "ms to read 200e9 bf16 parameters, 32 v4p", 10, 10.16,
       decode_load_seconds(find_chip("v4p-1.23"), load) * 1e3},
      {"T.2a", "hosts of a v5e pod", 32, 32, e_chips / chips_of(v5e.host)},
      {"T.2a", "TensorCores", 256, 256, e_chips * static_cast<double>(v5e.tensor_cores)},
      {"T.2a", "operations a second", 5.1e16, 5.043e16, e_chips * v5e.bf16_rate},
      {"T.2a", "bytes of HBM", 4e12, 4.096e12, e_chips * v5e.hbm_bytes},
      {"T.2b", "hosts of a v5p pod", 2240, 2240, p_chips / chips_of(v5p.host)},
      {"T.2b", "TensorCores", 17920, 17920, p_chips * static_cast<double>(v5p.tensor_cores)},
      {"T.2b", "operations a second", 4e18, 4.113e18, p_chips * v5p.bf16_rate, kCoarse},
      {"T.2b", "bytes of HBM", 860e12, 8.602e14, p_chips * v5p.hbm_bytes},
      {"T.3", "B from which weights in host memory suffice, v6e", 61000, 61333,
       v6e.bf16_rate / v6e.pcie_rate},
      {"T.4a", "B from which int8 [16384, 4096] is compute-bound", 271, 262.7,
       exact_critical_batch(v5e, 4096, 16384, kI8, kI8, kI8), kErratum},
      {"T.4b", "the same out of VMEM", 11, 11.09,
       exact_critical_batch(from_vmem, 4096, 16384, kI8, kI8, kI8)},
      {"T.5", "us until the first byte goes from corner to corner", 6, 6, path.latency * 1e6},
      {"T.5", "us until the last byte, by both links", 188, 186.4, path.bandwidth / 2 * 1e6},
      {"T.6", "ms over PCIe, 16e9 bytes", 66, 66.7, decimal / pcie * 1e3},
      {"T.6", "ms over links to one chip", 167, 166.7, to_one(decimal)},
      {"T.6", "ms over PCIe, 2^34 bytes", 66, 71.6, binary / pcie * 1e3, kErratum},
      {"T.6", "ms over links to one chip, 2^34 bytes", 167, 179.0, to_one(binary), kErratum},
      {"T.6", "ms from HBM", 19, 21.2, product.hbm * 1e3, kErratum},
      {"T.6", "ms of operations", 1.3, 1.395, product.compute * 1e3, kErratum},
      {"T.7", "operations a second of the vector units, v5p", 1.4e13, 1.434e13, vector_rate(v5p)},
      {"T.8", "bytes of vector registers, 64 of 8 x 128 f32", 256e3, 262144, 64.0 * 8 * 128 * 4},
  };
}

std::vector<Worked> gpu_problems() {
  const Chip h100 = gpu(9.89e14, 3.35e12), b200 = gpu(2.25e15, 8e12, 1.8e12 / 2);
  // Eight GPUs behind a switch: each sends and receives all but its own block.
  const std::vector<LinkAxis> node = {{8, true, 1, true}};
  const double array = 1024.0 * 16384 * 2;
  const auto gather = [&](bool exact) {
    return link_time(Traffic::kAllGather, array, node, h100, {.exact = exact}).seconds() * 1e6;
  };
  return {
      {"G.1", "us to gather bf16 [1024, 16384], 8 H100", 75, 74.6, gather(false)},
      {"G.1", "the same without one's own block", 65, 65.2, gather(true)},
      {"G.2", "HBM intensity of a B200", 281, 281.25, hbm_intensity(b200)},
      {"G.2", "of an H100", 295, 295.2, hbm_intensity(h100)},
      {"G.3", "alpha of a B200, which limits TP to F / alpha", 2500, 2500, link_intensity(b200)},
      {"G.4", "GB/s at which a node of 8 gathers", 514, 514.3, array / gather(true) / 1e3, kAgrees},
  };
}

}  // namespace kref
