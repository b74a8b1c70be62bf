// SPDX-License-Identifier: Apache-2.0
// WorkMeter: is told what kernels compute on a thread, for whoever prices it; and ShapesOnly, under
// which they compute nothing.
#pragma once

#include "dsl/dtype.h"
#include "dsl/ref.h"

namespace kref {

// A product, or a batch of them: z [m, n] = x [m, k] y [k, n].
struct ProductWork {
  Index batch = 1, m = 0, n = 0, k = 0;
  bool shared_y = false;  // one y for the batch
  bool adds = false;      // to a z that is read first
  DType x = DType::kF32, y = DType::kF32, z = DType::kF32;
  int passes = 1;  // bf16 products that a TPU makes of one of f32
  // Blocks of the grid that the caller asked for; 0: none, what is chosen for a CPU says nothing.
  Index tile_m = 0, tile_n = 0, tile_k = 0;
};

// Attention between projections, or its gradients from o, lse and their cotangents.
struct AttentionWork {
  Index batch = 0, heads = 0, kv_heads = 0, queries = 0, depth = 0, width = 0;
  double keys = 0;     // of one sequence, on average
  double visible = 1;  // of all pairs of a row and a key
  DType type = DType::kF32, kv_type = DType::kF32;
  bool soft_cap = false;       // a tanh beside the exp of each score
  bool backward = false;       // the gradients
  bool bias_gradient = false;  // of backward: scores are formed once more for that of the bias
};

class WorkMeter {
 public:
  virtual ~WorkMeter() = default;
  virtual void product(const ProductWork& work) = 0;
  virtual void attention(const AttentionWork& work) = 0;
};

// While it lives, and on the thread that made it, kernels tell `meter` what they compute, each call
// once: what they are built of, and the bodies of grids, do not count again. Null: nobody is told.
class MeterScope {
 public:
  explicit MeterScope(WorkMeter* meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  WorkMeter* const before_;
};

// While it lives, on the thread that made it and on the devices of what is launched there, arrays
// have shape and element type, and no memory: products, attention, local arithmetic and collectives
// check what they are given, meet, tell their meter, and touch no element. Large programs run so to
// be priced. Grids run as ever: what a kernel of one's own computes needs memory. Lengths are
// looked at, and made outside; sequence_sharded_decode is refused.
class ShapesOnly {
 public:
  explicit ShapesOnly(bool on = true);
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

 private:
  const bool before_;
};

namespace detail {
// Of the calling thread.
WorkMeter* work_meter();
bool shapes_only();
// Error where the elements of an array that `who` looks at are not there.
void need_elements(const char* who, const char* name, const void* data);
// Error under ShapesOnly.
void need_memory(const char* who);
}  // namespace detail

}  // namespace kref
