// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_row.h"

namespace kref {
namespace {

void set_overflow(Expectation& e, std::size_t at, std::uint8_t bits) {
  if (bits == Expectation::kNoOverflow) return;
  if (e.overflow.empty()) e.overflow.assign(e.value.size(), Expectation::kNoOverflow);
  e.overflow[at] = bits;
}

}  // namespace

Expectation bounded_output(const char* name, std::size_t size) {
  Expectation e;
  e.output = name;
  e.value.resize(size);
  e.likely.resize(size);
  e.worst.resize(size);
  return e;
}

void put_o(Expectation& o, std::size_t first, const reference::AttentionRow& row,
           const RowBounds& bounds) {
  for (std::size_t e = 0; e < row.o.size(); ++e) {
    o.value[first + e] = row.o[e];
    o.likely[first + e] = bounds.likely[e];
    o.worst[first + e] = bounds.worst[e];
    set_overflow(o, first + e, bounds.overflow[e]);
  }
}

void put_lse(Expectation& lse, std::size_t at, const reference::AttentionRow& row,
             const RowBounds& bounds) {
  lse.value[at] = row.lse;
  lse.likely[at] = bounds.lse_likely;
  lse.worst[at] = bounds.lse_worst;
  set_overflow(lse, at, bounds.lse_overflow);
}

}  // namespace kref
