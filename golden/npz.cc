// SPDX-License-Identifier: Apache-2.0
// The .npz format: a zip archive of .npy members. libzip judges the archive (ZIP_CHECKCONS:
// directory against local headers, duplicate names) and decodes the names. The members are read
// here, since libzip tells neither where they lie nor whether bytes remain after a compressed
// stream.
#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_set>

#include "dsl/tensor.h"
#include "golden/array_format.h"
#include "golden/file_text.h"
#include "golden/zip_layout.h"

namespace kref {
namespace {

constexpr std::string_view kSuffix = ".npy";

struct CloseArchive {
  void operator()(zip_t* z) const { zip_discard(z); }
};
using Archive = std::unique_ptr<zip_t, CloseArchive>;

struct FreeSource {
  void operator()(zip_source_t* s) const { zip_source_free(s); }
};
using Source = std::unique_ptr<zip_source_t, FreeSource>;

struct ZipError {
  zip_error_t error;
  ZipError() { zip_error_init(&error); }
  ~ZipError() { zip_error_fini(&error); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;
  const char* text() { return zip_error_strerror(&error); }
};

// Inflates a raw deflate stream piece by piece and sums up its checksum.
class Inflater {
 public:
  Inflater(const std::string& origin, const unsigned char* data, std::uint64_t bytes)
      : origin_(origin), left_(bytes) {
    stream_.next_in = const_cast<Bytef*>(data);
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // The next `bytes` bytes, all of which must come.
  void read(unsigned char* to, std::size_t bytes) {
    const std::size_t got = inflate_some(to, bytes);
    KREF_CHECK(got == bytes, origin_,
               ": inflates to fewer bytes than the zip directory says: ", bytes - got,
               " are missing");
    crc_ = crc32_z(crc_, to, bytes);
  }
  // Nothing may follow, neither inflated nor compressed. The checksum of all that was read.
  std::uint32_t finish() {
    unsigned char extra = 0;
    KREF_CHECK(inflate_some(&extra, 1) == 0, origin_,
               ": inflates to more bytes than the zip directory says");
    KREF_CHECK(left_ + stream_.avail_in == 0, origin_, ": ", left_ + stream_.avail_in,
               " trailing bytes after its deflate stream");
    return static_cast<std::uint32_t>(crc_);
  }

 private:
  // Up to `bytes` bytes, fewer only at the end of the stream.
  std::size_t inflate_some(unsigned char* to, std::size_t bytes) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits
    std::size_t done = 0;
    while (!ended_) {
      if (stream_.avail_in == 0) {
        stream_.avail_in = static_cast<uInt>(std::min<std::uint64_t>(left_, kMost));
        left_ -= stream_.avail_in;
      }
      stream_.next_out = to + done;
      const auto room = static_cast<uInt>(std::min(bytes - done, kMost));
      stream_.avail_out = room;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      ended_ = code == Z_STREAM_END;
      const bool hungry = stream_.avail_in == 0 && left_ == 0 && stream_.avail_out > 0;
      KREF_CHECK(
          ended_ || ((code == Z_OK || code == Z_BUF_ERROR) && !hungry), origin_,
          ": corrupt deflate stream: ", stream_.msg != nullptr ? stream_.msg : "it is cut short");
      if (done == bytes && (ended_ || stream_.avail_out == 0)) break;
    }
    return done;
  }

  const std::string& origin_;
  z_stream stream_{};
  std::uint64_t left_;  // bytes not yet handed to zlib
  uLong crc_ = 0;
  bool ended_ = false;
};

// What can be said against a member without reading it.
void check_member(const std::string& origin, const ZipMember& m) {
  constexpr std::uint16_t kEncrypted = 1;
  KREF_CHECK((m.flags & kEncrypted) == 0, origin, ": is encrypted, which is not supported");
  KREF_CHECK(m.method == ZIP_CM_STORE || m.method == ZIP_CM_DEFLATE, origin,
             ": compression method ", int{m.method},
             " is not supported; expected 0 (stored) or 8 (deflate)");
  KREF_CHECK(m.method != ZIP_CM_STORE || m.size == m.compressed, origin,
             ": is stored, but the zip directory gives the sizes ", m.compressed, " and ", m.size,
             " bytes");
  // Deflate's best: 258 bytes for two bits. Without this a lying directory would have us allocate.
  KREF_CHECK(m.method == ZIP_CM_STORE || m.size / 1032 <= m.compressed, origin,
             ": the zip directory says that ", m.compressed, " compressed bytes become ", m.size,
             ", which is too large for deflate");
}

FileArray read_stored(const std::string& origin, const FileBytes& file, const ZipMember& m) {
  const auto total = static_cast<std::size_t>(m.size);
  const std::string_view text(reinterpret_cast<const char*>(file.data) + m.data, total);
  const std::size_t offset = npy_data_offset(origin, text, total);
  FileArray array = parse_npy_header(origin, text.substr(0, offset), total - offset);
  KREF_CHECK(crc32_z(0, file.data + m.data, total) == m.crc, origin, ": is corrupt: wrong CRC-32");
  array.bytes = file.data + m.data + offset;
  array.owner = file.owner;
  array.mapped = file.mapped;
  return array;
}

FileArray read_deflated(const std::string& origin, const FileBytes& file, const ZipMember& m) {
  const auto total = static_cast<std::size_t>(m.size);
  Inflater stream(origin, file.data + m.data, m.compressed);
  // The header first: it says how much there is to inflate.
  std::string head(std::min<std::size_t>(total, 12), '\0');
  stream.read(reinterpret_cast<unsigned char*>(head.data()), head.size());
  const std::size_t offset = npy_data_offset(origin, head, total);
  KREF_CHECK(offset >= head.size(), origin, ": header is empty, expected a dict");
  const std::size_t have = head.size();
  head.resize(offset);
  stream.read(reinterpret_cast<unsigned char*>(head.data()) + have, offset - have);
  FileArray array = parse_npy_header(origin, head, total - offset);

  detail::Bytes memory = detail::allocate(total - offset);
  auto* const data = static_cast<unsigned char*>(memory.get());
  stream.read(data, total - offset);
  KREF_CHECK(stream.finish() == m.crc, origin, ": is corrupt: wrong CRC-32");
  array.bytes = data;
  array.owner = std::shared_ptr<const void>(std::move(memory));
  return array;
}

// The names of the members, from libzip, which also compares directory and local headers. What it
// knows of the members must be what zip_layout found: it could have taken another end record.
std::vector<std::string> member_names(const FileBytes& file, const std::vector<ZipMember>& layout) {
  ZipError fault;
  Source source(zip_source_buffer_create(file.data, file.size, 0, &fault.error));
  KREF_CHECK(source != nullptr, file.path, ": zip archive: ", fault.text());
  const Archive archive(
      zip_open_from_source(source.get(), ZIP_RDONLY | ZIP_CHECKCONS, &fault.error));
  KREF_CHECK(archive != nullptr || zip_error_code_zip(&fault.error) != ZIP_ER_EXISTS, file.path,
             ": zip archive has two members of the same name");
  KREF_CHECK(archive != nullptr, file.path, ": zip archive cannot be read: ", fault.text());
  static_cast<void>(source.release());  // the archive's now

  std::vector<std::string> names;
  const auto count = static_cast<zip_uint64_t>(zip_get_num_entries(archive.get(), 0));
  bool same = count == layout.size();
  for (zip_uint64_t i = 0; same && i < count; ++i) {
    const char* const name = zip_get_name(archive.get(), i, ZIP_FL_ENC_STRICT);
    KREF_CHECK(name != nullptr, file.path, ": name of zip member ", i, ": ",
               zip_strerror(archive.get()));
    names.emplace_back(name);
    zip_stat_t status;
    zip_stat_init(&status);
    same = zip_stat_index(archive.get(), i, 0, &status) == 0 && status.size == layout[i].size &&
           status.comp_size == layout[i].compressed && status.crc == layout[i].crc;
  }
  KREF_CHECK(same, file.path, ": zip archive can be read in two ways");
  return names;
}

}  // namespace

std::string array_name_of_member(const std::string& origin, const std::string& member) {
  const auto refuse = [&](const char* why) {
    throw Error(detail::cat(origin, ": member name ", quote(member), " ", why));
  };
  if (!is_utf8(member)) refuse("is not UTF-8");
  if (member.find('\0') != std::string::npos) refuse("holds a NUL");
  if (member.starts_with('/') || member.starts_with('\\')) refuse("is an absolute path");
  if (member.ends_with('/')) refuse("is a folder, expected .npy members");
  for (std::size_t start = 0; start <= member.size();) {
    const std::size_t end = std::min(member.find_first_of("/\\", start), member.size());
    if (member.compare(start, end - start, "..") == 0) refuse("leads out of the archive by '..'");
    start = end + 1;
  }
  return member.ends_with(kSuffix) ? member.substr(0, member.size() - kSuffix.size()) : member;
}

ArrayFile parse_npz(const FileBytes& file) {
  const std::vector<ZipMember> layout = zip_layout(file);
  KREF_CHECK(!layout.empty(), file.path, ": zip archive without members, expected .npy arrays");
  const std::vector<std::string> members = member_names(file, layout);
  std::unordered_set<std::string> names;
  ArrayFile out;
  out.path = file.path;
  out.format = ArrayFile::Format::kNpz;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string name = array_name_of_member(file.path, members[i]);
    KREF_CHECK(names.insert(name).second, file.path, ": two members give the array ", quote(name),
               ": a duplicate name");
    const std::string origin = file.path + ": member " + quote(members[i]);
    check_member(origin, layout[i]);
    FileArray array = layout[i].method == ZIP_CM_STORE ? read_stored(origin, file, layout[i])
                                                       : read_deflated(origin, file, layout[i]);
    if (array.dtype == DType::kBool)
      check_bools(origin, array.bytes, shape_bytes(origin, array.shape, 1));
    array.name = name;
    out.arrays.push_back(std::move(array));
  }
  return out;
}

void write_npz(const std::string& path, std::span<const NamedArray> arrays) {
  KREF_CHECK(!arrays.empty(), path, ": an .npz file needs at least one array");
  std::unordered_set<std::string> names;
  // The archive is put together in memory, so that the file is written as the other formats are.
  ZipError fault;
  Source source(zip_source_buffer_create(nullptr, 0, 0, &fault.error));
  KREF_CHECK(source != nullptr, path, ": zip archive: ", fault.text());
  Archive archive(zip_open_from_source(source.get(), ZIP_TRUNCATE, &fault.error));
  KREF_CHECK(archive != nullptr, path, ": zip archive: ", fault.text());
  zip_source_keep(source.get());  // ours beside the archive's

  std::vector<std::string> heads(arrays.size());  // both live until the archive is closed
  std::vector<DenseBytes> data(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const NamedArray& a = arrays[i];
    const std::string member = a.name + std::string(kSuffix);
    array_name_of_member(path, member);
    KREF_CHECK(names.insert(a.name).second, path, ": two arrays have the name ", quote(a.name));
    heads[i] = npy_head(a.array);
    data[i] = dense_bytes(a.array);
    zip_buffer_fragment_t parts[2];
    parts[0].data = reinterpret_cast<zip_uint8_t*>(heads[i].data());
    parts[0].length = heads[i].size();
    parts[1].data = static_cast<zip_uint8_t*>(const_cast<void*>(data[i].data));
    parts[1].length = data[i].size;
    Source content(
        zip_source_buffer_fragment_create(parts, data[i].size > 0 ? 2 : 1, 0, &fault.error));
    KREF_CHECK(content != nullptr, path, ": zip archive: ", fault.text());
    const zip_int64_t index =
        zip_file_add(archive.get(), member.c_str(), content.get(), ZIP_FL_ENC_UTF_8);
    KREF_CHECK(index >= 0, path, ": member ", quote(member), ": ", zip_strerror(archive.get()));
    content.release();
    const auto at = static_cast<zip_uint64_t>(index);
    constexpr zip_uint16_t kFirstDay = 1 << 5 | 1;  // 1 January 1980: no date, as numpy.savez
    KREF_CHECK(zip_set_file_compression(archive.get(), at, ZIP_CM_STORE, 0) == 0 &&
                   zip_file_set_dostime(archive.get(), at, 0, kFirstDay, 0) == 0,
               path, ": member ", quote(member), ": ", zip_strerror(archive.get()));
  }
  KREF_CHECK(zip_close(archive.get()) == 0, path, ": zip archive: ", zip_strerror(archive.get()));
  static_cast<void>(archive.release());

  FileWriter file(path);
  KREF_CHECK(zip_source_open(source.get()) == 0, path,
             ": zip archive: ", zip_error_strerror(zip_source_error(source.get())));
  std::vector<unsigned char> piece(kMapBytes);
  for (zip_int64_t n = 1; n > 0;) {
    n = zip_source_read(source.get(), piece.data(), piece.size());
    KREF_CHECK(n >= 0, path, ": zip archive: ", zip_error_strerror(zip_source_error(source.get())));
    file.write(piece.data(), static_cast<std::size_t>(n));
  }
  zip_source_close(source.get());
  file.commit();
}

}  // namespace kref
