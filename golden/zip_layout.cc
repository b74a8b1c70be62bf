// SPDX-License-Identifier: Apache-2.0
// Field offsets are those of PKWARE's APPNOTE 6.3, sections 4.3.7 (local header), 4.3.9 (data
// descriptor), 4.3.12 (directory), 4.3.14 to 4.3.16 (end records), 4.5.3 (zip64 sizes).
#include "golden/zip_layout.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "dsl/check.h"

namespace kref {
namespace {

constexpr std::uint32_t kNarrowMax = 0xFFFFFFFF;                 // "see the zip64 field"
constexpr std::uint16_t kStreamed = 1 << 3;                      // sizes follow the data
constexpr std::uint16_t kSharedFlags = 1 | kStreamed | 1 << 13;  // must agree: encryption, too

// Little-endian numbers at offsets that are checked.
class Bytes {
 public:
  explicit Bytes(const FileBytes& file) : file_(file) {}

  void need(std::uint64_t offset, std::uint64_t count, const char* what) const {
    KREF_CHECK(offset <= file_.size && count <= file_.size - offset, file_.path,
               ": zip archive ends inside ", what);
  }
  template <class T>
  T at(std::uint64_t offset) const {
    need(offset, sizeof(T), "a record");
    T value;
    std::memcpy(&value, file_.data + offset, sizeof(T));
    return value;
  }
  std::uint16_t u16(std::uint64_t offset) const { return at<std::uint16_t>(offset); }
  std::uint32_t u32(std::uint64_t offset) const { return at<std::uint32_t>(offset); }
  std::uint64_t u64(std::uint64_t offset) const { return at<std::uint64_t>(offset); }

 private:
  const FileBytes& file_;
};

constexpr std::uint32_t kLocalHeader = 0x04034b50, kEntry = 0x02014b50, kDescriptor = 0x08074b50;
constexpr std::uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;

struct Directory {
  std::uint64_t begin, end, count;
};

Directory find_directory(const FileBytes& file, const Bytes& bytes) {
  constexpr std::uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56,
                          kLongestComment = 0xFFFF;
  const std::string_view text(reinterpret_cast<const char*>(file.data), file.size);
  const std::size_t signature = text.rfind(std::string_view("PK\5\6", 4));
  KREF_CHECK(signature != std::string_view::npos && file.size - signature >= kEndBytes, file.path,
             ": zip archive has no end record");
  const std::uint64_t end = signature;
  // An earlier one whose comment would hold this one: readers would disagree on which counts.
  const std::uint64_t comment = bytes.u16(end + 20);
  KREF_CHECK(end + kEndBytes + comment == file.size, file.path,
             ": zip archive has trailing bytes after its end record");
  for (std::uint64_t at = end; at-- > 0 && end - at <= kLongestComment;) {
    if (bytes.u32(at) != kEnd || file.size - at < kEndBytes) continue;
    KREF_CHECK(at + kEndBytes + bytes.u16(at + 20) != file.size, file.path,
               ": zip archive has two end records, one in the comment of the other");
  }

  Directory out{bytes.u32(end + 16), 0, bytes.u16(end + 10)};
  out.end = out.begin + bytes.u32(end + 12);
  std::uint64_t follows = end;  // what the directory must reach up to
  if (end >= kLocatorBytes && bytes.u32(end - kLocatorBytes) == kLocator64) {
    const std::uint64_t locator = end - kLocatorBytes;
    const std::uint64_t record = bytes.u64(locator + 8);
    KREF_CHECK(record <= locator && locator - record >= kEnd64Bytes &&
                   bytes.u32(record) == kEnd64 && bytes.u64(record + 4) == locator - record - 12,
               file.path, ": zip archive has a broken zip64 end record");
    const std::uint64_t size = bytes.u64(record + 40);
    out.begin = bytes.u64(record + 48);
    out.count = bytes.u64(record + 32);
    KREF_CHECK(out.begin <= file.size && size <= file.size, file.path,
               ": zip directory lies outside the archive");
    out.end = out.begin + size;
    follows = record;
  }
  KREF_CHECK(out.begin <= out.end && out.end == follows, file.path, ": zip directory ends at ",
             out.end, ", expected at its end record at ", follows);
  return out;
}

// The entry at `at`, which is moved past it.
ZipMember read_entry(const FileBytes& file, const Bytes& bytes, std::uint64_t& at) {
  bytes.need(at, 46, "its directory");
  KREF_CHECK(bytes.u32(at) == kEntry, file.path, ": zip directory is broken at byte ", at);
  ZipMember m;
  m.flags = bytes.u16(at + 8);
  m.method = bytes.u16(at + 10);
  m.crc = bytes.u32(at + 16);
  m.compressed = bytes.u32(at + 20);
  m.size = bytes.u32(at + 24);
  m.header = bytes.u32(at + 42);
  const std::uint64_t name_bytes = bytes.u16(at + 28);
  bytes.need(at + 46, name_bytes, "its directory");
  // A C string, which libzip hands out, would end there.
  KREF_CHECK(name_bytes == 0 || std::memchr(file.data + at + 46, 0, name_bytes) == nullptr,
             file.path, ": zip member name with a NUL in it");
  std::uint64_t extra = at + 46 + name_bytes;
  const std::uint64_t extra_end = extra + bytes.u16(at + 30);
  at = extra_end + bytes.u16(at + 32);
  while (extra + 4 <= extra_end) {
    std::uint64_t field = extra + 4;
    const std::uint16_t id = bytes.u16(extra);
    extra = field + bytes.u16(extra + 2);
    if (id != 1) continue;
    for (std::uint64_t* const value : {&m.size, &m.compressed, &m.header}) {
      if (*value != kNarrowMax) continue;
      KREF_CHECK(field + 8 <= extra && extra <= extra_end, file.path,
                 ": zip directory has a short zip64 field");
      *value = bytes.u64(field);
      field += 8;
    }
  }
  return m;
}

// True when the bytes between a streamed member and what follows are its data descriptor: with or
// without signature, with sizes of 4 or 8 bytes.
bool is_descriptor(const Bytes& bytes, const ZipMember& m, std::uint64_t at, std::uint64_t length) {
  if (length == 16 || length == 24) {
    if (bytes.u32(at) != kDescriptor) return false;
    at += 4, length -= 4;
  }
  if (length == 12)
    return bytes.u32(at) == m.crc && bytes.u32(at + 4) == m.compressed &&
           bytes.u32(at + 8) == m.size;
  return length == 20 && bytes.u32(at) == m.crc && bytes.u64(at + 4) == m.compressed &&
         bytes.u64(at + 12) == m.size;
}

}  // namespace

std::vector<ZipMember> zip_layout(const FileBytes& file) {
  const Bytes bytes(file);
  const Directory directory = find_directory(file, bytes);
  std::vector<ZipMember> members;
  std::uint64_t at = directory.begin;
  while (at < directory.end) members.push_back(read_entry(file, bytes, at));
  KREF_CHECK(at == directory.end && members.size() == directory.count, file.path,
             ": zip directory has ", members.size(), " entries, its end record says ",
             directory.count);

  std::vector<ZipMember*> order;
  for (ZipMember& m : members) order.push_back(&m);
  std::sort(order.begin(), order.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->header < b->header; });
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    ZipMember& m = *order[i];
    KREF_CHECK(m.header == covered, file.path, ": zip member at byte ", m.header,
               m.header < covered ? " overlaps the one before, which ends at "
                                  : " follows a hole: the one before ends at ",
               covered);
    const std::uint64_t next = i + 1 < order.size() ? order[i + 1]->header : directory.begin;
    bytes.need(m.header, 30, "a local header");
    KREF_CHECK(bytes.u32(m.header) == kLocalHeader, file.path, ": no zip member at byte ",
               m.header);
    KREF_CHECK(((bytes.u16(m.header + 6) ^ m.flags) & kSharedFlags) == 0, file.path,
               ": zip member at byte ", m.header,
               ": flags of its local header and of the directory differ");
    m.data = m.header + 30 + bytes.u16(m.header + 26) + bytes.u16(m.header + 28);
    bytes.need(m.data, m.compressed, "a member");
    covered = m.data + m.compressed;
    if ((m.flags & kStreamed) == 0) continue;
    KREF_CHECK(
        next >= covered && next - covered <= 24 && is_descriptor(bytes, m, covered, next - covered),
        file.path, ": zip member at byte ", m.header,
        " has no data descriptor that agrees with the directory");
    covered = next;
  }
  KREF_CHECK(covered == directory.begin, file.path, ": zip members end at byte ", covered,
             ", the directory starts at ", directory.begin,
             covered < directory.begin ? ": a hole" : ": an overlap");
  return members;
}

}  // namespace kref
