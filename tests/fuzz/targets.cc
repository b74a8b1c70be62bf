// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "dsl/tensor.h"
#include "golden/array_format.h"
#include "golden/json_guard.h"

namespace kref::fuzz {
namespace {

// A copy in a block of its own, so that a read past its end is seen.
FileBytes file_of(const std::uint8_t* data, std::size_t size) {
  auto* const copy = new unsigned char[size];
  if (size > 0) std::memcpy(copy, data, size);
  FileBytes file;
  file.path = "input";
  file.owner = std::shared_ptr<const void>(
      copy, [](const void* p) { delete[] static_cast<const unsigned char*>(p); });
  file.data = copy;
  file.size = size;
  return file;
}

void expect_message_of_file(const Error& e) {
  expect(std::strncmp(e.what(), "input: ", 7) == 0, "a message that does not name the file");
  expect(std::strchr(e.what(), '\n') == nullptr, "a message of several lines");
  expect(std::strlen(e.what()) < 600, "a message that is too long");
}

// True when the elements of the array are sound: a member of a .npz is looked at only now.
bool readable(const FileArray& array) {
  try {
    const FileElements elements = array.elements();
    if (array.dtype == DType::kBool)
      check_bools(array.origin, elements.bytes, shape_bytes(array.origin, array.shape, 1));
    return true;
  } catch (const Error& e) {
    expect_message_of_file(e);
    return false;
  }
}

// Reads every array as every type that its hint could name.
void read_arrays(const ArrayFile& file) {
  for (const FileArray& array : file.arrays) {
    expect(file.find(array.name) != nullptr, "an array that its name does not find");
    if (!readable(array)) continue;
    bool read = false;
    for (int t = -1; t <= static_cast<int>(DType::kBool); ++t) {
      const auto hint = t < 0 ? std::nullopt : std::optional(static_cast<DType>(t));
      try {
        const Array elements = array.array(hint);
        volatile double sum = 0;
        for (Index i = 0; i < elements.size(); ++i) sum = sum + elements.at(i);
        read = true;
      } catch (const Error&) {
        expect(!array.dtype || hint, "an array of known type that cannot be read");
      }
    }
    expect(read, "an array that no hint can read");
  }
}

template <class Parse>
void parse(Parse parser, const std::uint8_t* data, std::size_t size) {
  ArrayFile file;
  try {
    file = parser(file_of(data, size));
  } catch (const Error& e) {
    expect_message_of_file(e);
    return;
  }
  read_arrays(file);
}

}  // namespace

void npy(const std::uint8_t* data, std::size_t size) { parse(parse_npy, data, size); }
void npz(const std::uint8_t* data, std::size_t size) { parse(parse_npz, data, size); }
void safetensors(const std::uint8_t* data, std::size_t size) {
  parse(parse_safetensors, data, size);
}

void json(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  nlohmann::json value;
  try {
    value = parse_json("input", text);
  } catch (const Error& e) {
    expect(std::strchr(e.what(), '\n') == nullptr, "a message of several lines");
    expect(std::strlen(e.what()) < 600, "a message that is too long");
    return;
  }
  expect(parse_json("input", value.dump()) == value, "a value that its own text does not give");
}

}  // namespace kref::fuzz
