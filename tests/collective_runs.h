// SPDX-License-Identifier: Apache-2.0
// Runs of collectives for tests: made by hand, or those of tests/runs/collectives.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "golden/operation.h"

namespace kref {

// Values i * 7 % 23 - 5 and so on: small integers, no two neighbours alike; none below 0 where the
// type has no sign.
inline Array small_integers(DType dtype, const std::vector<Index>& shape, Index seed = 0) {
  Array out(dtype, shape);
  const Index size = out.size();
  with_dtype(dtype, [&]<class T>() {
    T* to = out.mutable_elements<T>().data();
    for (Index i = 0; i < size; ++i) {
      const Index v = ((i + seed) * 7 + i * i % 5) % 23;
      if constexpr (std::is_same_v<T, bool>) {
        to[i] = v % 3 != 0;
      } else if constexpr (std::is_unsigned_v<T>) {
        to[i] = static_cast<T>(v);
      } else {
        to[i] = static_cast<T>(static_cast<float>(v % 15 - 5));
      }
    }
  });
  return out;
}

struct Placed {
  const char* mesh = "X=4";
  const char *in = "X", *out = "X";  // as on the command line
};

// A run without outputs.
inline Run collective_run(const std::string& op, const char* set, const Placed& placed,
                          const Array& x) {
  Run run;
  run.origin = "run";
  run.op = op;
  run.set = nlohmann::json::parse(set);
  run.mesh = Mesh::parse(placed.mesh);
  run.in_specs["x"] = PartitionSpec::parse(placed.in);
  run.out_specs["y"] = OutSpec::parse(placed.out);
  run.in["x"] = x;
  return run;
}

// Those of tests/runs/collectives, or of a folder in it, by path.
inline std::vector<std::string> collective_files(const char* folder = "") {
  std::vector<std::string> out;
  const std::string root = std::string(std::getenv("KREF_SOURCE_ROOT"));
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/tests/runs/collectives/" + folder)) {
    if (entry.path().extension() == ".safetensors") out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kref
