// SPDX-License-Identifier: Apache-2.0
// What verbs report of the arithmetic they do, for Grid::cost.
#pragma once

#include "dsl/ref.h"

namespace kref::detail {

struct Work {
  Index flops = 0, transcendentals = 0;
  Index product_flops = 0;  // those of dots, also among flops
};

// Where this thread's verbs count; null unless a cost is asked for.
inline constinit thread_local Work* counted_work = nullptr;

// Adds what a verb does that makes `elements` of them, each for so many flops and transcendentals;
// `elements` is a function, called only where somebody counts.
template <class F>
void count_work(F elements, Index flops, Index transcendentals = 0) {
  if (counted_work == nullptr) [[likely]]
    return;
  const Index n = elements();
  counted_work->flops += n * flops;
  counted_work->transcendentals += n * transcendentals;
}

// Adds the product of [m, k] and [k, n].
inline void count_product(Index m, Index n, Index k) {
  count_work([&] { return m * n * k; }, 2);
  if (counted_work != nullptr) counted_work->product_flops += 2 * m * n * k;
}

}  // namespace kref::detail
