// SPDX-License-Identifier: Apache-2.0
// Other libraries' matrix products, timed beside ours in the same process. Each is optional: a
// library that is not there gives no peer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dsl/ref.h"

namespace kref::bench {

// c = a b, dense row-major, a (m, k), b (k, n), c (m, n).
template <class T, class C>
struct Product {
  const T* a;
  const T* b;
  C* c;
  Index m, n, k;
};

template <class T, class C>
struct Peer {
  std::string name;
  // Runs the product on `threads` threads. Whatever a user of the library would prepare once for a
  // shape (a oneDNN primitive) is prepared at the first call.
  std::function<void(const Product<T, C>&, int threads)> run;
  bool exact = true;  // false: pair sums may saturate (int8)
};

// OpenBLAS, BLIS and oneDNN's sgemm.
std::vector<Peer<float, float>> f32_peers();
// Both operands widened to f32 in each call, then OpenBLAS's sgemm; oneDNN's bf16 matmul.
std::vector<Peer<bf16, float>> bf16_peers();
// oneDNN's s8 s8 -> s32.
std::vector<Peer<std::int8_t, std::int32_t>> int8_peers();

namespace detail {
// oneDNN's part, which is linked rather than loaded; empty without it.
void add_onednn(std::vector<Peer<float, float>>& out);
void add_onednn(std::vector<Peer<bf16, float>>& out);
void add_onednn(std::vector<Peer<std::int8_t, std::int32_t>>& out);
}  // namespace detail

}  // namespace kref::bench
