// SPDX-License-Identifier: Apache-2.0
// A sleeping thread, and one device's part in an exchange.
#include <cstring>
#include <exception>
#include <utility>

#include "sharding/rendezvous.h"

namespace kref::detail {
namespace {

// Tells the core that this is a loop that waits, where there is a way to.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Parker::unpark() {
  {
    const std::lock_guard lock(mutex_);
    woken_.store(true, std::memory_order_release);
  }
  changed_.notify_one();
}

bool Parker::park_until(Clock::time_point deadline, bool spin) {
  // A microsecond or two: what a partner takes that is about to come, less than going to sleep
  // costs. Without yielding, which on a busy machine hands the core to somebody else for long.
  for (int look = 0; spin && look < 100; ++look) {
    if (woken_.load(std::memory_order_relaxed) &&
        woken_.exchange(false, std::memory_order_acquire)) {
      return true;
    }
    relax();
  }
  std::unique_lock lock(mutex_);
  const bool woken =
      changed_.wait_until(lock, deadline, [&] { return woken_.load(std::memory_order_relaxed); });
  if (woken) woken_.store(false, std::memory_order_relaxed);
  return woken;
}

void Parker::park() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return woken_.load(std::memory_order_relaxed); });
  woken_.store(false, std::memory_order_relaxed);
}

Meeting::Meeting(std::shared_ptr<Rendezvous> launch, Party& party, std::shared_ptr<Slot> slot,
                 std::size_t rank)
    : launch_(std::move(launch)),
      party_(party),
      slot_(std::move(slot)),
      rank_(rank),
      exceptions_(std::uncaught_exceptions()) {}

Meeting::~Meeting() {
  if (slot_ != nullptr) close();
}

void Meeting::match() {
  launch_->check_thread(party_);
  launch_->delay(party_);
  if (!slot_->complete.load(std::memory_order_acquire)) {
    Rendezvous::Lock lock(launch_->mutex_);
    if (launch_->failed_) launch_->throw_stopped();
    if (!slot_->complete) launch_->block(lock, party_, *slot_, Phase::kMatch);
  }
  // First be seen, then look: whoever takes a target away does it the other way round.
  if (slot_->targets) {
    slot_->inside.fetch_add(1);
    copying_ = true;
  }
  if (!slot_->closed && !launch_->failed_) return;
  exit_copying();
  Rendezvous::Lock lock(launch_->mutex_);
  // An exception carries a member away. It ends the launch as soon as the body has let it out.
  launch_->changed_.wait_for(lock, launch_->time_limit_, [&] { return launch_->failed_.load(); });
  for (const auto& other : launch_->parties_) {
    if (launch_->failed_ || other->left.empty()) continue;
    launch_->fail(Rendezvous::Cause::kDevices, launch_->left_behind(*other, other->left));
  }
  launch_->throw_stopped();
}

const std::byte* Meeting::view(Index rank, std::size_t begin, std::size_t bytes, std::byte*) {
  KREF_DCHECK(slot_->complete && begin + bytes <= of(rank).data.bytes());
  static_cast<void>(bytes);
  return static_cast<const std::byte*>(of(rank).data.data()) + begin;
}

void Meeting::put(Index rank, std::size_t begin, std::size_t bytes, const std::byte* from) {
  KREF_DCHECK(copying_ && begin + bytes <= of(rank).target_bytes);
  if (bytes > 0) std::memcpy(target(rank) + begin, from, bytes);
}

std::byte* Meeting::target(Index rank) { return static_cast<std::byte*>(of(rank).target); }

std::shared_ptr<void> Meeting::common(std::size_t bytes) {
  KREF_DCHECK(slot_->complete);
  std::call_once(slot_->common_once, [&] { slot_->common = allocate(bytes); });
  return slot_->common;
}

// From here on this device writes to nobody's target.
void Meeting::exit_copying() {
  if (!std::exchange(copying_, false)) return;
  slot_->inside.fetch_sub(1);
  if (!slot_->closed) return;
  const Rendezvous::Lock lock(launch_->mutex_);
  launch_->changed_.notify_all();
}

void Meeting::wait(End end) {
  launch_->check_thread(party_);
  exit_copying();
  {
    Rendezvous::Lock lock(launch_->mutex_);
    if (launch_->failed_) launch_->throw_stopped();
    slot_->finished[rank_] = 1;
    const bool last = ++slot_->finished_count == slot_->members.size();
    if (last) {
      launch_->release(lock, *slot_, Phase::kFinish);
    } else if (end == End::kAll) {
      launch_->block(lock, party_, *slot_, Phase::kFinish);
    }
    if (!lock.owns_lock()) lock.lock();
    std::erase(party_.open, this);
  }
  slot_.reset();
}

// Left without wait(): by an exception, which the launch will be told of, or by mistake.
void Meeting::close() {
  exit_copying();
  Rendezvous::Lock lock(launch_->mutex_);
  std::erase(party_.open, this);
  if (!launch_->failed_) {
    std::string what = brief(offer());
    if (std::uncaught_exceptions() > exceptions_) {
      party_.left = std::move(what);
    } else {
      launch_->fail(Rendezvous::Cause::kDevices, launch_->left_behind(party_, what));
    }
  }
  // The target goes now: nobody may begin to write to it, and who writes comes to an end first.
  slot_->closed = true;
  if (offer().target == nullptr) return;
  launch_->changed_.wait(lock, [&] { return slot_->inside == 0; });
}

}  // namespace kref::detail
