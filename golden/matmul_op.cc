// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_op.h"

#include <algorithm>

#include "golden/cost.h"
#include "golden/matmul_compute.h"
#include "golden/matmul_sharded.h"
#include "golden/options.h"
#include "kernels/matmul.h"

namespace kref {
namespace {

bool is_f8(DType type) { return type == DType::kF8E4M3 || type == DType::kF8E5M2; }

void check_dtypes(const Run& run, const Array& x, const Array& y) {
  if (!has_product(x.dtype())) {
    refuse_run(run, "in.x has element type ", name_of(x.dtype()),
               ", expected F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I8 or U8");
  }
  if (x.dtype() != y.dtype()) {
    refuse_run(run, "in.y has element type ", name_of(y.dtype()), ", expected that of in.x, ",
               name_of(x.dtype()));
  }
}

DType out_dtype(const Run& run, const Options& options, DType in) {
  if (!is_float(in)) return options.dtype("out_dtype", {DType::kI32}).value_or(DType::kI32);
  const auto out = options.dtype("out_dtype", {DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                               DType::kF8E4M3, DType::kF8E5M2});
  if (!out && is_f8(in)) {
    refuse_run(run, "option out_dtype is missing; ", name_of(in), " inputs require it");
  }
  return out.value_or(in);
}

Precision precision(const Run& run, const Options& options, DType in) {
  if (in == DType::kF32) {
    const auto name = [](std::size_t i) { return name_of(kPrecisions[i]); };
    static_assert(std::size(kPrecisions) == 4);
    const std::string chosen =
        options.choice("precision", name_of(Precision::kF32), {name(0), name(1), name(2), name(3)});
    return *std::find_if(std::begin(kPrecisions), std::end(kPrecisions),
                         [&](Precision p) { return chosen == name_of(p); });
  }
  if (options.find("precision") != nullptr) {
    refuse_run(run, "option precision is for F32 inputs only, in.x is ", name_of(in));
  }
  return Precision::kF32;
}

// Binds m, n, k and the batch from the shapes.
void bind_sizes(const Run& run, const Array& x, const Array& y, MatmulRun& out) {
  try {
    const MatmulSizes sizes = matmul_sizes(x, y, out.trans_x, out.trans_y, "", "in.");
    out.m = sizes.m, out.n = sizes.n, out.k = sizes.k;
    out.shared_y = sizes.shared_y;
  } catch (const Error& e) {
    refuse_run(run, e.what());
  }
  out.batch.assign(x.shape().begin(), x.shape().end() - 2);
}

void place(const Run& run, MatmulRun& out) {
  if (!run.mesh) return;
  const MatmulShape shape{out.batch, out.m, out.n, out.k, out.shared_y, out.trans_x, out.trans_y};
  try {
    out.placement = place_matmul(*run.mesh, shape, spec_of(run.in_specs, "x"),
                                 spec_of(run.in_specs, "y"), spec_of(run.out_specs, "z"));
  } catch (const Error& e) {
    refuse_run(run, e.what());
  }
}

// What to say to an output of another type than x where nobody asked for one.
std::string missing_out_dtype(const Run& run, DType found) {
  if (Options(run).find("out_dtype") != nullptr || !is_float(run.in.at("x").dtype()) ||
      !is_float(found)) {
    return "";
  }
  return detail::cat(", that of in.x; option out_dtype is not given: out_dtype=", name_of(found),
                     " if z is meant to be so");
}

void validate(const Run& run, bool with_outputs) {
  check_declared(find_operation(run.op), run, with_outputs);
  const MatmulRun matmul = read_matmul(run);
  if (with_outputs) check_matmul_output(run, matmul);
}

}  // namespace

Operation matmul_operation() {
  return {
      .name = "matmul",
      .summary = "z = x y, batched, in every precision a TPU offers, on one device or sharded",
      .inputs = {{"x", "*B M K", false, "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I8 U8"},
                 {"y", "*B K N", false, "element type of x; [K N] is shared by the batch"}},
      .outputs = {{"z", "*B M N", false, "element type out_dtype"}},
      .options = {{"trans_x", "false", "true: the last two dimensions of x are stored swapped"},
                  {"trans_y", "false", "true: the last two dimensions of y are stored swapped"},
                  {"precision", "\"f32\"",
                   "\"bf16\", \"bf16_x3\", \"bf16_x6\", \"f32\": the algorithm; F32 inputs only"},
                  {"out_dtype", "as x; I32 of I8, U8",
                   "a float type, rounded to once at the end; required of F8 inputs"},
                  {"tile", "chosen by kref",
                   "[m, n, k] >= 1; changes no bit, names the grid steps"}},
      .rules =
          {"Sums run in F32 (F64 of F64; I32, wrapping, of I8 and U8).",
           "bf16: inputs rounded to BF16. bf16_x3, bf16_x6: inputs cut into two or three BF16 "
           "parts,",
           "  the three or six largest part products summed.",
           "A result or input below the smallest normal number may be flushed to zero.",
           "An error is held against a bound from element types, K and the sum of |x| |y|.",
           "With a mesh, in_specs and out_specs select the case: contracting dimension whole; "
           "sharded",
           "  on one side: gathered; on both by the same axes: partial sums, then all-reduce, or",
           "  reduce-scatter as out_specs say; both free dimensions on one axis: one is gathered "
           "first.",
           "Contracting dimensions sharded over different axes are refused.",
           "out_specs {\"z\": {\"spec\": [..], \"unreduced\": [\"Y\"]}} leaves the partial sums: "
           "one leading",
           "  dimension for each unreduced axis, in that order."},
      .sources = {"jax.lax.dot_general with preferred_element_type; jax.lax.DotAlgorithmPreset:",
                  "  BF16_BF16_F32, BF16_BF16_F32_X3, BF16_BF16_F32_X6, F32_F32_F32",
                  "the cases of a sharded product: 'How to Scale Your Model', chapter on sharding",
                  "the bound: Higham and Mary, A new approach to probabilistic rounding error "
                  "analysis, 2019"},
      .validate = validate,
      .compute = compute_matmul,
      .expect = expect_sharded_matmul,
      .plan = plan_matmul,
      .price = price_matmul_run,
      .clock = clock_as_run,
  };
}

std::vector<Index> MatmulRun::z_shape() const {
  if (placement) return placement->output_shape();
  std::vector<Index> shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  return shape;
}

void check_matmul_output(const Run& run, const MatmulRun& matmul) {
  const Array& z = run.out.at("z");
  const std::vector<Index> shape = matmul.z_shape();
  if (z.dtype() != matmul.out_dtype) {
    refuse_run(run, "out.z has element type ", name_of(z.dtype()), ", expected ",
               name_of(matmul.out_dtype), missing_out_dtype(run, z.dtype()));
  }
  if (!std::equal(shape.begin(), shape.end(), z.shape().begin(), z.shape().end())) {
    refuse_run(run, "out.z has shape ", shape_string(z.shape()), ", expected ",
               shape_string(shape));
  }
}

MatmulRun read_matmul(const Run& run) {
  const Options options(run);
  const Array &x = run.in.at("x"), &y = run.in.at("y");
  check_dtypes(run, x, y);
  MatmulRun out;
  out.trans_x = options.flag("trans_x", false);
  out.trans_y = options.flag("trans_y", false);
  out.precision = precision(run, options, x.dtype());
  out.out_dtype = out_dtype(run, options, x.dtype());
  bind_sizes(run, x, y, out);
  place(run, out);
  if (const auto tile = options.sizes("tile", 3)) {
    out.tile = {(*tile)[0], (*tile)[1], (*tile)[2]};
  } else {
    const MatmulShape whole{.m = out.m, .n = out.n, .k = out.k};
    const MatmulShape& one = out.placement ? out.placement->local : whole;
    const MatmulTile chosen = default_matmul_tile(x.dtype(), one.m, one.n, one.k);
    out.tile = {chosen.m, chosen.n, chosen.k};
  }
  return out;
}

}  // namespace kref
