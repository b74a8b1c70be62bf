// SPDX-License-Identifier: Apache-2.0
// A system that gives fewer threads than are asked for. Not for sanitizers, which need the address
// space that is taken away here.
#include <doctest/doctest.h>
#include <omp.h>
#include <sys/resource.h>

#include <cstdio>

#include "dsl/grid.h"
#include "dsl/threads.h"
#include "tests/refusal.h"

namespace kref {
namespace {

// Leaves the process that much more address space than it has.
class AddressSpace {
 public:
  explicit AddressSpace(rlim_t more) {
    getrlimit(RLIMIT_AS, &before_);
    unsigned long pages = 0;
    std::FILE* f = std::fopen("/proc/self/statm", "r");
    REQUIRE(f != nullptr);
    REQUIRE(std::fscanf(f, "%lu", &pages) == 1);
    std::fclose(f);
    const rlimit now{pages * 4096 + more, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

struct Restored {
  int usual = omp_get_max_threads();
  ~Restored() {
    set_threads(0);
    omp_set_num_threads(usual);
  }
};

// A grid of 4000 points; the number of elements that it has not set.
int run_points() {
  Tensor<std::int32_t, 1> z({4000}, 0);
  Grid grid("many");
  const Axis i = grid.parallel("i", 4000);
  const auto zb = grid.out("z", z, {.block = {1}, .index = {i}});
  grid.run([&](const Step& s) { s[zb](0) = static_cast<std::int32_t>(s.index(i)); });
  int wrong = 0;
  for (Index e = 0; e < z.size(); ++e) wrong += z(e) == e ? 0 : 1;
  return wrong;
}

TEST_CASE("threads that the system does not give are refused with both numbers; fewer still work") {
  const Restored restored;
  for (int round = 0; round < 3; ++round) {
    const AddressSpace limit(rlim_t{256} << 20);
    set_threads(2000);
    const std::string message = refusal([] { run_points(); });
    int possible = 0;
    REQUIRE(std::sscanf(message.c_str(),
                        "grid 'many': 2000 threads were asked for, the system gives this process "
                        "%d",
                        &possible) == 1);
    CHECK(possible >= 1);
    CHECK(possible < 2000);
    set_threads(2);
    CHECK(run_points() == 0);
  }
}

TEST_CASE("as many threads as there are, where nobody asked for a number") {
  const Restored restored;
  const AddressSpace limit(rlim_t{256} << 20);
  omp_set_num_threads(2000);
  CHECK(run_points() == 0);
  CHECK(run_points() == 0);
}

TEST_CASE("more threads than there were, where the system gives them") {
  const Restored restored;
  for (const int count : {3, 20, 2, 40}) {
    set_threads(count);
    CHECK(run_points() == 0);
  }
}

}  // namespace
}  // namespace kref
