// SPDX-License-Identifier: Apache-2.0
// Every file of tests/files against files.json, which another implementation wrote.
#include "golden/array_file.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "golden/json_guard.h"

namespace kref {
namespace {

std::string data_path(const std::string& name) {
  return std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/files/" + name;
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string fnv1a64(const Array& array) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* const bytes = static_cast<const unsigned char*>(array.data());
  for (std::size_t i = 0; i < array.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// A number of files.json: a JSON integer, or a float as hexadecimal text.
long double number(const nlohmann::json& v) {
  if (v.is_number_unsigned()) return static_cast<long double>(v.get<std::uint64_t>());
  if (v.is_number_integer()) return static_cast<long double>(v.get<std::int64_t>());
  return std::strtold(v.get<std::string>().c_str(), nullptr);
}

long double element(const Array& array, Index i) {
  if (array.dtype() == DType::kI64)
    return static_cast<long double>(array.elements<std::int64_t>()[static_cast<std::size_t>(i)]);
  return array.at(i);
}

bool same(long double a, long double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void check_array(const FileArray& found, const nlohmann::json& expected) {
  DType type = DType::kF32;
  REQUIRE(parse_dtype(expected["dtype"].get<std::string>().c_str(), type));
  const bool hint = expected.value("hint", false);
  CHECK(found.dtype.has_value() == !hint);
  if (hint) CHECK_THROWS_AS(found.array(), Error);
  const Array array = found.array(hint ? std::optional(type) : std::nullopt);
  CHECK(array.dtype() == type);
  CHECK(std::vector<Index>(array.shape().begin(), array.shape().end()) ==
        expected["shape"].get<std::vector<Index>>());
  CHECK(reinterpret_cast<std::uintptr_t>(array.data()) % size_of(type) == 0);
  CHECK(fnv1a64(array) == expected["fnv1a64"].get<std::string>());
  if (array.size() == 0) return;
  CHECK(same(element(array, 0), number(expected["first"])));
  CHECK(same(element(array, array.size() - 1), number(expected["last"])));
  if (!expected.contains("sum")) return;
  // The sum of the f64 or integer values; the order of an f64 sum is that of numpy, hence the
  // slack.
  long double sum = 0, magnitude = 0;
  for (Index i = 0; i < array.size(); ++i) {
    sum += element(array, i);
    magnitude += std::fabs(element(array, i));
  }
  CHECK(std::fabs(sum - number(expected["sum"])) <= (is_float(type) ? magnitude * 0x1p-52L : 0.0L));
}

TEST_CASE("every file reads as its writer meant it") {
  JsonLimits limits;
  const nlohmann::json index = parse_json("files.json", file_text(data_path("files.json")), limits);
  int tensors = 0;
  for (const nlohmann::json& file : index["files"]) {
    const std::string name = file["file"];
    CAPTURE(name);
    const ArrayFile found = read_array_file(data_path("files/" + name));
    const std::string format = file["format"];
    CHECK(found.format == (format == "npy"   ? ArrayFile::Format::kNpy
                           : format == "npz" ? ArrayFile::Format::kNpz
                                             : ArrayFile::Format::kSafetensors));
    CHECK(found.arrays.size() == file["tensors"].size());
    CHECK(nlohmann::json(found.metadata) == file.value("metadata", nlohmann::json::object()));
    for (const nlohmann::json& tensor : file["tensors"]) {
      const std::string tensor_name = tensor["name"];
      CAPTURE(tensor_name);
      const FileArray* const array = found.find(tensor_name);
      REQUIRE(array != nullptr);
      check_array(*array, tensor);
      ++tensors;
    }
  }
  CHECK(index["files"].size() >= 80);
  CHECK(tensors >= 400);
}

TEST_CASE("hints: needed, of the right size, not against the file") {
  const FileArray bf16 = read_array_file(data_path("files/hint_bf16.npy")).arrays[0];
  CHECK(bf16.array(DType::kBF16).at(0) == -12.5);
  CHECK(bf16.array(DType::kF16).dtype() == DType::kF16);
  CHECK_THROWS_WITH_AS(bf16.array(DType::kF32),
                       doctest::Contains("'<V2' has 2 bytes, but --dtype says F32 of 4"), Error);
  const FileArray f8 = read_array_file(data_path("files/hint_f8_e5m2.npy")).arrays[0];
  CHECK(f8.array(DType::kF8E5M2).at(0) == -7.0);
  CHECK_THROWS_WITH_AS(f8.array(DType::kI8),
                       doctest::Contains("'<f1' is a float, but --dtype says I8"), Error);
  const FileArray f32 = read_array_file(data_path("files/le_f4.npy")).arrays[0];
  CHECK(f32.array(DType::kF32).dtype() == DType::kF32);
  CHECK_THROWS_WITH_AS(f32.array(DType::kI32),
                       doctest::Contains("is F32 ('<f4' in the file), but --dtype says I32"),
                       Error);
}

TEST_CASE("what is no file is refused by name") {
  CHECK_THROWS_WITH_AS(read_array_file(data_path("no such file")),
                       doctest::Contains("no such file: cannot be opened"), Error);
  CHECK_THROWS_WITH_AS(read_array_file(data_path("files")), doctest::Contains("is a directory"),
                       Error);
  CHECK_THROWS_WITH_AS(read_array_file("/dev/zero"), doctest::Contains("is not a regular file"),
                       Error);
}

}  // namespace
}  // namespace kref
