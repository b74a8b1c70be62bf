// SPDX-License-Identifier: Apache-2.0
#include "sharding/roofline.h"

#include <algorithm>
#include <cmath>

#include "dsl/check.h"

namespace kref {
namespace {

double bytes_of(DType type) { return static_cast<double>(size_of(type)); }

double blocks(double extent, double tile) {
  return tile > 0 ? std::max(1.0, std::ceil(extent / tile)) : 1;
}
double block(double extent, double tile) { return tile > 0 ? std::min(extent, tile) : extent; }

// Our own count of what the scalar unit does for one operand in one step: evaluate its index map (a
// value a dimension), turn it into an address (a multiply and an add a dimension), compare it with
// that of the step before (one a dimension), issue or wait for one transfer.
double index_work(double dimensions) { return 4 * dimensions + 1; }

void add_steps(Roofline& r, const Chip& chip, double steps, double operations_a_step) {
  // The TensorCores of a chip share the steps out, and each has a scalar unit.
  r.steps = static_cast<Index>(steps);
  r.index_operations = static_cast<Index>(steps * operations_a_step);
  r.scalar = steps * operations_a_step / (chip.clock * static_cast<double>(chip.tensor_cores));
}

}  // namespace

double Roofline::lower() const { return std::max({compute, hbm, vmem, scalar}); }

const char* Roofline::bound_by() const {
  const double most = lower();
  if (compute == most) return "compute";
  if (hbm == most) return "hbm";
  return vmem == most ? "vmem" : "scalar";
}

Roofline& Roofline::operator+=(const Roofline& other) {
  flops += other.flops, hbm_bytes += other.hbm_bytes;
  transcendentals += other.transcendentals;
  compute += other.compute, hbm += other.hbm, vmem += other.vmem, scalar += other.scalar;
  steps += other.steps, index_operations += other.index_operations;
  return *this;
}

Roofline matmul_roofline(const Chip& chip, const MatmulCost& c) {
  KREF_CHECK(c.m >= 0 && c.n >= 0 && c.k >= 0 && c.batch >= 0 && c.tile_m >= 0 && c.tile_n >= 0 &&
                 c.tile_k >= 0,
             "matmul to be priced: a size is negative");
  Roofline r;
  r.flops = 2 * c.batch * c.m * c.n * c.k;
  r.compute = r.flops / operation_rate(chip, c.compute, c.passes);
  const double rows = blocks(c.m, c.tile_m), columns = blocks(c.n, c.tile_n),
               depth = blocks(c.k, c.tile_k);
  const double y_arrays = c.shared_y && c.tile_m <= 0 ? 1 : c.batch;
  const double x_bytes = c.batch * c.m * c.k * bytes_of(c.x);
  const double y_bytes = y_arrays * c.k * c.n * bytes_of(c.y);
  const double z_bytes = (c.adds ? 2 : 1) * c.batch * c.m * c.n * bytes_of(c.z);
  // A block stays where its index does not change from one step to the next: x with one block of k
  // through all columns, y with one block of it at all.
  const double x_reads = depth > 1 ? columns : 1;
  const double y_reads = depth > 1 || columns > 1 ? rows : 1;
  r.hbm_bytes = x_bytes * x_reads + y_bytes * y_reads + z_bytes;
  r.hbm = r.hbm_bytes / chip.hbm_rate;
  if (c.tile_m <= 0 && c.tile_n <= 0 && c.tile_k <= 0) return r;
  const double steps = c.batch * rows * columns * depth;
  const double m = block(c.m, c.tile_m), n = block(c.n, c.tile_n), k = block(c.k, c.tile_k);
  // A step reads both blocks, and reads and writes the f32 accumulator.
  r.vmem = steps * (m * k * bytes_of(c.x) + k * n * bytes_of(c.y) + 2 * 4 * m * n) / chip.vmem_rate;
  add_steps(r, chip, steps, 3 * index_work(2) + 3);
  return r;
}

Roofline attention_roofline(const Chip& chip, const AttentionCost& c) {
  KREF_CHECK(c.batch >= 0 && c.heads >= 0 && c.queries >= 0 && c.keys >= 0 && c.depth >= 0 &&
                 c.width >= 0 && c.query_block >= 0 && c.key_block >= 0 && c.other_bytes >= 0,
             "attention to be priced: a size is negative");
  const bool tiled = c.query_block > 0 && c.key_block > 0;
  KREF_CHECK(!c.backward || !tiled, "attention to be priced: blocks of a backward pass");
  Roofline r;
  const double scores = c.batch * c.heads * c.queries * c.keys * c.visible;
  const double both = c.depth + c.width;
  const double passes = c.backward && c.bias_gradient ? 2 : 1;  // over the scores
  // Of depth: s, and backward dq and dk; of width: p v, or backward dp and dv.
  r.flops = 2 * scores * (passes * both + (c.backward ? 2 * c.depth + c.width : 0));
  r.transcendentals = scores * passes * (c.soft_cap ? 2 : 1);
  // The MXU of an 8-bit cache multiplies in the type of q.
  r.compute =
      std::max(r.flops / operation_rate(chip, c.type), r.transcendentals / vector_rate(chip));
  // Arrays like q and o: q, o; backward also do, dq. Like k and v: those two; backward also dk, dv.
  const double arrays = c.backward ? 1 + passes : 1;
  const double rows = c.batch * c.heads * c.queries;
  const double once =
      rows * (both * arrays * bytes_of(c.type) + (c.backward ? 4 * passes : 0));  // and lse
  const double cache = c.batch * c.kv_heads * c.keys * both * arrays * bytes_of(c.kv_type);
  const double q_blocks = blocks(c.queries, c.query_block);
  const double k_blocks = blocks(c.keys, c.key_block);
  const double group = c.kv_heads > 0 ? c.heads / c.kv_heads : 1;
  // With one block of keys its index is that of the step before until the kv head changes.
  const double reads = tiled && k_blocks > 1 ? group * q_blocks * c.visible : 1;
  r.hbm_bytes = once + cache * reads + c.other_bytes;
  r.hbm = r.hbm_bytes / chip.hbm_rate;
  if (!tiled) return r;
  const double steps = c.batch * c.heads * q_blocks * k_blocks;
  const double q_block = block(c.queries, c.query_block), k_block = block(c.keys, c.key_block);
  r.vmem = steps * c.visible *
           (q_block * c.depth * bytes_of(c.type) + k_block * both * bytes_of(c.kv_type) +
            2 * 4 * q_block * (k_block + c.width)) /
           chip.vmem_rate;
  add_steps(r, chip, steps, 4 * index_work(4) + 4);
  return r;
}

Roofline grid_roofline(const Chip& chip, const GridCost& c, DType compute, int passes) {
  Roofline r;
  r.flops = static_cast<double>(c.flops);
  r.transcendentals = static_cast<double>(c.transcendentals);
  const double vector = static_cast<double>(c.flops - c.product_flops + c.transcendentals);
  r.compute = std::max(static_cast<double>(c.product_flops) / operation_rate(chip, compute, passes),
                       vector / vector_rate(chip));
  r.hbm_bytes = static_cast<double>(c.bytes);
  r.hbm = r.hbm_bytes / chip.hbm_rate;
  r.vmem = static_cast<double>(c.block_bytes) / chip.vmem_rate;
  const auto steps = static_cast<double>(c.steps);
  if (c.steps > 0) add_steps(r, chip, steps, static_cast<double>(c.index_operations) / steps);
  return r;
}

double attention_intensity(double queries, double keys, double group) {
  return queries * keys * group / (queries * group + keys);
}

}  // namespace kref
