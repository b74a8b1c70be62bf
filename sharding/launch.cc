// SPDX-License-Identifier: Apache-2.0
#include "sharding/launch.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "dsl/thread_share.h"
#include "dsl/threads.h"
#include "dsl/work_meter.h"
#include "sharding/device_threads.h"
#include "sharding/rendezvous.h"
#include "sharding/run_log.h"

namespace kref {
namespace {

using detail::Rendezvous;

// A launch within a body ends when that of the body does.
class Within {
 public:
  explicit Within(Rendezvous& inner) : inner_(inner), outer_(Rendezvous::current()) {
    if (outer_ != nullptr) outer_->adopt(&inner_);
  }
  ~Within() {
    if (outer_ != nullptr) outer_->disown(&inner_);
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Rendezvous& inner_;
  const std::shared_ptr<Rendezvous> outer_;
};

// What every device's thread does.
struct Run {
  void operator()(Index index) const {
    std::exception_ptr error;
    detail::Party* const before = state->enter(index);
    try {
      // What is left over goes to the first ones.
      const Index devices = mesh->device_count();
      const int count =
          std::max(1, static_cast<int>(threads / devices) + (index < threads % devices));
      const ThreadShare share(count, state->stop_signal());
      DeviceLog* const own =
          log == nullptr ? nullptr : &log->devices[static_cast<std::size_t>(index)];
      const MeterScope metered(own);
      const ShapesOnly shapes(shapes_only);
      Device device(*mesh, index, state->transport(index), count, own);
      (*body)(device);
    } catch (...) {
      error = std::current_exception();
    }
    Rendezvous::leave(before);
    state->end(index, std::move(error));
  }

  std::shared_ptr<Rendezvous> state;
  const Mesh* mesh;
  const std::function<void(Device&)>* body;
  Index threads;
  RunLog* log;
  bool shapes_only;
};

}  // namespace

void launch(const Mesh& mesh, const std::function<void(Device&)>& body,
            const LaunchOptions& options, CallSite where) {
  check_runnable(mesh);
  KREF_CHECK(body != nullptr, "launch at ", to_string(where), ": there is no body");
  KREF_CHECK(options.threads >= 0, "launch: ", options.threads, " threads, expected >= 0");
  if (options.log != nullptr) options.log->open(mesh);
  const auto state = std::make_shared<Rendezvous>(mesh, options, where);
  const Within within(*state);
  const Run run{.state = state,
                .mesh = &mesh,
                .body = &body,
                .threads = options.threads > 0 ? options.threads : threads(),
                .log = options.log,
                .shapes_only = detail::shapes_only()};
  if (mesh.device_count() == 1) {
    run(0);
  } else {
    std::vector<std::function<void()>> tasks;
    for (Index k = 0; k < mesh.device_count(); ++k) tasks.push_back([run, k] { run(k); });
    detail::Crew crew(mesh.device_count());
    crew.start(std::move(tasks));
    state->wait_for_all();
  }
  state->finish();
  if (options.log != nullptr) options.log->complete = true;
}

}  // namespace kref
