// SPDX-License-Identifier: Apache-2.0
// The .npz format: a zip archive of .npy members. libzip reads the archive from memory and checks
// directory against local headers (ZIP_CHECKCONS) and checksums; what it lets pass is checked here.
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "dsl/tensor.h"
#include "golden/array_format.h"
#include "golden/file_text.h"

namespace kref {
namespace {

constexpr std::string_view kSuffix = ".npy";

struct CloseArchive {
  void operator()(zip_t* z) const { zip_discard(z); }
};
using Archive = std::unique_ptr<zip_t, CloseArchive>;

struct CloseMember {
  void operator()(zip_file_t* f) const { zip_fclose(f); }
};
using Member = std::unique_ptr<zip_file_t, CloseMember>;

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

// Reads exactly the next `bytes` bytes of the member.
void read_member(const std::string& origin, zip_file_t* member, void* to, std::size_t bytes) {
  auto* p = static_cast<unsigned char*>(to);
  while (bytes > 0) {
    const zip_int64_t n = zip_fread(member, p, bytes);
    KREF_CHECK(n >= 0, origin,
               ": cannot be decompressed: ", zip_error_strerror(zip_file_get_error(member)));
    KREF_CHECK(n > 0, origin, ": ends ", bytes,
               " bytes before the size that the zip directory gives");
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

// Nothing may follow; asking for more is also what makes libzip compare the checksum.
void expect_end(const std::string& origin, zip_file_t* member) {
  unsigned char extra = 0;
  const zip_int64_t n = zip_fread(member, &extra, 1);
  KREF_CHECK(n >= 0, origin, ": is corrupt: ", zip_error_strerror(zip_file_get_error(member)));
  KREF_CHECK(n == 0, origin, ": inflates to more bytes than the zip directory says");
}

// Size and method of a member, after all that can be checked without reading it.
zip_stat_t member_status(const std::string& origin, zip_t* archive, zip_uint64_t index) {
  zip_stat_t status;
  zip_stat_init(&status);
  KREF_CHECK(zip_stat_index(archive, index, 0, &status) == 0, origin, ": ", zip_strerror(archive));
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  KREF_CHECK((status.valid & kNeeded) == kNeeded, origin,
             ": the zip directory does not give its size and method");
  KREF_CHECK(status.encryption_method == ZIP_EM_NONE, origin,
             ": is encrypted, which is not supported");
  const bool stored = status.comp_method == ZIP_CM_STORE;
  KREF_CHECK(stored || status.comp_method == ZIP_CM_DEFLATE, origin, ": compression method ",
             status.comp_method, " is not supported; expected 0 (stored) or 8 (deflate)");
  KREF_CHECK(!stored || status.size == status.comp_size, origin,
             ": is stored, but the zip directory gives the sizes ", status.comp_size, " and ",
             status.size, " bytes");
  // Deflate's best: 258 bytes for two bits. Without this a lying directory would have us allocate.
  KREF_CHECK(stored || status.size / 1032 <= status.comp_size, origin,
             ": the zip directory says that ", status.comp_size, " compressed bytes become ",
             status.size, ", which is too large for deflate");
  return status;
}

FileArray read_array(const std::string& origin, zip_t* archive, zip_uint64_t index) {
  const zip_stat_t status = member_status(origin, archive, index);
  const auto total = static_cast<std::size_t>(status.size);
  const Member member(zip_fopen_index(archive, index, 0));
  KREF_CHECK(member != nullptr, origin, ": ", zip_strerror(archive));

  // The header first: it says how much there is to inflate.
  std::string head(std::min<std::size_t>(total, 12), '\0');
  read_member(origin, member.get(), head.data(), head.size());
  const std::size_t offset = npy_data_offset(origin, head, total);
  const std::size_t have = std::min(head.size(), offset);
  std::string spill = head.substr(have);  // data, when the header is empty
  head.resize(offset);
  if (offset > have) read_member(origin, member.get(), head.data() + have, offset - have);
  FileArray array = parse_npy_header(origin, head, total - offset);

  detail::Bytes memory = detail::allocate(total - offset);
  auto* const data = static_cast<unsigned char*>(memory.get());
  std::copy(spill.begin(), spill.end(), data);
  read_member(origin, member.get(), data + spill.size(), total - offset - spill.size());
  expect_end(origin, member.get());
  if (array.dtype == DType::kBool) check_bools(origin, data, total - offset);
  array.bytes = data;
  array.owner = std::shared_ptr<const void>(std::move(memory));
  return array;
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
  ZipError fault;
  Source source(zip_source_buffer_create(file.data, file.size, 0, &fault.error));
  KREF_CHECK(source != nullptr, file.path, ": zip archive: ", fault.text());
  const Archive archive(
      zip_open_from_source(source.get(), ZIP_RDONLY | ZIP_CHECKCONS, &fault.error));
  KREF_CHECK(archive != nullptr || zip_error_code_zip(&fault.error) != ZIP_ER_EXISTS, file.path,
             ": zip archive has two members of the same name");
  KREF_CHECK(archive != nullptr, file.path, ": zip archive cannot be read: ", fault.text());
  source.release();  // the archive's now

  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  KREF_CHECK(count > 0, file.path, ": zip archive without members, expected .npy arrays");
  std::unordered_set<std::string> names;
  std::vector<std::string> members;
  std::size_t needed =
      22;  // end record; then a local header of 30 and an entry of 46 bytes a member
  for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
    const char* const text = zip_get_name(archive.get(), i, ZIP_FL_ENC_STRICT);
    KREF_CHECK(text != nullptr, file.path, ": name of member ", i, ": ",
               zip_strerror(archive.get()));
    members.emplace_back(text);
    const std::string name = array_name_of_member(file.path, members.back());
    KREF_CHECK(names.insert(name).second, file.path, ": two members give the array ", quote(name),
               ": a duplicate name");
    const std::string origin = file.path + ": member " + quote(members.back());
    const zip_stat_t status = member_status(origin, archive.get(), i);
    // Members that share their bytes are a way to make a small archive inflate without end.
    needed += 30 + 46;
    KREF_CHECK(status.comp_size <= file.size && needed <= file.size - status.comp_size, origin,
               ": its size of ", status.comp_size,
               " bytes does not fit into the archive beside the other members");
    needed += static_cast<std::size_t>(status.comp_size);
  }

  ArrayFile out;
  out.path = file.path;
  out.format = ArrayFile::Format::kNpz;
  for (zip_uint64_t i = 0; i < members.size(); ++i) {
    const std::string& member = members[i];
    out.arrays.push_back(read_array(file.path + ": member " + quote(member), archive.get(), i));
    out.arrays.back().name = array_name_of_member(file.path, member);
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
