// SPDX-License-Identifier: Apache-2.0
#include "dsl/block_spec.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("an axis expression is axis / d % m * s + o, evaluated and printed in that order") {
  const Axis i{.id = 0, .size = 30, .grid = 1, .name = "i"};
  CHECK(AxisExpr(i).text() == "i");
  CHECK((i / 3 % 4 * 5 + 6).text() == "i / 3 % 4 * 5 + 6");
  CHECK((i * -1 + 29).text() == "i * -1 + 29");
  CHECK((i - 1).text() == "i - 1");
  CHECK((2 * AxisExpr(i) + 1 - 4).text() == "i * 2 - 3");
  CHECK((1 + AxisExpr(i)).text() == "i + 1");
  CHECK(AxisExpr(7).text() == "7");
  for (const Index d : {1, 2, 3, 7}) {
    for (const Index m : {1, 2, 5, 100}) {
      for (const Index s : {-3, 0, 1, 4}) {
        for (const Index o : {-2, 0, 9}) {
          const AxisExpr e = i / d % m * s + o;
          for (Index c = 0; c < i.size; ++c) CHECK(e(&c) == c / d % m * s + o);
        }
      }
    }
  }
}

TEST_CASE("expressions of constants are constants") {
  const AxisExpr e = AxisExpr(29) / 3 % 4 * 5 + 6;
  CHECK(e.constant());
  CHECK(e.text() == "11");
  CHECK(e(nullptr) == 29 / 3 % 4 * 5 + 6);
}

TEST_CASE("any other order is refused where it is built") {
  const Axis i{.id = 0, .size = 30, .grid = 1, .name = "i"};
  const auto refused = [](auto&& build) {
    return refusal(build).find("each part once and in this order") != std::string::npos;
  };
  CHECK(refused([&] { (void)(i % 2 / 2); }));
  CHECK(refused([&] { (void)(i / 2 / 2); }));
  CHECK(refused([&] { (void)(i * 2 / 2); }));
  CHECK(refused([&] { (void)(i * 2 % 2); }));
  CHECK(refused([&] { (void)(i * 2 * 2); }));
  CHECK(refused([&] { (void)((i + 2) / 2); }));
  CHECK(refused([&] { (void)((i + 2) % 2); }));
  CHECK(refused([&] { (void)((i + 2) * 2); }));
  CHECK_FALSE(refused([&] { (void)(i + 2 + 2 - 1); }));
}

TEST_CASE("range: the quick answer is never wrong, the exact one is exact") {
  const Axis i{.id = 0, .size = 13, .grid = 1, .name = "i"};
  int certain = 0;
  for (const Index d : {1, 2, 20}) {
    for (const Index m : {1, 3, 50}) {
      for (const Index s : {-2, 0, 1, 3}) {
        for (const Index o : {-1, 0, 5, 8}) {
          for (const Index limit : {1, 5, 9, 40}) {
            const AxisExpr e = i / d % m * s + o;
            bool all = true;
            for (Index c = 0; c < i.size; ++c) {
              const bool in = e(&c) >= 0 && e(&c) < limit;
              CHECK(e.within(c, limit) == in);
              all = all && in;
            }
            if (e.surely_within(i.size, limit)) {
              CHECK(all);
              ++certain;
            }
          }
        }
      }
    }
  }
  CHECK(certain > 50);
}

TEST_CASE("an index that does not fit into 64 bits is out of range, not wrapped") {
  const Axis i{.id = 0, .size = 5, .grid = 1, .name = "i"};
  const Index huge = std::numeric_limits<Index>::max();
  CHECK_FALSE((i * huge).within(4, huge));
  CHECK_FALSE((i * (Index{1} << 62)).within(4, huge));  // 2^64 would wrap to 0
  CHECK_FALSE((i * (Index{1} << 62)).surely_within(5, huge));
  CHECK_FALSE((i * huge + huge).within(1, huge));
  CHECK((i * (huge / 5)).within(4, huge));
}

}  // namespace
}  // namespace kref
