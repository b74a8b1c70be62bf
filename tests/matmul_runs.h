// SPDX-License-Identifier: Apache-2.0
// The matmul runs of tests/runs, for tests that change their outputs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "golden/matmul_bound.h"
#include "golden/matmul_op.h"
#include "golden/run.h"

namespace kref {

struct MatmulFile {
  std::string name;
  Run run;
  Array z;
  MatmulTile tile;
  Index depth = 0;  // the extent that is summed over

  // Cuts the run into other tiles.
  void cut(const MatmulTile& by) {
    run.set["tile"] = {by.m, by.n, by.k};
    tile = by;
  }
};

// Every matmul run on one device below tests/runs, in the order of the names.
inline std::vector<MatmulFile> matmul_files() {
  const std::filesystem::path folder = std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs";
  std::vector<MatmulFile> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    MatmulFile file;
    file.name = entry.path().stem().string();
    file.run = read_run(entry.path().string());
    if (file.run.op != "matmul" || file.run.mesh) continue;
    const MatmulRun request = read_matmul(file.run);
    file.z = file.run.out.at("z");
    file.tile = {request.tile[0], request.tile[1], request.tile[2]};
    file.depth = request.k;
    out.push_back(std::move(file));
  }
  std::sort(out.begin(), out.end(),
            [](const MatmulFile& a, const MatmulFile& b) { return a.name < b.name; });
  return out;
}

}  // namespace kref
