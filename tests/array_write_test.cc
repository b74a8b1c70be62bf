// SPDX-License-Identifier: Apache-2.0
// Writers: what is written is read back as it was, lies aligned, and is the same each time; a file
// that cannot be written whole does not appear.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "dsl/tensor.h"
#include "golden/array_file.h"

namespace kref {
namespace {

namespace fs = std::filesystem;

constexpr DType kAll[] = {DType::kF64,    DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                          DType::kF8E5M2, DType::kI64, DType::kI32, DType::kI16,  DType::kI8,
                          DType::kU32,    DType::kU8,  DType::kBool};
const std::vector<std::vector<Index>> kShapes = {
    {},  {5},    {2, 3},    {3, 1, 4},         {2, 1, 3, 2}, {2, 3, 1, 2, 2},
    {0}, {0, 3}, {2, 0, 4}, {2, 1, 2, 1, 3, 2}};

// A folder of its own, removed at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("kref_array_write_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

// Bytes that differ from place to place; 0 and 1 for BOOL.
Array filled(DType type, const std::vector<Index>& shape, unsigned seed) {
  Array a(type, shape);
  auto* const bytes = static_cast<unsigned char*>(a.mutable_data());
  for (std::size_t i = 0; i < a.bytes(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = static_cast<unsigned char>(type == DType::kBool ? seed >> 31 : seed >> 24);
  }
  return a;
}

void check_same(const Array& found, const Array& expected) {
  CHECK(to_string(found) == to_string(expected));
  CHECK(reinterpret_cast<std::uintptr_t>(found.data()) % size_of(found.dtype()) == 0);
  REQUIRE(found.bytes() == expected.bytes());
  CHECK((found.bytes() == 0 || std::memcmp(found.data(), expected.data(), found.bytes()) == 0));
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Array> arrays_of_all_kinds() {
  std::vector<Array> out;
  for (const DType type : kAll) {
    for (const auto& shape : kShapes)
      out.push_back(filled(type, shape, static_cast<unsigned>(out.size()) + 1));
  }
  return out;
}

TEST_CASE("npy: every type and rank comes back") {
  const Folder folder;
  const std::string path = folder / "a.npy";
  for (const Array& a : arrays_of_all_kinds()) {
    CAPTURE(to_string(a));
    write_npy(path, a);
    const ArrayFile file = read_array_file(path);
    REQUIRE(file.arrays.size() == 1);
    check_same(file.arrays[0].array(a.dtype()), a);
    const std::string text = bytes_of(path);
    CHECK((text.size() - a.bytes()) % 64 == 0);
    CHECK(text[text.size() - a.bytes() - 1] == '\n');
  }
  CHECK(fs::directory_iterator(folder.path)->path().string() == path);
}

TEST_CASE("npy: the bytes are those that numpy writes") {
  const Folder folder;
  const std::string path = folder / "a.npy";
  const Index shape[] = {2};
  Array a(DType::kBF16, shape);
  a.mutable_elements<bf16>()[1] = bf16(1.0f);
  write_npy(path, a);
  std::string expected(
      "\x93NUMPY\1\0\x76\0{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", 67);
  expected.append(127 - expected.size(), ' ');
  expected += std::string("\n\0\0\x80\x3f", 5);
  CHECK(bytes_of(path) == expected);
}

TEST_CASE("npz and safetensors: every type and rank comes back, the same bytes each time") {
  const Folder folder;
  const std::vector<Array> arrays = arrays_of_all_kinds();
  std::vector<NamedArray> named;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    named.push_back({"größe/" + std::to_string(i), arrays[i]});
  const std::map<std::string, std::string> metadata = {
      {"", "empty"}, {"source", "größe \"行列\"\n\\"}, {"kref", "1"}};
  for (const char* const name : {"a.npz", "a.safetensors"}) {
    CAPTURE(name);
    const std::string path = folder / name;
    const bool zip = fs::path(path).extension() == ".npz";
    const auto write = [&] {
      zip ? write_npz(path, named) : write_safetensors(path, named, metadata);
    };
    write();
    const std::string first = bytes_of(path);
    const ArrayFile file = read_array_file(path);
    CHECK(file.format == (zip ? ArrayFile::Format::kNpz : ArrayFile::Format::kSafetensors));
    CHECK(file.arrays.size() == arrays.size());
    CHECK(file.metadata == (zip ? std::map<std::string, std::string>{} : metadata));
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      CAPTURE(to_string(arrays[i]));
      const FileArray* const found = file.find(named[i].name);
      REQUIRE(found != nullptr);
      check_same(found->array(arrays[i].dtype()), arrays[i]);
      // Aligned in the file already: a view of a mapped one needs no copy.
      if (zip) continue;
      const auto at = found->elements().bytes - file.arrays[0].elements().bytes;
      CHECK(static_cast<std::size_t>(at) % found->item_bytes == 0);
    }
    write();
    CHECK(bytes_of(path) == first);
    if (!zip) {
      std::uint64_t length = 0;
      std::memcpy(&length, first.data(), sizeof(length));
      CHECK(length % 8 == 0);
    }
  }
}

TEST_CASE("strided arrays are written row-major") {
  const Folder folder;
  const Array whole = filled(DType::kI16, {3, 4, 5}, 7);
  ArrayRef turned = whole;  // (5, 4, 3), every stride but the usual
  std::swap(turned.extents[0], turned.extents[2]);
  std::swap(turned.strides[0], turned.strides[2]);
  const NamedArray named[] = {{"x", turned}};
  write_npy(folder / "a.npy", turned);
  write_npz(folder / "a.npz", named);
  write_safetensors(folder / "a.safetensors", named);
  for (const char* const name : {"a.npy", "a.npz", "a.safetensors"}) {
    CAPTURE(name);
    const Array found = read_array_file(folder / name).arrays[0].array();
    REQUIRE(to_string(found) == "I16[5,4,3]");
    for (Index i = 0; i < 60; ++i)
      CHECK(found.at(i) == whole.at(i / 12 + i / 3 % 4 * 5 + i % 3 * 20));
  }
}

TEST_CASE("large arrays are views of the mapped file, of any order of elements") {
  const Folder folder;
  const std::string path = folder / "a.npy";
  const Array a = filled(DType::kF32, {700, 601}, 3);
  write_npy(path, a);
  const ArrayFile file = read_array_file(path);
  const Array found = file.arrays[0].array();
  CHECK(found.data() == file.arrays[0].elements().bytes);
  check_same(found, a);
  Array changed = found;  // writes to a copy of its own
  changed.mutable_elements<float>()[0] += 1;
  CHECK(changed.data() != found.data());
  CHECK(changed.at(0) == found.at(0) + 1);
  check_same(found, a);
  // The same file as if it were column-major and big-endian.
  std::string text = bytes_of(path);
  const std::size_t descr = text.find("<f4"), order = text.find("False");
  text[descr] = '>';
  text.replace(order, 5, "True ");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  const Array turned = read_array_file(path).arrays[0].array();
  REQUIRE(to_string(turned) == "F32[700,601]");
  const auto* const from = static_cast<const unsigned char*>(a.data());
  const auto* const to = static_cast<const unsigned char*>(turned.data());
  bool same = true;
  for (std::size_t i = 0; i < 700; ++i) {
    for (std::size_t j = 0; j < 601; ++j) {
      for (std::size_t b = 0; b < 4; ++b)
        same = same && to[(i * 601 + j) * 4 + b] == from[(j * 700 + i) * 4 + 3 - b];
    }
  }
  CHECK(same);
}

TEST_CASE("names that do not fit are refused") {
  const Folder folder;
  const Array a = filled(DType::kF32, {2}, 1);
  const std::vector<NamedArray> twice = {{"x", a}, {"x", a}}, up = {{"../x", a}},
                                metadata = {{"__metadata__", a}}, bytes = {{"\xff", a}};
  CHECK_THROWS_WITH_AS(write_npz("a.npz", twice), "a.npz: two arrays have the name 'x'", Error);
  CHECK_THROWS_WITH_AS(write_safetensors("a.st", twice), "a.st: two tensors have the name 'x'",
                       Error);
  CHECK_THROWS_WITH_AS(write_npz("a.npz", up),
                       "a.npz: member name '../x.npy' leads out of the archive by '..'", Error);
  CHECK_THROWS_WITH_AS(write_npz("a.npz", bytes), "a.npz: member name '\\xff.npy' is not UTF-8",
                       Error);
  CHECK_THROWS_WITH_AS(write_safetensors("a.st", bytes), "a.st: tensor name '\\xff' is not UTF-8",
                       Error);
  CHECK_THROWS_WITH_AS(write_safetensors("a.st", metadata),
                       "a.st: no tensor can have the name '__metadata__'", Error);
  CHECK_THROWS_WITH_AS(write_safetensors("a.st", {}, {{"k", "\xff"}}),
                       "a.st: metadata 'k' is not UTF-8", Error);
  CHECK_THROWS_AS(write_npz("a.npz", {}), Error);
  CHECK_FALSE(fs::exists("a.npz"));
  CHECK_FALSE(fs::exists("a.st"));
}

TEST_CASE("a file that cannot be written is an error and leaves nothing behind") {
  const Folder folder;
  const Array a = filled(DType::kF32, {3}, 1);
  const NamedArray named[] = {{"x", a}};
  CHECK_THROWS_WITH_AS(write_npy("/dev/full", a),
                       doctest::Contains("/dev/full: cannot be written: No space left"), Error);
  CHECK_THROWS_WITH_AS(write_npz("/dev/full", named), doctest::Contains("No space left"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors("/dev/full", named), doctest::Contains("No space left"),
                       Error);
  CHECK(fs::is_character_file("/dev/full"));
  CHECK_THROWS_WITH_AS(write_npy(folder / "no/a.npy", a), doctest::Contains("No such file"), Error);
  CHECK_THROWS_WITH_AS(write_npy(folder.path.string(), a), doctest::Contains("is a directory"),
                       Error);
  CHECK(fs::is_empty(folder.path));
  // Over an existing file, through a link: the file is replaced, the link stays, as do the
  // permissions.
  write_npy(folder / "a.npy", filled(DType::kF32, {9}, 1));
  fs::permissions(folder / "a.npy", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a.npy", folder / "link");
  write_npy(folder / "link", a);
  CHECK(fs::is_symlink(folder / "link"));
  check_same(read_array_file(folder / "a.npy").arrays[0].array(), a);
  CHECK(fs::status(folder / "a.npy").permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

}  // namespace
}  // namespace kref
