// SPDX-License-Identifier: Apache-2.0
// KvCache: the keys and values of the sequences of one device, and how many of them are valid.
#pragma once

#include <vector>

#include "dsl/array.h"
#include "kernels/decode_attention.h"

namespace kref {

// Slots for S tokens a sequence. A rolling cache keeps the last S tokens: token number t lies in
// slot t mod S, so that a window of S keys attends to all valid slots; in which order they lie does
// not matter to a softmax. One that does not roll refuses a token beyond the last slot.
class KvCache {
 public:
  struct Sizes {
    Index sequences, slots, heads, depth, width;  // B, S, G, D, E
  };
  enum class Full { kRefuse, kRoll };

  // Error unless `type` is a float type and there are slots. What was never written is poison.
  KvCache(DType type, const Sizes& sizes, Full full = Full::kRefuse);
  // Slots are owned: a copy would write into the same ones.
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  // Takes one token of a sequence: k [G, D], v [G, E], of the cache's type. Error, naming the
  // operand, when they do not fit, and when a cache that does not roll is full.
  void append(Index sequence, const ArrayRef& k, const ArrayRef& v);
  // Takes one token of every sequence: k_new [B, G, D], v_new [B, G, E].
  void append(const ArrayRef& k_new, const ArrayRef& v_new);
  // Forgets a sequence.
  void clear(Index sequence);

  // Tokens of a sequence so far, those that have been overwritten included.
  Index tokens(Index sequence) const;
  // Valid keys of a sequence: at most S.
  Index length(Index sequence) const;
  // Where the i-th oldest valid token of a sequence lies. Error unless 0 <= i < length.
  Index slot(Index sequence, Index i) const;

  ArrayRef k() const { return k_; }              // [B, S, G, D]
  ArrayRef v() const { return v_; }              // [B, S, G, E]
  ArrayRef lengths() const { return lengths_; }  // [B] I32

  // What decode_attention takes, with q [B, H, D].
  DecodeInputs inputs(const ArrayRef& q) const {
    return {.q = q, .k_cache = k(), .v_cache = v(), .lengths = lengths()};
  }

 private:
  void check_sequence(Index sequence) const;

  Sizes sizes_;
  Full full_;
  std::vector<Index> tokens_;
  Array k_, v_, lengths_;
};

// cache [B, S, G, X] with token [B, G, X] written at slot lengths - 1 of each sequence, as JAX's
// cache.at[b, lengths - 1].set(token): a new array. lengths [B] I32; a sequence of length 0 takes
// none. Error, calling the token `name`, unless shapes and element types fit and each length is in
// 0..S.
Array with_token(const char* name, const Array& cache, const ArrayRef& token,
                 const ArrayRef& lengths);

}  // namespace kref
