// SPDX-License-Identifier: Apache-2.0
// The .npz format: a zip archive of .npy members. libzip judges the archive (ZIP_CHECKCONS:
// directory against local headers, duplicate names) and decodes the names. The members are read by
// npz_member.cc, since libzip tells neither where they lie nor whether bytes remain after a
// compressed stream.
#include <zip.h>

#include <algorithm>
#include <unordered_set>

#include "golden/array_format.h"
#include "golden/file_text.h"
#include "golden/npz_member.h"

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
    FileArray array = read_npz_member(origin, file, layout[i]);
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
