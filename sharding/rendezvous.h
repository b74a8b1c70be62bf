// SPDX-License-Identifier: Apache-2.0
// Rendezvous: what the device threads of one launch share; the Transport of threads. Internal to
// sharding/.
//
// A slot is one exchange of one group. The k-th offers of its members lie in it; the member that
// brings the last one compares them and wakes those that wait. A device sleeps on its own condition
// variable and is woken once, when what it waits for is there or the launch has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sharding/launch.h"

namespace kref::detail {

// Puts one thread to sleep until another wakes it; a wake that comes first is kept.
class Parker {
 public:
  using Clock = std::chrono::steady_clock;

  void unpark();
  // Whether it was woken. spin: look a while before going to sleep.
  bool park_until(Clock::time_point deadline, bool spin);
  void park();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> woken_{false};
};

enum class Phase { kMatch, kFinish };

// One exchange. Guarded by the launch's mutex, but for the offers once it is complete: they are
// read only.
struct Slot {
  explicit Slot(const std::vector<Index>& group)
      : members(group), offers(group.size()), posted(group.size()), finished(group.size()) {}

  // Has the member of this rank done what those in `phase` wait for?
  bool came(Phase phase, std::size_t rank) const {
    return (phase == Phase::kMatch ? posted : finished)[rank] != 0;
  }

  const std::vector<Index> members;
  std::vector<Offer> offers;  // by rank, as are the next two
  std::vector<char> posted, finished;
  std::size_t posted_count = 0, finished_count = 0;
  bool targets = false;               // somebody offers memory to write to
  std::atomic<bool> complete{false};  // all have posted
  // Members between match and wait, which may write to each other's targets; and whether some
  // member's target is gone, so that nobody may enter any more.
  std::atomic<int> inside{0};
  std::atomic<bool> closed{false};
  std::once_flag common_once;
  std::shared_ptr<void> common;  // none before a member asks for it
};

class Rendezvous;
class Meeting;

// One device.
struct Party : Transport {
  enum class State { kRunning, kWaiting, kReturned, kThrew, kStopped };

  std::unique_ptr<Exchange> post(Offer offer) override;
  bool has_common() const override { return true; }
  bool ended() const { return state != State::kRunning && state != State::kWaiting; }

  Rendezvous* launch = nullptr;
  Index index = 0;
  State state = State::kRunning;
  Slot* slot = nullptr;  // that it waits in
  Phase phase = Phase::kMatch;
  std::vector<Meeting*> open;  // posted, and not yet waited for
  std::string left;            // an exchange that an exception carried it out of
  std::exception_ptr error;
  std::string line;  // what it was doing when the launch failed
  std::uint64_t mark = 0;
  std::uint64_t random = 0;  // of the delays
  Parker parker;
};

class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
 public:
  Rendezvous(const Mesh& mesh, const LaunchOptions& options, CallSite where);

  Transport& transport(Index device) { return party(device); }
  const std::atomic<bool>* stop_signal() const { return &failed_; }

  // The calling thread is that of `device` from here on; leave() with what enter() gave ends that.
  Party* enter(Index device);
  static void leave(Party* before);
  // The body of `device` has ended: it returned, or threw `error`. Does not throw.
  void end(Index device, std::exception_ptr error);
  // Blocks until the bodies of all devices have ended. Does not throw.
  void wait_for_all();
  // After wait_for_all: throws what the launch is to throw, if anything; lets go of all data.
  void finish();

  // Ends all devices since the launch round this one ended.
  void cancel();
  // The launch whose device the calling thread is; none.
  static std::shared_ptr<Rendezvous> current();
  // `inner` was started by a device of this one, and is to be cancelled with it.
  void adopt(Rendezvous* inner);
  void disown(Rendezvous* inner);

 private:
  friend struct Party;
  friend class Meeting;
  using Lock = std::unique_lock<std::mutex>;

  enum class Cause { kNone, kDevices, kBody, kCancelled };

  struct Channel {
    std::vector<std::uint64_t> next;           // by rank: number of its next offer
    std::uint64_t first = 0;                   // number of open.front()
    std::deque<std::shared_ptr<Slot>> open{};  // not yet complete
  };

  Party& party(Index device) { return *parties_[static_cast<std::size_t>(device)]; }
  void check_thread(const Party& party) const;
  void delay(Party& party) const;
  [[noreturn]] void throw_stopped() const;

  std::unique_ptr<Exchange> post(Party& party, Offer offer);
  // Blocks until all members have come to `phase` of the slot. Comes back without the lock: those
  // that are woken together do not queue for it.
  void block(Lock& lock, Party& party, Slot& slot, Phase phase);
  // Those that wait in that phase can go on; they are woken without the lock.
  void release(Lock& lock, Slot& slot, Phase phase);
  void fail(Cause cause, std::string first_line, const Slot* mismatched = nullptr);

  // rendezvous_report.cc
  std::string name(Index device) const { return cat("device ", mesh_.device_name(device)); }
  std::string line(const Party& party, const Slot* mismatched) const;
  std::string message() const;
  std::string disagreement(const Slot& slot) const;
  std::string body_message(const Party& party, const std::string& what) const;
  std::string too_late(const Party& party) const;
  std::string standstill(const Party& party);
  std::string gone(const Party& waiting, Index device) const;
  std::string left_behind(const Party& party, const std::string& what) const;
  bool reaches(Party& from, const Party& to);

  const Mesh mesh_;
  const std::chrono::milliseconds time_limit_;
  const bool delayed_;
  const CallSite where_;
  bool spin_ = false;  // every device has a core
  std::vector<std::unique_ptr<Party>> parties_;

  mutable std::mutex mutex_;
  std::condition_variable
      changed_;  // all devices have ended, the launch has failed, a slot is quiet
  std::map<std::vector<Index>, Channel> channels_;
  std::vector<Rendezvous*> inner_;
  Index remaining_ = 0;
  std::uint64_t marks_ = 0;
  std::atomic<bool> failed_{false};
  Cause cause_ = Cause::kNone;
  std::string first_line_;
};

// One device's part in a slot.
class Meeting : public Exchange {
 public:
  Meeting(std::shared_ptr<Rendezvous> launch, Party& party, std::shared_ptr<Slot> slot,
          std::size_t rank);
  ~Meeting() override;

  void match() override;
  const std::byte* view(Index rank, std::size_t begin, std::size_t bytes,
                        std::byte* scratch) override;
  void put(Index rank, std::size_t begin, std::size_t bytes, const std::byte* from) override;
  std::byte* target(Index rank) override;
  std::shared_ptr<void> common(std::size_t bytes) override;
  void wait(End end) override;

  const Offer& offer() const { return slot_->offers[rank_]; }

 private:
  const Offer& of(Index rank) const { return slot_->offers[static_cast<std::size_t>(rank)]; }
  void exit_copying();
  void close();

  const std::shared_ptr<Rendezvous> launch_;
  Party& party_;
  std::shared_ptr<Slot> slot_;  // none once it was waited for
  const std::size_t rank_;
  const int exceptions_;
  bool copying_ = false;
};

// "psum over X, f32[8,4], axis=0, at layer.cc:12"; "psum over X at layer.cc:12".
std::string describe(const Offer& offer);
std::string brief(const Offer& offer);

}  // namespace kref::detail
