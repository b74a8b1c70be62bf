// SPDX-License-Identifier: Apache-2.0
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kref::fuzz::npz(data, size);
  return 0;
}

namespace {

struct Member {
  std::string name;
  std::vector<std::uint8_t> bytes;
};

std::vector<Member> members_of(const std::uint8_t* data, std::size_t size) {
  std::vector<Member> out;
  zip_source_t* const source = zip_source_buffer_create(data, size, 0, nullptr);
  zip_t* const archive = zip_open_from_source(source, ZIP_RDONLY, nullptr);
  if (archive == nullptr) {
    zip_source_free(source);
    return out;
  }
  for (zip_int64_t i = 0; i < std::min<zip_int64_t>(zip_get_num_entries(archive, 0), 8); ++i) {
    const auto at = static_cast<zip_uint64_t>(i);
    const char* const name = zip_get_name(archive, at, 0);
    zip_file_t* const file = zip_fopen_index(archive, at, 0);
    if (name != nullptr && file != nullptr) {
      std::vector<std::uint8_t> bytes(1 << 14);
      const zip_int64_t n = zip_fread(file, bytes.data(), bytes.size());
      bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      out.push_back({name, std::move(bytes)});
    }
    if (file != nullptr) zip_fclose(file);
  }
  zip_discard(archive);
  return out;
}

// Size of the archive written to `data`; 0 when it does not fit.
std::size_t archive_of(const std::vector<Member>& members, bool deflate, std::uint8_t* data,
                       std::size_t most) {
  zip_source_t* const source = zip_source_buffer_create(nullptr, 0, 0, nullptr);
  zip_source_keep(source);
  zip_t* const archive = zip_open_from_source(source, ZIP_TRUNCATE, nullptr);
  for (const Member& m : members) {
    zip_source_t* const content = zip_source_buffer(archive, m.bytes.data(), m.bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, m.name.c_str(), content, 0);
    if (index < 0) {
      zip_source_free(content);
    } else {
      zip_set_file_compression(archive, static_cast<zip_uint64_t>(index),
                               deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    }
  }
  std::size_t size = 0;
  if (zip_close(archive) != 0) {
    zip_discard(archive);
  } else if (zip_source_open(source) == 0) {
    const zip_int64_t n = zip_source_read(source, data, most);
    std::uint8_t more;
    size = n > 0 && zip_source_read(source, &more, 1) == 0 ? static_cast<std::size_t>(n) : 0;
    zip_source_close(source);
  }
  zip_source_free(source);
  return size;
}

}  // namespace

// A changed byte in a member would end at its checksum: every other time a member is mutated and
// the archive is written anew round it.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned int seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  std::vector<Member> members = members_of(data, size);
  if (members.empty()) return LLVMFuzzerMutate(data, size, most);
  Member& m = members[(seed >> 2) % members.size()];
  const std::size_t used = m.bytes.size();
  m.bytes.resize(used + 256);
  m.bytes.resize(LLVMFuzzerMutate(m.bytes.data(), used, m.bytes.size()));
  const std::size_t written = archive_of(members, (seed & 2) != 0, data, most);
  return written > 0 ? written : LLVMFuzzerMutate(data, size, most);
}
