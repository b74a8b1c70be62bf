// SPDX-License-Identifier: Apache-2.0
#include "golden/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "dsl/tensor.h"
#include "golden/mapped_files.h"

namespace kref {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

FileBytes read_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to would hang.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  KREF_CHECK(file.fd >= 0, path, ": cannot be opened: ", reason(errno));
  struct stat status {};
  KREF_CHECK(::fstat(file.fd, &status) == 0, path, ": cannot be read: ", reason(errno));
  KREF_CHECK(!S_ISDIR(status.st_mode), path, ": is a directory, expected a file");
  KREF_CHECK(S_ISREG(status.st_mode), path,
             ": is not a regular file (a pipe or device), expected a file");

  FileBytes out;
  out.path = path;
  out.size = static_cast<std::size_t>(status.st_size);
  if (out.size >= kMapBytes) {
    out.owner = map_file(file.fd, out.size, path);
    KREF_CHECK(out.owner != nullptr, path, ": cannot be mapped into memory: ", reason(errno));
    out.data = static_cast<const unsigned char*>(out.owner.get());
    out.mapped = true;
    return out;
  }
  detail::Bytes memory = detail::allocate(out.size);
  auto* const p = static_cast<unsigned char*>(memory.get());
  for (std::size_t done = 0; done < out.size;) {
    const ::ssize_t n = ::read(file.fd, p + done, out.size - done);
    if (n < 0 && errno == EINTR) continue;
    KREF_CHECK(n >= 0, path, ": cannot be read: ", reason(errno));
    KREF_CHECK(n > 0, path, ": ends after ", done, " bytes, its size was ", out.size);
    done += static_cast<std::size_t>(n);
  }
  out.data = p;
  out.owner = std::shared_ptr<const void>(std::move(memory));
  return out;
}

FileWriter::FileWriter(const std::string& path) : path_(path), target_(path) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  KREF_CHECK(!exists || !S_ISDIR(status.st_mode), path,
             ": is a directory, expected a file to write");
  if (exists && !S_ISREG(status.st_mode)) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail("cannot be written", errno);
    return;
  }
  if (exists) {
    // The file that a link names is replaced, not the link; and one that may not be written stays.
    if (::access(path.c_str(), W_OK) != 0) fail("cannot be written", errno);
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    if (error) fail("cannot be written", error.value());
    target_ = real.string();
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
    temporary_ = target_ + ".part" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) fail("cannot be written", errno);
  }
  if (fd_ < 0) fail("cannot be written", EEXIST);
  if (exists) ::fchmod(fd_, status.st_mode & 07777);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const ::ssize_t n = ::write(fd_, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot be written", n < 0 ? errno : ENOSPC);
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void FileWriter::commit() {
  // Some file systems report a full disk only on close.
  const int fd = fd_;
  fd_ = -1;
  int error = ::close(fd) != 0 ? errno : 0;
  if (error == 0 && !temporary_.empty() && ::rename(temporary_.c_str(), target_.c_str()) != 0)
    error = errno;
  if (error != 0) {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    fail("cannot be written", error);
  }
}

void FileWriter::fail(const char* what, int error) const {
  throw Error(detail::cat(path_, ": ", what, ": ", reason(error)));
}

DenseBytes dense_bytes(const ArrayRef& array) {
  const std::size_t item = size_of(array.dtype);
  const auto count = static_cast<std::size_t>(array.size());
  DenseBytes out{nullptr, array.data, count * item};
  bool dense = true;
  for (std::size_t d = array.rank, stride = 1; d-- > 0;) {
    const Index extent = array.extents[d];
    dense = dense && (extent == 1 || array.strides[d] == static_cast<Index>(stride));
    stride *= static_cast<std::size_t>(extent);
  }
  if (dense || count == 0) return out;

  detail::Bytes memory = detail::allocate(out.size);
  auto* to = static_cast<unsigned char*>(memory.get());
  const auto* const from = static_cast<const unsigned char*>(array.data);
  Shape<kMaxRank> at{};  // not rank 0, which is dense
  const std::size_t last = array.rank - 1;
  for (bool more = true; more;) {
    Index offset = 0;
    for (std::size_t d = 0; d < last; ++d) offset += at[d] * array.strides[d];
    for (Index i = 0; i < array.extents[last]; ++i, to += item) {
      std::memcpy(to, from + (offset + i * array.strides[last]) * static_cast<Index>(item), item);
    }
    more = false;
    for (std::size_t d = last; d-- > 0 && !more;) {
      more = ++at[d] < array.extents[d];
      if (!more) at[d] = 0;
    }
  }
  out.data = memory.get();
  out.owner = std::shared_ptr<const void>(std::move(memory));
  return out;
}

}  // namespace kref
