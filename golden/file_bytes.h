// SPDX-License-Identifier: Apache-2.0
// The bytes of files, in and out.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dsl/array.h"

namespace kref {

// A whole file in memory: read when small, else mapped.
struct FileBytes {
  std::string path;                   // as given, for messages
  std::shared_ptr<const void> owner;  // keeps `data` alive
  const unsigned char* data = nullptr;
  std::size_t size = 0;
  bool mapped = false;
};

// From this many bytes on a file is mapped, and an array viewed in it rather than copied.
inline constexpr std::size_t kMapBytes = std::size_t{1} << 20;

// Error when the file cannot be read or is no regular file. A mapped file must not be shortened
// while it is in use: reading what is gone ends the process (mapped_files.h: with a message).
FileBytes read_file(const std::string& path);

// A file that appears under its name only when it is complete: written beside it under another
// name, which is removed unless commit() was reached. A device or a pipe is written directly.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Error when not every byte could be written, e.g. on a full disk.
  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_;       // as given
  std::string target_;     // where the file goes, symbolic links resolved
  std::string temporary_;  // "" when written directly
  int fd_ = -1;
};

// The elements of `array` row-major and without gaps: its own bytes where they are, else a copy.
struct DenseBytes {
  std::shared_ptr<const void> owner;  // null for the array's own bytes
  const void* data = nullptr;
  std::size_t size = 0;
};
DenseBytes dense_bytes(const ArrayRef& array);

}  // namespace kref
