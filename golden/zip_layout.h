// SPDX-License-Identifier: Apache-2.0
// Where the members of a zip archive lie. libzip, which judges the directory, does not tell:
// without it neither bytes that belong to no member nor shared ones can be found, and no member be
// viewed in place. Not for users.
#pragma once

#include <cstdint>
#include <vector>

#include "golden/file_bytes.h"

namespace kref {

struct ZipMember {
  std::uint16_t flags = 0, method = 0;
  std::uint32_t crc = 0;
  std::uint64_t compressed = 0, size = 0;  // bytes in the archive, and of the member
  std::uint64_t header = 0;                // offset of the local header
  std::uint64_t data = 0;                  // offset of the compressed bytes
};

// The members in the order of the directory. Error when the archive's bytes are not exactly: one
// member after the other (with its data descriptor when it was streamed), the directory, the zip64
// end record if any, the end record, the archive's comment.
std::vector<ZipMember> zip_layout(const FileBytes& file);

}  // namespace kref
