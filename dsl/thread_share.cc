// SPDX-License-Identifier: Apache-2.0
#include "dsl/thread_share.h"

#include <algorithm>

namespace kref {
namespace {
thread_local int share = 0;
thread_local const std::atomic<bool>* signal = nullptr;
}  // namespace

ThreadShare::ThreadShare(int count, const std::atomic<bool>* stop)
    : count_before_(share), stop_before_(signal) {
  KREF_DCHECK(count >= 1);
  share = share > 0 ? std::min(share, count) : count;
  signal = stop;
}

ThreadShare::~ThreadShare() {
  share = count_before_;
  signal = stop_before_;
}

namespace detail {
const std::atomic<bool>* stop_signal() { return signal; }
int thread_share() { return share; }
}  // namespace detail

}  // namespace kref
