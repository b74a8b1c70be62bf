// SPDX-License-Identifier: Apache-2.0
// Files that are mapped into memory. When somebody shortens such a file while it is in use, reading
// what is gone raises SIGBUS, which no return value can stand for: the command ends with a message.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace kref {

// Maps `bytes` > 0 bytes of an open file for reading; null, with errno set, when that fails. Keeps
// `path` for the message for as long as the mapping lives.
std::shared_ptr<const void> map_file(int descriptor, std::size_t bytes, const std::string& path);

// From here on a process that reads a mapped file past its present end says so on standard error,
// in one line that names the file, and exits with `status`. A SIGBUS for any other reason ends it
// as ever.
void end_on_shortened_files(int status);

}  // namespace kref
