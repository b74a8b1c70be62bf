// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length, the header as JSON, the data of the tensors.
// The reader is stricter than the specification in three places: the header must not leave a key
// out or add one, a key must not come twice, and no tensor may have a rank above 6.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "golden/array_format.h"
#include "golden/file_text.h"
#include "golden/json_sax.h"

namespace kref {
namespace {

using nlohmann::json;

constexpr DType kDTypes[] = {DType::kF64,    DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                             DType::kF8E5M2, DType::kI64, DType::kI32, DType::kI16,  DType::kI8,
                             DType::kU32,    DType::kU8,  DType::kBool};

struct Extent {
  std::uint64_t begin = 0, end = 0;  // offsets in the data
};

// Reads the header event by event: its shape is known, so that nothing nested or repeated is ever
// stored. `at` says what the next value belongs to.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  std::vector<FileArray> arrays;
  std::vector<Extent> extents;  // one an array
  std::map<std::string, std::string> metadata;

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t v) {
    return unexpected("the negative number " + std::to_string(v));
  }
  bool number_float(double, const std::string& text) {
    return unexpected("the number " + quote(text));
  }
  bool number_unsigned(std::uint64_t v) {
    if (at_ == At::kShape) {
      std::vector<Index>& shape = arrays.back().shape;
      KREF_CHECK(shape.size() < kMaxRank, where(), ": shape of rank above ", kMaxRank,
                 ", which is the most that kref takes");
      KREF_CHECK(v <= std::uint64_t{1} << 62, where(), ": shape has the dimension ", v,
                 ", which is too large");
      shape.push_back(static_cast<Index>(v));
    } else if (at_ == At::kOffsets) {
      KREF_CHECK(offsets_ < 2, where(), ": data_offsets has more than two numbers");
      (offsets_++ == 0 ? extents.back().begin : extents.back().end) = v;
    } else {
      unexpected("the number " + std::to_string(v));
    }
    return true;
  }
  bool string(std::string& v) {
    if (at_ == At::kMetadata) {
      metadata[key_] = std::move(v);
    } else if (at_ == At::kEntry && field_ == kDType) {
      arrays.back().descr = std::move(v);
      set_type(arrays.back());
    } else {
      unexpected("the string " + quote(v));
    }
    return true;
  }
  bool binary(json::binary_t&) { return false; }  // not in text

  bool start_object(std::size_t) {
    if (at_ == At::kStart) {
      at_ = At::kRoot;
    } else if (at_ == At::kRoot && key_ == kSafetensorsMetadata) {
      at_ = At::kMetadata;
    } else if (at_ == At::kRoot) {
      at_ = At::kEntry;
      FileArray array;
      array.name = key_;
      array.origin = path_ + ": tensor " + quote(key_);
      arrays.push_back(std::move(array));
      extents.emplace_back();
      std::fill(std::begin(seen_), std::end(seen_), false);
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool start_array(std::size_t) {
    if (at_ == At::kEntry && field_ == kShape) {
      at_ = At::kShape;
    } else if (at_ == At::kEntry && field_ == kOffsets) {
      at_ = At::kOffsets;
      offsets_ = 0;
    } else {
      unexpected("an array");
    }
    return true;
  }
  bool end_array() {
    KREF_CHECK(at_ != At::kOffsets || offsets_ == 2, where(), ": data_offsets has ", offsets_,
               " numbers, expected begin and end");
    at_ = At::kEntry;
    return true;
  }
  bool end_object() {
    if (at_ == At::kEntry) {
      for (int f = 0; f < kFields; ++f) KREF_CHECK(seen_[f], where(), ": has no ", kFieldNames[f]);
    }
    at_ = at_ == At::kRoot ? At::kStart : At::kRoot;
    return true;
  }
  bool key(std::string& name) {
    if (at_ == At::kRoot) {
      KREF_CHECK(names_.insert(name).second, path_, ": header has the key ", quote(name), " twice");
      key_ = std::move(name);
    } else if (at_ == At::kMetadata) {
      KREF_CHECK(metadata.try_emplace(name).second, path_, ": metadata has the key ", quote(name),
                 " twice");
      key_ = std::move(name);
    } else {
      field_ = 0;
      while (field_ < kFields && name != kFieldNames[field_]) ++field_;
      KREF_CHECK(field_ < kFields, where(), ": has the unknown key ", quote(name));
      KREF_CHECK(!seen_[field_], where(), ": has the key ", kFieldNames[field_], " twice");
      seen_[field_] = true;
    }
    return true;
  }
  [[noreturn]] bool parse_error(std::size_t, const std::string&, const json::exception& fault) {
    refuse_json_syntax(path_ + ": header", fault);
  }

 private:
  enum class At { kStart, kRoot, kMetadata, kEntry, kShape, kOffsets };
  enum { kDType, kShape, kOffsets, kFields };
  static constexpr const char* kFieldNames[kFields] = {"dtype", "shape", "data_offsets"};

  const std::string& where() const { return arrays.back().origin; }

  static void set_type(FileArray& array) {
    for (const DType type : kDTypes) {
      if (array.descr == name_of(type)) array.dtype = type;
    }
    KREF_CHECK(array.dtype, array.origin, ": element type ", quote(array.descr),
               " is not supported; expected F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U32 U8 "
               "or BOOL");
    array.item_bytes = size_of(*array.dtype);
  }

  [[noreturn]] bool unexpected(const std::string& found) const {
    switch (at_) {
      case At::kStart:
        throw Error(detail::cat(path_, ": header is ", found, ", expected a JSON object"));
      case At::kRoot:
        if (key_ == kSafetensorsMetadata)
          throw Error(detail::cat(path_, ": ", kSafetensorsMetadata, " is ", found,
                                  ", expected an object of strings"));
        throw Error(
            detail::cat(path_, ": tensor ", quote(key_), " is ", found, ", expected an object"));
      case At::kMetadata:
        throw Error(
            detail::cat(path_, ": metadata ", quote(key_), " is ", found, ", expected a string"));
      case At::kEntry:
        throw Error(detail::cat(where(), ": ", kFieldNames[field_], " is ", found, ", expected ",
                                field_ == kDType ? "a string" : "an array of numbers"));
      case At::kShape:
        throw Error(detail::cat(where(), ": shape has ", found, ", expected whole numbers from 0"));
      case At::kOffsets:
        break;
    }
    throw Error(
        detail::cat(where(), ": data_offsets has ", found, ", expected whole numbers from 0"));
  }

  const std::string& path_;
  At at_ = At::kStart;
  std::string key_;  // of the tensor or of the metadata
  std::unordered_set<std::string> names_;
  int field_ = 0;  // of the tensor's entry
  bool seen_[kFields] = {};
  int offsets_ = 0;
};

// Every byte of the data belongs to exactly one tensor, whose type and shape need that many.
void check_extents(const HeaderReader& header, const std::string& path, std::size_t data_bytes) {
  const std::size_t count = header.arrays.size();
  for (std::size_t i = 0; i < count; ++i) {
    const FileArray& array = header.arrays[i];
    const Extent& e = header.extents[i];
    const std::size_t expected = shape_bytes(array.origin, array.shape, array.item_bytes);
    KREF_CHECK(e.begin <= e.end, array.origin, ": data_offsets end at ", e.end,
               ", before they begin at ", e.begin);
    KREF_CHECK(e.end - e.begin == expected, array.origin, ": data_offsets give ", e.end - e.begin,
               " bytes, ", array.descr, shape_string(array.shape), " needs ", expected);
    KREF_CHECK(e.end <= data_bytes, array.origin, ": data_offsets end at ", e.end,
               ", the file has only ", data_bytes, " bytes of data");
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Extent &x = header.extents[a], &y = header.extents[b];
    return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
  });
  std::uint64_t covered = 0;
  for (const std::size_t i : order) {
    const Extent& e = header.extents[i];
    KREF_CHECK(e.begin >= covered, header.arrays[i].origin, ": data_offsets begin at ", e.begin,
               " and overlap another tensor, which ends at ", covered);
    KREF_CHECK(e.begin == covered, header.arrays[i].origin, ": data_offsets begin at ", e.begin,
               " and leave a hole: the data before ends at ", covered);
    covered = e.end;
  }
  KREF_CHECK(covered == data_bytes, path, ": ", data_bytes - covered,
             " trailing bytes after the data of the last tensor");
}

}  // namespace

ArrayFile parse_safetensors(const FileBytes& file) {
  std::uint64_t length = 0;
  KREF_CHECK(file.size >= sizeof(length), file.path, ": ends inside the header length, after ",
             file.size, " bytes");
  std::memcpy(&length, file.data, sizeof(length));
  const std::size_t rest = file.size - sizeof(length);
  KREF_CHECK(length <= rest, file.path, ": ends inside the header: header length is ", length, ", ",
             rest, " bytes follow");
  KREF_CHECK(length <= kSafetensorsLongestHeader, file.path, ": header length is ", length,
             ", expected at most ", kSafetensorsLongestHeader);
  const auto header_bytes = static_cast<std::size_t>(length);
  const std::string_view text(reinterpret_cast<const char*>(file.data) + sizeof(length),
                              header_bytes);
  KREF_CHECK(!text.empty(), file.path, ": header is empty, expected a JSON object");
  KREF_CHECK(text[0] == '{', file.path, ": header starts with ", quote(text.substr(0, 1)),
             ", expected '{' (a JSON object)");

  HeaderReader header(file.path);
  parse_json_events(file.path + ": header", text, kSafetensorsLongestHeader, header);
  const std::size_t data_bytes = rest - header_bytes;
  check_extents(header, file.path, data_bytes);
  for (std::size_t i = 0; i < header.arrays.size(); ++i) {
    FileArray& array = header.arrays[i];
    const FileElements view{file.owner,
                            file.data + sizeof(length) + header_bytes + header.extents[i].begin,
                            file.mapped};
    array.elements = [view] { return view; };
    if (array.dtype == DType::kBool) {
      check_bools(array.origin, view.bytes,
                  static_cast<std::size_t>(header.extents[i].end - header.extents[i].begin));
    }
  }
  ArrayFile out;
  out.path = file.path;
  out.format = ArrayFile::Format::kSafetensors;
  out.arrays = std::move(header.arrays);
  out.metadata = std::move(header.metadata);
  return out;
}

}  // namespace kref
