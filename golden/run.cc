// SPDX-License-Identifier: Apache-2.0
#include "golden/run.h"

#include "golden/array_file.h"
#include "golden/file_text.h"
#include "golden/run_metadata.h"

namespace kref {
namespace {

constexpr std::string_view kIn = "in.", kOut = "out.";

}  // namespace

Run read_run(const std::string& path) {
  const ArrayFile file = read_array_file(path);
  KREF_CHECK(file.format == ArrayFile::Format::kSafetensors, path, ": not a run file: it is ",
             file.format == ArrayFile::Format::kNpy ? ".npy" : ".npz",
             ", expected safetensors; separate arrays are given as OP --in NAME=FILE");
  Run run;
  run.origin = path;
  run.metadata = file.metadata;
  parse_metadata(run);
  for (const FileArray& array : file.arrays) {
    const std::string& name = array.name;
    const bool in = name.starts_with(kIn);
    const std::size_t prefix = in ? kIn.size() : kOut.size();
    KREF_CHECK((in || name.starts_with(kOut)) && name.size() > prefix, path, ": unknown tensor ",
               quote(name), ", expected in.NAME or out.NAME");
    (in ? run.in : run.out).emplace(name.substr(prefix), array.array());
  }
  return run;
}

void write_run(const std::string& path, const Run& run) {
  std::vector<NamedArray> arrays;
  for (const auto& [name, array] : run.in) arrays.push_back({std::string(kIn) + name, array.ref()});
  for (const auto& [name, array] : run.out)
    arrays.push_back({std::string(kOut) + name, array.ref()});
  write_safetensors(path, arrays, metadata_of(run));
}

}  // namespace kref
