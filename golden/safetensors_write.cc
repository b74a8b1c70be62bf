// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "golden/array_format.h"
#include "golden/file_text.h"

namespace kref {

using nlohmann::json;

void write_safetensors(const std::string& path, std::span<const NamedArray> arrays,
                       const std::map<std::string, std::string>& metadata) {
  std::unordered_set<std::string> names;
  for (const NamedArray& a : arrays) {
    KREF_CHECK(is_utf8(a.name), path, ": tensor name ", quote(a.name), " is not UTF-8");
    KREF_CHECK(a.name != kSafetensorsMetadata, path, ": no tensor can have the name '",
               kSafetensorsMetadata, "'");
    KREF_CHECK(names.insert(a.name).second, path, ": two tensors have the name ", quote(a.name));
  }
  for (const auto& [key, value] : metadata) {
    KREF_CHECK(is_utf8(key) && is_utf8(value), path, ": metadata ", quote(key), " is not UTF-8");
  }
  // Widest first: with a header of a multiple of 8 bytes every tensor then lies aligned.
  std::vector<const NamedArray*> order;
  for (const NamedArray& a : arrays) order.push_back(&a);
  std::sort(order.begin(), order.end(), [](const NamedArray* a, const NamedArray* b) {
    const std::size_t x = size_of(a->array.dtype), y = size_of(b->array.dtype);
    return x != y ? x > y : a->name < b->name;
  });

  std::string header = "{";
  if (!metadata.empty()) header += json(kSafetensorsMetadata).dump() + ":" + json(metadata).dump();
  std::size_t offset = 0;
  for (const NamedArray* a : order) {
    const std::size_t bytes = static_cast<std::size_t>(a->array.size()) * size_of(a->array.dtype);
    if (header.size() > 1) header += ',';
    header += json(a->name).dump() + ":{\"dtype\":\"" + name_of(a->array.dtype) +
              "\",\"shape\":" + shape_string(a->array.shape()) + ",\"data_offsets\":[" +
              std::to_string(offset) + ',' + std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  KREF_CHECK(header.size() <= kSafetensorsLongestHeader, path,
             ": names and metadata need a header of ", header.size(), " bytes, expected at most ",
             kSafetensorsLongestHeader);

  const std::uint64_t length = header.size();
  FileWriter file(path);
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const NamedArray* a : order) {
    const DenseBytes data = dense_bytes(a->array);
    file.write(data.data, data.size);
  }
  file.commit();
}

}  // namespace kref
