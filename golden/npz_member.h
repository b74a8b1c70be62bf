// SPDX-License-Identifier: Apache-2.0
// A member of a .npz archive, stored or deflated. Not for users: array_file.h is.
#pragma once

#include <string>

#include "golden/array_file.h"
#include "golden/file_bytes.h"
#include "golden/zip_layout.h"

namespace kref {

// The array of a member: its type and shape from the header, which is all that is inflated. The
// elements, with the size and the checksum of the whole member, are left for when they are asked
// for. Error, starting with `origin`, when the header or what the directory says is wrong.
FileArray read_npz_member(const std::string& origin, const FileBytes& file, const ZipMember& m);

}  // namespace kref
