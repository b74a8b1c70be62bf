// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference_decode.h"

namespace kref::reference {
namespace {

void check_rank(const char* name, const ArrayRef& a, std::size_t rank) {
  KREF_CHECK(a.rank == rank, "decode_attention: ", name, " is ", to_string(a), ", expected rank ",
             rank);
}

ArrayRef one_row(const ArrayRef& q) {  // [B, H, D] -> [B, 1, H, D]
  ArrayRef out = q;
  out.rank = 4;
  out.extents = {q.extents[0], 1, q.extents[1], q.extents[2]};
  out.strides = {q.strides[0], 0, q.strides[1], q.strides[2]};
  return out;
}

}  // namespace

DecodeAsAttention::DecodeAsAttention(const DecodeInputs& given, const DecodeOptions& o)
    : options{.scale = o.scale, .causal = Causal::kNone} {
  check_rank("q", given.q, 3);
  check_rank("k_cache", given.k_cache, 4);
  check_rank("v_cache", given.v_cache, 4);
  check_rank("lengths", given.lengths, 1);
  const Index batches = given.q.extents[0], slots = given.k_cache.extents[1];
  KREF_CHECK(given.lengths.dtype == DType::kI32 && given.lengths.extents[0] == batches,
             "decode_attention: lengths is ", to_string(given.lengths), ", expected I32[", batches,
             "]");
  KREF_CHECK(o.window.left.value_or(0) >= 0 && o.window.right.value_or(0) >= 0,
             "decode_attention: a window side is negative");
  mask = Tensor<bool, 4>({batches, 1, 1, slots}, false);
  for (Index b = 0; b < batches; ++b) {
    const Index length = given.lengths.ref<const std::int32_t, 1>()(b);
    KREF_CHECK(length >= 0 && length <= slots, "decode_attention: lengths[", b, "] is ", length,
               ", expected 0 to ", slots);
    KREF_CHECK(length > 0 || o.fully_masked != FullyMasked::kUniform,
               "decode_attention: fully_masked is uniform, but lengths[", b,
               "] is 0, which leaves nothing to average");
    for (Index j = 0; j < length; ++j) {
      mask(b, 0, 0, j) = !o.window.left || length - 1 - j <= *o.window.left;
    }
  }
  in.q = one_row(given.q), in.k = given.k_cache, in.v = given.v_cache;
  in.mask = ArrayRef(mask.ref());
  options.layout = Layout::kBTHD;
  options.soft_cap = o.soft_cap, options.fully_masked = o.fully_masked;
  options.p_dtype = o.p_dtype, options.lse_base = o.lse_base;
}

}  // namespace kref::reference
