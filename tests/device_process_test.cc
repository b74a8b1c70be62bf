// SPDX-License-Identifier: Apache-2.0
// The threads of devices as the system sees them: kept, refused, forked away, ended with the
// process. Not for sanitizers, which need the address space that is taken away here.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/drill.h"

namespace kref {
namespace {

// A number of /proc/self/status: "Threads", "VmSize" (kB).
long status(const char* name) {
  long value = -1;
  std::FILE* f = std::fopen("/proc/self/status", "r");
  REQUIRE(f != nullptr);
  char line[256];
  const std::string format = std::string(name) + ": %ld";
  while (std::fgets(line, sizeof line, f) != nullptr &&
         std::sscanf(line, format.c_str(), &value) != 1) {
  }
  std::fclose(f);
  return value;
}

// What a forked process exits with that runs f; -1 when it had to be killed.
template <class F>
int exit_status(F&& f) {
  std::fflush(stdout);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(10);
    f();
    _exit(0);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

bool sums_up(const char* text) {
  std::atomic<int> good{0};
  const Mesh mesh = Mesh::parse(text);
  launch(mesh,
         [&](Device& device) { good += summed(device, "X", 1) == device.axis_size("X") ? 1 : 0; });
  return good == mesh.device_count();
}

TEST_CASE("threads are kept for the next launch, and are no more than its devices") {
  CHECK(sums_up("X=8"));
  const long before = status("Threads");
  CHECK(before >= 9);
  for (int round = 0; round < 20; ++round) {
    CHECK(sums_up("X=8"));
    CHECK(sums_up("X=3"));
  }
  CHECK(refusal([] {
          launch(Mesh::parse("X=8"), [](Device& device) { throw Error(device.name()); });
        }).find("device (X=0): (X=0)") != std::string::npos);
  CHECK(sums_up("X=8"));
  CHECK(status("Threads") == before);
}

TEST_CASE("case L139: more devices than the system gives threads are refused with both numbers") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit less{static_cast<rlim_t>(status("VmSize")) * 1024 + (rlim_t{256} << 20),
                    before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &less) == 0);
  for (int round = 0; round < 2; ++round) {
    const std::string message = refusal(
        [] { launch(Mesh::parse("X=1000"), [](Device& device) { summed(device, "X", 1); }); });
    int possible = 0;
    CHECK(std::sscanf(message.c_str(),
                      "launch: 1000 devices need a thread each, the system gives this process %d",
                      &possible) == 1);
    CHECK(possible >= 1);
    CHECK(possible < 1000);
    CHECK(sums_up("X=8"));
  }
  setrlimit(RLIMIT_AS, &before);
  CHECK(sums_up("X=200"));
}

TEST_CASE("a forked process has threads of its own") {
  CHECK(sums_up("X=4"));
  CHECK(exit_status([] { _exit(sums_up("X=4") && sums_up("X=6") ? 7 : 1); }) == 7);
  CHECK(sums_up("X=4"));
}

TEST_CASE("a process can exit from within a body, and with threads that have nothing to do") {
  CHECK(exit_status([] {
          launch(Mesh::parse("X=4"), [](Device& device) {
            if (device.index() == 2) std::exit(5);
            summed(device, "X", 1);
          });
        }) == 5);
  CHECK(exit_status([] {
          sums_up("X=4");
          std::exit(6);
        }) == 6);
}

}  // namespace
}  // namespace kref
