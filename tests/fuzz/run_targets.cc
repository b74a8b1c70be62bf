// SPDX-License-Identifier: Apache-2.0
// Targets that read what a run says of itself: metadata, mesh, partition specs.
#include <cstring>

#include "golden/collective_run.h"
#include "golden/judge.h"
#include "golden/operation.h"
#include "golden/run_metadata.h"
#include "sharding/matmul_placement.h"
#include "tests/fuzz/targets.h"

namespace kref::fuzz {
namespace {

void expect_message(const Error& e) {
  expect(*e.what() != '\0', "an empty message");
  expect(std::strchr(e.what(), '\n') == nullptr, "a message of several lines");
}

std::vector<std::string> lines_of(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> out(1);
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == '\n') {
      out.emplace_back();
    } else {
      out.back() += static_cast<char>(data[i]);
    }
  }
  return out;
}

Array ones(Index rows, Index columns) {
  const Index shape[] = {rows, columns};
  Array out(DType::kF32, shape);
  for (float& v : out.mutable_elements<float>()) v = 1;
  return out;
}

constexpr Index kM = 4, kK = 8, kN = 4;

// Refused with a message, or what the devices compute is what is expected.
void collective(Run& run) {
  run.in.emplace("x", ones(kM, kK));
  const Operation& operation = find_operation(run.op);
  try {
    // A mesh that validate refuses is not even read.
    const bool small = !run.mesh || run.mesh->device_count() <= kMaxRunDevices;
    if (small && run.op.ends_with(".vjp")) {
      const CollectiveRun read = read_collective(run);
      Array ct(read.y_dtype, read.y_shape);
      for (float& v : ct.mutable_elements<float>()) v = 1;
      run.in.emplace("ct.y", ct);
    }
    operation.validate(run, false);
  } catch (const Error& e) {
    expect_message(e);
    return;
  }
  constexpr Index kMostThreads = 16;
  if (run.mesh && run.mesh->device_count() > kMostThreads) return;
  run.out = operation.compute(run);
  operation.validate(run, true);
  for (const Expectation& expected : operation.expect(run)) {
    expect(judge(expected, run.out.at(expected.output)).ok(), "devices that compute another value");
  }
}

}  // namespace

void metadata(const std::uint8_t* data, std::size_t size) {
  Run run;
  run.origin = "input";
  run.metadata = {{"kref", "1"}, {"op", "matmul"}};
  for (const std::string& line : lines_of(data, size)) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    run.metadata[line.substr(0, equals)] = line.substr(equals + 1);
  }
  try {
    parse_metadata(run);
  } catch (const Error& e) {
    expect_message(e);
    expect(std::strncmp(e.what(), "input: ", 7) == 0, "a message that does not name the file");
    return;
  }
  // What was read is written so that it reads the same.
  Run again;
  again.origin = run.origin;
  again.metadata = metadata_of(run);
  parse_metadata(again);
  expect(again.op == run.op && again.set == run.set && again.mesh == run.mesh &&
             again.in_specs == run.in_specs && again.out_specs == run.out_specs,
         "metadata that is written as something else");
  if (collective_of(run.op)) return collective(run);
  if (run.op != "matmul") return;
  run.in.emplace("x", ones(kM, kK));
  run.in.emplace("y", ones(kK, kN));
  const Operation& operation = find_operation(run.op);
  try {
    operation.validate(run, false);
  } catch (const Error& e) {
    expect_message(e);
    return;
  }
  run.out = operation.compute(run);
  operation.validate(run, true);
  expect(run.out.at("z").at(0) > 0, "a product of ones that is none");
}

void specs(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> lines = lines_of(data, size);
  lines.resize(4);
  try {
    const Mesh mesh = Mesh::parse(lines[0]);
    expect(Mesh::parse(to_string(mesh)) == mesh, "a mesh that its own text does not give");
    const PartitionSpec x = PartitionSpec::parse(lines[1]), y = PartitionSpec::parse(lines[2]);
    const OutSpec z = OutSpec::parse(lines[3]);
    expect(PartitionSpec::parse(to_string(x)) == x, "a spec that its own text does not give");
    expect(OutSpec::parse(to_string(z)) == z, "an output spec that its own text does not give");
    const MatmulShape shape{.m = kM, .n = kN, .k = kK};
    const MatmulPlacement placement = place_matmul(mesh, shape, x, y, z);
    expect(!to_string(placement).empty(), "a placement without words");
    expect(placement.local.m > 0 && kM % placement.local.m == 0, "rows that are not shared out");
    check_runnable(mesh);
    Index summed = 0;
    for (const auto& part : contraction_parts(placement)) {
      for (const ContractionRange& range : part) summed += range.end - range.begin;
    }
    expect(summed == kK, "parts that are not the whole contraction");
  } catch (const Error& e) {
    expect_message(e);
  }
}

}  // namespace kref::fuzz
