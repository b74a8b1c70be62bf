// SPDX-License-Identifier: Apache-2.0
#include "sharding/device_threads.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace kref::detail {

struct DeviceThread {
  DeviceThread() : thread([this] { work(); }) {}

  void work() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return task != nullptr || ends; });
        if (task == nullptr) return;
        next = std::exchange(task, nullptr);
      }
      next();
    }
  }

  void give(std::function<void()> next) noexcept {
    {
      const std::lock_guard lock(mutex);
      task = std::move(next);
    }
    changed.notify_one();
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_one();
    thread.join();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> task;
  bool ends = false;
  std::thread thread;  // last: it uses the others
};

namespace {

using Threads = std::vector<std::unique_ptr<DeviceThread>>;

// The threads without a task.
class Idle {
 public:
  static Idle& instance() {
    static Idle idle;
    return idle;
  }

  Threads take(std::size_t count) {
    Threads out;
    out.reserve(count);
    const std::lock_guard lock(mutex_);
    threads_.reserve(threads_.size() + busy_ + count);  // so that give_back needs no memory
    while (out.size() < count && !threads_.empty()) {
      out.push_back(std::move(threads_.back()));
      threads_.pop_back();
    }
    busy_ += out.size();
    return out;
  }

  // Counts one more that was created.
  void created() {
    const std::lock_guard lock(mutex_);
    ++busy_;
  }

  // In reverse, so that the next launch finds each device on the thread it had.
  void give_back(Threads threads) {
    const std::lock_guard lock(mutex_);
    busy_ -= threads.size();
    for (; !threads.empty(); threads.pop_back()) threads_.push_back(std::move(threads.back()));
  }

 private:
  Idle() {
    // A forked process has none of the threads, and must not wait for them.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] { instance().forget(); });
  }

  // At exit. A thread that still runs a body may be the one that exits: it ends with the process.
  ~Idle() {
    for (const auto& thread : threads_) thread->end();
  }

  void forget() {
    static Threads* const lost = new Threads;  // their threads cannot be joined
    for (auto& thread : threads_) lost->push_back(std::move(thread));
    threads_.clear();
    busy_ = 0;
    mutex_.unlock();
  }

  std::mutex mutex_;
  Threads threads_;
  std::size_t busy_ = 0;
};

}  // namespace

Crew::Crew(Index count) : threads_(Idle::instance().take(static_cast<std::size_t>(count))) {
  try {
    while (static_cast<Index>(threads_.size()) < count) {
      threads_.push_back(std::make_unique<DeviceThread>());
      Idle::instance().created();
    }
  } catch (...) {
    const std::size_t possible = threads_.size();
    Idle::instance().give_back(std::move(threads_));
    throw Error(cat("launch: ", count,
                    " devices need a thread each, the system gives this process ", possible));
  }
}

Crew::~Crew() { Idle::instance().give_back(std::move(threads_)); }

void Crew::start(std::vector<std::function<void()>> tasks) noexcept {
  for (std::size_t k = 0; k < tasks.size(); ++k) threads_[k]->give(std::move(tasks[k]));
}

}  // namespace kref::detail
