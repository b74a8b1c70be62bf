// SPDX-License-Identifier: Apache-2.0
#include "sharding/batch_sharded_decode.h"

#include "dsl/work_meter.h"
#include "kernels/kv_cache.h"

namespace kref {
namespace {

void check_rank(const char* name, const Array& x, std::size_t rank) {
  KREF_CHECK(x.rank() == rank, "batch_sharded_decode: ", name, " is ", to_string(x.ref()),
             ", expected rank ", rank);
}

// Lengths of the sequences that this device keeps.
Array own_lengths(Device& device, const AxisNames& axis_name, const Array& lengths, Index own) {
  const Index first = device.axis_index(axis_name) * own;
  return Array(DType::kI32, std::vector<Index>{own}, lengths.owner(),
               static_cast<const std::int32_t*>(lengths.data()) + first);
}

void check_blocks(Device& device, const AxisNames& axis_name, const DecodeBlocks& b) {
  check_rank("q", b.q, 3);
  check_rank("k_cache", b.k_cache, 4);
  check_rank("v_cache", b.v_cache, 4);
  KREF_CHECK(b.k_new.has_value() == b.v_new.has_value(),
             "batch_sharded_decode: ", b.k_new ? "v_new" : "k_new", " is missing; ",
             b.k_new ? "k_new" : "v_new", " needs it");
  const Index all = b.q.extent(0), n = device.axis_size(axis_name);
  KREF_CHECK(b.lengths.dtype() == DType::kI32 && b.lengths.rank() == 1 && b.lengths.size() == all,
             "batch_sharded_decode: lengths is ", to_string(b.lengths.ref()), ", expected I32[",
             all, "]: a length for each sequence of q, on every device");
  if (all > 0) detail::need_elements("batch_sharded_decode", "lengths", b.lengths.data());
  // Here, where sequences have the caller's numbers.
  for (Index i = 0; i < all; ++i) {
    const Index length = b.lengths.elements<std::int32_t>()[static_cast<std::size_t>(i)];
    KREF_CHECK(length >= 0 && length <= b.k_cache.extent(1), "batch_sharded_decode: lengths[", i,
               "] is ", length, ", expected 0 to S = ", b.k_cache.extent(1));
    KREF_CHECK(length > 0 || !b.k_new, "batch_sharded_decode: lengths[", i,
               "] is 0 beside k_new: lengths count the new token");
  }
  for (const Array* cache : {&b.k_cache, &b.v_cache}) {
    KREF_CHECK(cache->extent(0) * n == all,
               "batch_sharded_decode: ", cache == &b.k_cache ? "k_cache" : "v_cache", " is ",
               to_string(cache->ref()), " with B/n = ", cache->extent(0),
               ", expected the B = ", all, " sequences of q over the ", n, " devices");
  }
}

}  // namespace

Array heads_to_batch(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return all_to_all(device, x, axis_name, 0, 1, {.tiled = true}, where);
}

Array batch_to_heads(Device& device, const Array& x, const AxisNames& axis_name, CallSite where) {
  return all_to_all(device, x, axis_name, 1, 0, {.tiled = true}, where);
}

DecodedBlocks batch_sharded_decode(Device& device, const AxisNames& axis_name,
                                   const DecodeBlocks& blocks,
                                   const BatchShardedDecodeOptions& options, CallSite where) {
  check_blocks(device, axis_name, blocks);
  const Array q = heads_to_batch(device, blocks.q, axis_name, where);
  const Array lengths = own_lengths(device, axis_name, blocks.lengths, q.extent(0));
  DecodedBlocks out{.o = {}, .lse = {}, .k_cache = blocks.k_cache, .v_cache = blocks.v_cache};
  if (blocks.k_new) {
    out.k_cache = with_token("k_new", out.k_cache,
                             heads_to_batch(device, *blocks.k_new, axis_name, where), lengths);
    out.v_cache = with_token("v_new", out.v_cache,
                             heads_to_batch(device, *blocks.v_new, axis_name, where), lengths);
  }
  const Index o_shape[] = {q.extent(0), q.extent(1), out.v_cache.extent(3)};
  Array o = Array::unwritten(options.out_dtype.value_or(q.dtype()), o_shape);
  Array lse = Array::unwritten(DType::kF32, std::span(o_shape).first(2));
  options.local({.q = q, .k_cache = out.k_cache, .v_cache = out.v_cache, .lengths = lengths},
                o.mutable_ref(), lse.mutable_ref().ref<float, 2>(), options.attention);
  out.o = batch_to_heads(device, o, axis_name, where);
  out.lse = batch_to_heads(device, lse, axis_name, where);
  return out;
}

}  // namespace kref
