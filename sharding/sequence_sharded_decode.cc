// SPDX-License-Identifier: Apache-2.0
#include "sharding/sequence_sharded_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "dsl/work_meter.h"
#include "kernels/kv_cache.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

std::int32_t length_of(const Array& lengths, Index b) {
  return lengths.elements<std::int32_t>()[static_cast<std::size_t>(b)];
}

void check_blocks(const SequenceBlocks& b, Index slots, const DecodeOptions& options) {
  KREF_CHECK(b.q.rank() == 3, "sequence_sharded_decode: q is ", to_string(b.q.ref()),
             ", expected rank 3");
  KREF_CHECK(b.k_new.has_value() == b.v_new.has_value(),
             "sequence_sharded_decode: ", b.k_new ? "v_new" : "k_new", " is missing; ",
             b.k_new ? "k_new" : "v_new", " needs it");
  KREF_CHECK(b.lengths.dtype() == DType::kI32 && b.lengths.rank() == 1 &&
                 b.lengths.size() == b.q.extent(0),
             "sequence_sharded_decode: lengths is ", to_string(b.lengths.ref()), ", expected I32[",
             b.q.extent(0), "]: a length for each sequence of q");
  // What is read of a cache goes by the sequences of q.
  for (const Array* cache : {&b.k_cache, &b.v_cache}) {
    KREF_CHECK(cache->extent(0) == b.q.extent(0),
               "sequence_sharded_decode: ", cache == &b.k_cache ? "k_cache" : "v_cache", " is ",
               to_string(cache->ref()), " with B = ", cache->extent(0),
               ", expected the B = ", b.q.extent(0), " sequences of q");
  }
  // A device is told of no window that its own slots do not cut.
  KREF_CHECK(options.window.left.value_or(0) >= 0, "sequence_sharded_decode: the left side of the ",
             "window is ", options.window.left.value_or(0), ", expected 0 or more");
  for (Index i = 0; i < b.lengths.size(); ++i) {
    const Index length = length_of(b.lengths, i), least = b.k_new ? 1 : 0;
    KREF_CHECK(length >= least && length <= slots, "sequence_sharded_decode: lengths[", i, "] is ",
               length, ", expected ", least, " to S = ", slots);
    KREF_CHECK(length > 0 || options.fully_masked != FullyMasked::kUniform,
               "sequence_sharded_decode: fully_masked is uniform, but lengths[", i,
               "] is 0, which leaves no key to average");
  }
}

// What a block of one sequence alone is: x[b:b+1].
ArrayRef sequence(const ArrayRef& x, Index b) {
  ArrayRef out = x;
  out.extents[0] = 1;
  out.data =
      static_cast<const char*>(x.data) + b * x.strides[0] * static_cast<Index>(size_of(x.dtype));
  return out;
}

// The slots of one cache with the tokens that belong to this device: its own part of `lengths`.
Array with_own_tokens(const char* name, const Array& cache, const Array& token,
                      const Array& lengths, Index first) {
  Array out = cache;
  const Index slots = cache.extent(1);
  std::vector<std::int32_t> own;
  bool any = false;
  for (Index b = 0; b < lengths.size(); ++b) {
    const Index slot = length_of(lengths, b) - 1 - first;
    own.push_back(static_cast<std::int32_t>(slot >= 0 && slot < slots ? slot + 1 : 0));
    any = any || own.back() > 0;
  }
  return any ? with_token(name, cache, token,
                          Ref<const std::int32_t, 1>(own.data(), {lengths.size()}))
             : out;
}

// o [B, N, E] F32 and lse [B, N] over this device's slots, `first` on.
void attend_locally(const SequenceBlocks& in, const Array& k, const Array& v, Index first,
                    const DecodeOptions& options, Tensor<float, 3>& o, Tensor<float, 2>& lse) {
  const Index slots = k.extent(1);
  DecodeOptions own = options;
  own.fully_masked = FullyMasked::kZero;  // here that is no more than a part without keys
  for (Index b = 0; b < in.lengths.size(); ++b) {
    const Index length = length_of(in.lengths, b);
    const Index from =
        options.window.left ? std::max<Index>(0, length - 1 - *options.window.left) : 0;
    // Slots [begin, end) of this device are seen; a window counts back from the last of them.
    const Index end = std::clamp<Index>(length - first, 0, slots);
    const Index begin = std::clamp<Index>(from - first, 0, slots);
    const std::int32_t seen = begin < end ? static_cast<std::int32_t>(end) : 0;
    own.window = {};
    if (begin > 0 && seen > 0) own.window.left = end - 1 - begin;
    decode_attention({.q = sequence(in.q, b),
                      .k_cache = sequence(k, b),
                      .v_cache = sequence(v, b),
                      .lengths = Ref<const std::int32_t, 1>(&seen, {1})},
                     MutableArrayRef(o.ref().block({b, 0, 0}, {1, o.extent(1), o.extent(2)})),
                     lse.ref().block({b, 0}, {1, lse.extent(1)}), own);
  }
}

}  // namespace

SequenceDecoded sequence_sharded_decode(Device& device, const AxisNames& axis_name,
                                        const SequenceBlocks& blocks, const DecodeOptions& options,
                                        std::optional<DType> out_dtype, CallSite where) {
  detail::need_memory("sequence_sharded_decode");
  for (const Array* cache : {&blocks.k_cache, &blocks.v_cache}) {
    KREF_CHECK(cache->rank() == 4,
               "sequence_sharded_decode: ", cache == &blocks.k_cache ? "k_cache" : "v_cache",
               " is ", to_string(cache->ref()), ", expected rank 4");
  }
  const Index slots = blocks.k_cache.extent(1), first = device.axis_index(axis_name) * slots;
  check_blocks(blocks, slots * device.axis_size(axis_name), options);
  SequenceDecoded out{.o = {}, .lse = {}, .k_cache = blocks.k_cache, .v_cache = blocks.v_cache};
  if (blocks.k_new) {
    out.k_cache = with_own_tokens("k_new", out.k_cache, *blocks.k_new, blocks.lengths, first);
    out.v_cache = with_own_tokens("v_new", out.v_cache, *blocks.v_new, blocks.lengths, first);
  }
  const Index batches = blocks.q.extent(0), heads = blocks.q.extent(1),
              width = out.v_cache.extent(3);
  Tensor<float, 3> o({batches, heads, width});
  Tensor<float, 2> lse({batches, heads});
  attend_locally(blocks, out.k_cache, out.v_cache, first, options, o, lse);

  // What a collective has been given is read by the other devices until they are done with it:
  // nothing below writes to it.
  const Array parts(std::move(lse));
  const Array most = pmax(device, parts, axis_name, {}, where);
  const auto m = most.ref().ref<const float, 2>();
  // Where no device saw a key m is -infinity; any finite number in its place gives weights of 0.
  Tensor<float, 2> w({batches, heads});
  maximum(m, std::numeric_limits<float>::lowest(), w.ref());
  sub(parts.ref().ref<const float, 2>(), w, w.ref());
  options.lse_base == LogBase::kE ? exp(w, w.ref()) : exp2(w, w.ref());
  const auto weighted = o.ref().reshape(batches * heads, width);
  mul(weighted, w.ref().reshape(batches * heads, 1), weighted);
  const Array sums = psum(device, Array(std::move(w)), axis_name, {}, where);
  const Array merged = psum(device, Array(std::move(o)), axis_name, {}, where);

  Tensor<float, 3> result({batches, heads, width});
  Tensor<float, 2> logs({batches, heads});
  const auto total = sums.ref().ref<const float, 2>();
  div(merged.ref().ref<const float, 3>().reshape(batches * heads, width),
      total.reshape(batches * heads, 1), result.ref().reshape(batches * heads, width));
  log(total, logs.ref());
  for (Index b = 0; b < batches; ++b) {
    for (Index h = 0; h < heads; ++h) {
      if (m(b, h) == kNone) {
        const bool nan = options.fully_masked == FullyMasked::kNaN;
        const float value = nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
        logs(b, h) = nan ? value : kNone;
        for (Index e = 0; e < width; ++e) result(b, h, e) = value;
      } else {
        const float log = logs(b, h);
        logs(b, h) = m(b, h) + (options.lse_base == LogBase::kE ? log : log * 1.44269504f);
      }
    }
  }
  const Index shape[] = {batches, heads, width};
  out.o = Array::unwritten(out_dtype.value_or(blocks.q.dtype()), shape);
  detail::cast(result.ref(), out.o.mutable_ref(), Overflow::kDefault);
  out.lse = Array(std::move(logs));
  return out;
}

}  // namespace kref
