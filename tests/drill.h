// SPDX-License-Identifier: Apache-2.0
// Launches that are to fail.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "sharding/launch.h"
#include "tests/exchanges.h"
#include "tests/refusal.h"

namespace kref {

using Milliseconds = std::chrono::milliseconds;

// Every device of the mesh meets every other.
inline void check_usable(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  std::atomic<Index> good{0};
  launch(mesh, [&](Device& device) {
    const auto n = static_cast<std::int32_t>(mesh.device_count());
    const auto self = static_cast<std::int32_t>(device.index());
    good += summed(device, names, self) == n * (n - 1) / 2 ? 1 : 0;
  });
  CHECK(good == mesh.device_count());
}

// The message of the Error with which the launch ends: within a second beyond `limit`, whatever the
// devices do; and the mesh can be used after it.
inline std::string drill(const Mesh& mesh, const std::function<void(Device&)>& body,
                         Milliseconds limit = Milliseconds(0), LaunchOptions options = {}) {
  if (limit.count() > 0) options.time_limit = limit;
  const auto start = std::chrono::steady_clock::now();
  std::string message = refusal([&] { launch(mesh, body, options); });
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(took < limit + std::chrono::seconds(1));
  CHECK(took >= limit);
  check_usable(mesh);
  return message;
}

// "device_failure_test.cc:12" of the line on which it stands.
inline std::string here(CallSite where = CallSite::here()) { return to_string(where); }

inline std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

// Line of one device in the list below the first one, without its name; empty: not there.
inline std::string line_of(const std::string& message, const Mesh& mesh, Index device) {
  const std::string name = "\n  device " + mesh.device_name(device) + ": ";
  const std::size_t at = message.find(name);
  if (at == message.npos) return {};
  const std::size_t begin = at + name.size();
  return message.substr(begin, message.find('\n', begin) - begin);
}

}  // namespace kref
