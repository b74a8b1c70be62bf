// SPDX-License-Identifier: Apache-2.0
#include "sharding/rendezvous.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "dsl/thread_share.h"

namespace kref::detail {
namespace {

thread_local Party* current_party = nullptr;

std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

std::unique_ptr<Exchange> Party::post(Offer offer) { return launch->post(*this, std::move(offer)); }

Rendezvous::Rendezvous(const Mesh& mesh, const LaunchOptions& options, CallSite where)
    : mesh_(mesh),
      // A year: what is longer cannot be added to the clock.
      time_limit_(
          std::min<std::chrono::milliseconds>(options.time_limit, std::chrono::hours(8760))),
      delayed_(options.delay_seed.has_value()),
      where_(where),
      remaining_(mesh.device_count()) {
  KREF_CHECK(time_limit_.count() > 0, "launch: a time limit of ", time_limit_.count(),
             " ms, expected more than 0");
  static const Index cores = std::thread::hardware_concurrency();  // asking reads a file
  spin_ = mesh.device_count() <= cores;
  parties_.reserve(static_cast<std::size_t>(remaining_));
  for (Index k = 0; k < remaining_; ++k) {
    Party& party = *parties_.emplace_back(std::make_unique<Party>());
    party.launch = this;
    party.index = k;
    party.random = options.delay_seed.value_or(0) * 1024 + static_cast<std::uint64_t>(k);
  }
}

Party* Rendezvous::enter(Index device) { return std::exchange(current_party, &party(device)); }
void Rendezvous::leave(Party* before) { current_party = before; }

void Rendezvous::end(Index device, std::exception_ptr error) {
  Party& ending = party(device);
  Lock lock(mutex_);
  if (error == nullptr) {
    if (!ending.open.empty()) ending.left = brief(ending.open.front()->offer());
    if (!ending.left.empty()) fail(Cause::kDevices, left_behind(ending, ending.left));
    ending.state = Party::State::kReturned;
    const Slot* seen = nullptr;
    for (const auto& waiting : parties_) {
      if (waiting->state != Party::State::kWaiting || waiting->slot == seen) continue;
      seen = waiting->slot;
      const auto at = std::ranges::find(seen->members, device);
      if (at == seen->members.end()) continue;
      if (seen->came(waiting->phase, static_cast<std::size_t>(at - seen->members.begin())))
        continue;
      fail(Cause::kDevices, gone(*waiting, device));
      break;
    }
  } else {
    bool stopped = false;
    try {
      std::rethrow_exception(error);
    } catch (const Stopped&) {
      stopped = failed_;
    } catch (...) {
    }
    ending.state = stopped ? Party::State::kStopped : Party::State::kThrew;
    if (!stopped) {
      ending.error = std::move(error);
      if (failed_) {
        ending.line = line(ending, nullptr);
      } else {
        fail(Cause::kBody, {});
      }
    }
  }
  if (--remaining_ == 0) changed_.notify_all();
}

void Rendezvous::check_thread(const Party& party) const {
  KREF_CHECK(current_party == &party, name(party.index),
             ": a collective was called on a thread that is not the device's own");
}

// Other schedules, at a price that allows thousands: half the time nothing, else let another thread
// run or sleep for as long as an exchange takes.
void Rendezvous::delay(Party& party) const {
  if (!delayed_) return;
  const std::uint64_t draw = splitmix(party.random);
  if (draw % 4 == 1) std::this_thread::yield();
  if (draw % 4 == 2) std::this_thread::sleep_for(std::chrono::microseconds(draw / 4 % 32));
}

void Rendezvous::throw_stopped() const { throw Stopped(message()); }

std::unique_ptr<Exchange> Rendezvous::post(Party& party, Offer offer) {
  check_thread(party);
  delay(party);
  const auto rank = static_cast<std::size_t>(offer.group.rank);
  KREF_DCHECK(rank < offer.group.members.size() && offer.group.members[rank] == party.index);
  Lock lock(mutex_);
  if (!failed_ && !party.left.empty()) fail(Cause::kDevices, left_behind(party, party.left));
  if (failed_) throw_stopped();
  Channel& channel = channels_[offer.group.members];
  channel.next.resize(offer.group.members.size());
  const std::uint64_t at = channel.next[rank] - channel.first;
  if (at == channel.open.size()) {
    channel.open.push_back(std::make_shared<Slot>(offer.group.members));
  }
  const std::shared_ptr<Slot> slot = channel.open[at];
  party.open.reserve(party.open.size() + 1);
  auto meeting = std::make_unique<Meeting>(shared_from_this(), party, slot, rank);
  // Nothing throws from here on.
  ++channel.next[rank];
  slot->targets = slot->targets || offer.target != nullptr;
  slot->offers[rank] = std::move(offer);
  slot->posted[rank] = 1;
  party.open.push_back(meeting.get());
  if (++slot->posted_count == slot->members.size()) {
    channel.open.pop_front();  // offers of a device are in order, so that slots fill in order
    ++channel.first;
    std::string different = disagreement(*slot);
    if (different.empty()) {
      slot->complete.store(true, std::memory_order_release);
      release(lock, *slot, Phase::kMatch);
    } else {
      fail(Cause::kDevices, std::move(different), slot.get());
    }
  }
  return meeting;
}

void Rendezvous::block(Lock& lock, Party& party, Slot& slot, Phase phase) {
  party.state = Party::State::kWaiting;
  party.slot = &slot;
  party.phase = phase;
  for (std::size_t k = 0; k < slot.members.size() && !failed_; ++k) {
    if (slot.came(phase, k)) continue;
    const Party& other = this->party(slot.members[k]);
    if (other.ended()) fail(Cause::kDevices, gone(party, other.index));
  }
  if (std::string stuck = failed_ ? std::string() : standstill(party); !stuck.empty()) {
    fail(Cause::kDevices, std::move(stuck));
  }
  lock.unlock();
  if (!party.parker.park_until(Parker::Clock::now() + time_limit_, spin_)) {
    lock.lock();
    if (party.state == Party::State::kWaiting) fail(Cause::kDevices, too_late(party));
    lock.unlock();
    party.parker.park();  // woken by fail(), or by whoever came just now
  }
  if (!failed_) return;
  lock.lock();
  throw_stopped();
}

void Rendezvous::release(Lock& lock, Slot& slot, Phase phase) {
  thread_local std::vector<Parker*> sleepers;
  sleepers.clear();
  for (const Index member : slot.members) {
    Party& waiting = party(member);
    if (waiting.state != Party::State::kWaiting || waiting.slot != &slot ||
        waiting.phase != phase) {
      continue;
    }
    waiting.state = Party::State::kRunning;
    sleepers.push_back(&waiting.parker);
  }
  lock.unlock();
  for (Parker* sleeper : sleepers) sleeper->unpark();
}

void Rendezvous::fail(Cause cause, std::string first_line, const Slot* mismatched) {
  if (failed_) return;
  cause_ = cause;
  first_line_ = std::move(first_line);
  for (const auto& each : parties_) each->line = line(*each, mismatched);
  failed_ = true;
  for (const auto& each : parties_) {
    if (each->state != Party::State::kWaiting) continue;
    each->state = Party::State::kRunning;
    each->parker.unpark();
  }
  for (Rendezvous* each : inner_) each->cancel();
  changed_.notify_all();
}

void Rendezvous::wait_for_all() {
  // A device that waits, calls kref or steps through a grid has ended long before.
  constexpr std::chrono::milliseconds kGrace{500};
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return remaining_ == 0 || failed_; });
  if (changed_.wait_for(lock, kGrace, [&] { return remaining_ == 0; })) return;
  std::string names;
  for (const auto& each : parties_) {
    if (!each->ended()) names += cat(names.empty() ? "" : ", ", name(each->index));
  }
  const std::string text = cat("kref: launch at ", to_string(where_), " waits for ", names,
                               ", still computing: ", message(), '\n');
  lock.unlock();
  std::fputs(text.c_str(), stderr);
  lock.lock();
  changed_.wait(lock, [&] { return remaining_ == 0; });
}

void Rendezvous::finish() {
  std::map<std::vector<Index>, Channel> channels;  // users' arrays go without the lock
  std::vector<std::exception_ptr> errors;
  const Lock lock(mutex_);
  channels.swap(channels_);
  if (!failed_) return;
  for (const auto& each : parties_) errors.push_back(std::move(each->error));
  if (cause_ == Cause::kCancelled) throw_stopped();
  if (cause_ == Cause::kDevices) throw Error(message());
  std::exception_ptr other;
  for (std::size_t k = 0; k < errors.size(); ++k) {
    if (errors[k] == nullptr) continue;
    try {
      std::rethrow_exception(errors[k]);
    } catch (const Error& error) {
      first_line_ = body_message(party(static_cast<Index>(k)), error.what());
      throw Error(message());
    } catch (...) {
      if (other == nullptr) other = errors[k];
    }
  }
  std::rethrow_exception(other);
}

void Rendezvous::cancel() {
  const Lock lock(mutex_);
  fail(Cause::kCancelled, "the launch round this one has ended");
}

std::shared_ptr<Rendezvous> Rendezvous::current() {
  return current_party != nullptr ? current_party->launch->shared_from_this() : nullptr;
}

void Rendezvous::adopt(Rendezvous* inner) {
  const Lock lock(mutex_);
  if (failed_) throw_stopped();
  inner_.push_back(inner);
}

void Rendezvous::disown(Rendezvous* inner) {
  const Lock lock(mutex_);
  std::erase(inner_, inner);
}

}  // namespace kref::detail
