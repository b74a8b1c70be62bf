// SPDX-License-Identifier: Apache-2.0
// The .npy format: magic, version, header length, a Python dict as text, the elements. Described in
// numpy/lib/format.py; the variants that older writers leave behind are those of tests/files.
#include <cstdint>
#include <limits>

#include "golden/array_format.h"
#include "golden/file_text.h"

namespace kref {
namespace {

struct Descr {
  const char* text;  // without byte order
  std::size_t item_bytes;
  std::optional<DType> dtype;
};

// Void stands for types numpy does not know; ml_dtypes calls float8_e5m2 "f1".
constexpr Descr kDescrs[] = {
    {"f8", 8, DType::kF64}, {"f4", 4, DType::kF32},  {"f2", 2, DType::kF16}, {"i8", 8, DType::kI64},
    {"i4", 4, DType::kI32}, {"i2", 2, DType::kI16},  {"i1", 1, DType::kI8},  {"u4", 4, DType::kU32},
    {"u1", 1, DType::kU8},  {"b1", 1, DType::kBool}, {"V2", 2, {}},          {"V1", 1, {}},
    {"f1", 1, {}},
};

void set_type(FileArray& array) {
  const std::string& descr = array.descr;
  const std::string& origin = array.origin;
  const auto unsupported = [&](const char* why) {
    throw Error(detail::cat(origin, ": element type ", quote(descr), " is not supported", why));
  };
  if (descr.find('O') != std::string::npos) unsupported(": an array of Python objects (a pickle)");
  if (descr.size() != 3) unsupported("");
  const char order = descr[0];
  for (const Descr& d : kDescrs) {
    if (descr.compare(1, 2, d.text) != 0) continue;
    array.item_bytes = d.item_bytes;
    array.dtype = d.dtype;
    // The order of a single byte means nothing, and cnpy gives it one. Of a void type it says
    // nothing about the elements: ">V2" could hold either order, and is not guessed.
    const bool void_type = d.text[0] == 'V';
    if (order == '>' && void_type && d.item_bytes > 1)
      unsupported(": a void type of unknown byte order");
    if (order == '|' && !void_type && d.item_bytes > 1) unsupported(" without a byte order");
    if (order != '<' && order != '>' && order != '|') break;
    array.big_endian = order == '>';
    return;
  }
  if (descr == "<u2" || descr == ">u2")
    unsupported("; bfloat16 kept as uint16: save x.view('V2') instead and give --dtype");
  unsupported("; expected f2 f4 f8 i1 i2 i4 i8 u1 u4 b1, or V1 V2 with --dtype");
}

// A reader of the one kind of dict that headers hold: the keys descr, fortran_order and shape, each
// once, in any order. It takes what Python would take only as far as some writer is known to have
// written it: either quote, L after a number, any white space, a comma before the closing bracket.
class HeaderReader {
 public:
  HeaderReader(FileArray& array, std::string_view text) : array_(array), text_(text) {}

  void read() {
    if (!take('{')) fail("expected a dict");
    while (!take('}')) {
      read_entry();
      if (!take(',') && peek() != '}') fail("expected ',' or '}'");
    }
    skip_space();
    if (at_ != text_.size()) fail("text after the dict");
    for (std::size_t k = 0; k < std::size(kKeys); ++k) {
      KREF_CHECK(seen_[k], array_.origin, ": header has no key '", kKeys[k], "'");
    }
  }

 private:
  static constexpr const char* kKeys[] = {"descr", "fortran_order", "shape"};

  void read_entry() {
    const std::string key = read_string("a key in quotes");
    std::size_t k = 0;
    while (k < std::size(kKeys) && key != kKeys[k]) ++k;
    KREF_CHECK(k < std::size(kKeys), array_.origin, ": header has the unknown key ", quote(key));
    KREF_CHECK(!seen_[k], array_.origin, ": header has the key '", key, "' twice");
    seen_[k] = true;
    if (!take(':')) fail("expected ':'");
    if (k == 0) {
      KREF_CHECK(peek() != '[', array_.origin,
                 ": element type is a list: structured types are not supported");
      array_.descr = read_string("the element type in quotes");
    } else if (k == 1) {
      array_.fortran_order = read_bool();
    } else {
      read_shape();
    }
  }

  std::string read_string(const char* what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a string without end");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (inside.find_first_of("\\\n") != std::string_view::npos)
      fail("a string with an escape or a line end");
    at_ = end + 1;
    return std::string(inside);
  }

  bool read_bool() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("fortran_order is neither True nor False");
  }

  void read_shape() {
    if (!take('(')) fail("shape is no tuple: expected '('");
    bool comma = true;
    while (!take(')')) {
      if (!comma) fail("shape: expected ',' or ')'");
      array_.shape.push_back(read_extent());
      KREF_CHECK(array_.shape.size() <= kMaxRank, array_.origin, ": shape of rank above ", kMaxRank,
                 ", which is the most that kref takes");
      comma = take(',');
    }
    // (5) is a number in Python, (5,) a tuple.
    if (array_.shape.size() == 1 && !comma) fail("shape is a number in brackets, expected a tuple");
  }

  Index read_extent() {
    const char first = peek();
    if (first == '-') fail("shape has a negative dimension");
    if (first < '0' || first > '9') fail("shape has a dimension that is no number");
    Index value = 0;
    const std::size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const Index digit = text_[at_] - '0';
      if (value > (std::numeric_limits<Index>::max() - digit) / 10)
        fail("shape has a dimension that is too large");
      value = value * 10 + digit;
    }
    if (first == '0' && at_ - start > 1) fail("shape has a dimension with a leading zero");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
    return value;
  }

  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n\f").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  // The next character that is not white space; NUL at the end.
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const char* what) {
    throw Error(detail::cat(
        array_.origin, ": header syntax at byte ", at_ + 1, ": ", what, ", found ",
        at_ < text_.size() ? quote(text_.substr(at_, 16)) : std::string("the end of the header")));
  }

  FileArray& array_;
  std::string_view text_;
  std::size_t at_ = 0;
  bool seen_[3] = {};
};

// Little-endian number of the bytes.
std::size_t little(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Magic, version, header length: 2 bytes of it in version 1, else 4.
std::size_t prelude(std::string_view head) { return head[6] == 1 ? 10 : 12; }

}  // namespace

std::size_t npy_data_offset(const std::string& origin, std::string_view start, std::size_t total) {
  KREF_CHECK(start.starts_with(kNpyMagic), origin, ": not an .npy array: no magic at its start");
  KREF_CHECK(total >= 8, origin, ": ends inside the format version, after ", total, " bytes");
  const int major = static_cast<unsigned char>(start[6]),
            minor = static_cast<unsigned char>(start[7]);
  KREF_CHECK(major >= 1 && major <= 3 && minor == 0, origin, ": .npy format version ", major, ".",
             minor, ", expected 1.0, 2.0 or 3.0");
  const std::size_t begin = prelude(start);
  KREF_CHECK(total >= begin, origin, ": ends inside the header length, after ", total, " bytes");
  const std::size_t length = little(start.substr(8, begin - 8));
  KREF_CHECK(length <= total - begin, origin, ": ends inside the header: header length is ", length,
             ", ", total - begin, " bytes follow");
  KREF_CHECK(length <= kNpyLongestHeader, origin, ": header length is ", length,
             ", expected at most ", kNpyLongestHeader);
  return begin + length;
}

FileArray parse_npy_header(const std::string& origin, std::string_view head,
                           std::size_t data_bytes) {
  FileArray array;
  array.origin = origin;
  const std::string_view text = head.substr(prelude(head));
  // Versions 1 and 2 are Latin-1, but every legal key and type is ASCII.
  KREF_CHECK(head[6] != 3 || is_utf8(text), origin, ": header is not UTF-8");
  HeaderReader(array, text).read();
  set_type(array);
  const std::size_t expected = shape_bytes(origin, array.shape, array.item_bytes);
  KREF_CHECK(data_bytes >= expected, origin, ": data is cut short: ", quote(array.descr),
             shape_string(array.shape), " needs ", expected, " bytes, found ", data_bytes);
  KREF_CHECK(data_bytes == expected, origin, ": ", data_bytes - expected,
             " trailing bytes after the data: ", quote(array.descr), shape_string(array.shape),
             " needs ", expected, " bytes, found ", data_bytes);
  return array;
}

ArrayFile parse_npy(const FileBytes& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data), file.size);
  const std::size_t offset = npy_data_offset(file.path, text, text.size());
  FileArray array = parse_npy_header(file.path, text.substr(0, offset), text.size() - offset);
  const FileElements view{file.owner, file.data + offset, file.mapped};
  array.elements = [view] { return view; };
  if (array.dtype == DType::kBool) check_bools(array.origin, view.bytes, file.size - offset);
  ArrayFile out;
  out.path = file.path;
  out.format = ArrayFile::Format::kNpy;
  out.arrays.push_back(std::move(array));
  return out;
}

std::string npy_head(const ArrayRef& array) {
  const std::size_t item_bytes = size_of(array.dtype);
  const bool is_void =
      array.dtype == DType::kBF16 || array.dtype == DType::kF8E4M3 || array.dtype == DType::kF8E5M2;
  std::string descr = is_void || item_bytes > 1 ? "<" : "|";
  if (is_void) descr += item_bytes == 1 ? "V1" : "V2";
  for (const Descr& d : kDescrs) {
    if (!is_void && d.dtype == array.dtype) descr += d.text;
  }
  std::string dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (std::size_t d = 0; d < array.rank; ++d) {
    if (d > 0) dict += ", ";
    dict += std::to_string(array.extents[d]);
  }
  dict += array.rank == 1 ? ",), }" : "), }";
  // The data starts at a multiple of 64, after a line end.
  constexpr std::size_t kPrelude = 10, kAlign = 64;
  dict.append(kAlign - 1 - (kPrelude + dict.size()) % kAlign, ' ');
  dict += '\n';
  std::string head(kNpyMagic);
  head += {'\1', '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  return head + dict;
}

void write_npy(const std::string& path, const ArrayRef& array) {
  const std::string head = npy_head(array);
  const DenseBytes data = dense_bytes(array);
  FileWriter file(path);
  file.write(head.data(), head.size());
  file.write(data.data, data.size);
  file.commit();
}

}  // namespace kref
