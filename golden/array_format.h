// SPDX-License-Identifier: Apache-2.0
// What the readers of the three formats share. Not for users: array_file.h is.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "golden/array_file.h"
#include "golden/file_bytes.h"

namespace kref {

// Each refuses, with Error, whatever is not exactly its format. `file` stays alive in the arrays.
ArrayFile parse_npy(const FileBytes& file);
ArrayFile parse_npz(const FileBytes& file);
ArrayFile parse_safetensors(const FileBytes& file);
// Whichever of them the content calls for.
ArrayFile parse_array_file(const FileBytes& file);

// Bytes of an array of that shape. Error, starting with `origin`, on a rank above 6 and on sizes
// past 2^62 bytes, also where an extent of 0 hides them (strides must not overflow either).
std::size_t shape_bytes(const std::string& origin, std::span<const Index> shape,
                        std::size_t item_bytes);

// Error when a byte is neither 0 nor 1: as a C++ bool it would be undefined behaviour.
void check_bools(const std::string& origin, const unsigned char* bytes, std::size_t count);

// The name a zip member gives its array, without ".npy". Error when it is absolute, climbs up by
// "..", names a folder, or is not UTF-8.
std::string array_name_of_member(const std::string& origin, const std::string& member);

// --- .npy ---

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

// The longest header that is read. numpy's are some hundred bytes, its own limit is 10,000.
inline constexpr std::size_t kNpyLongestHeader = std::size_t{1} << 20;

// Offset of the data of a .npy stream of `total` bytes, from its first bytes: 12, or all if fewer.
// Error when they are not the start of one or the stream ends before its data.
std::size_t npy_data_offset(const std::string& origin, std::string_view start, std::size_t total);

// The array that the header describes, without its bytes. `head` is the stream up to the data.
// Error when the header is malformed or does not ask for exactly `data_bytes` bytes.
FileArray parse_npy_header(const std::string& origin, std::string_view head,
                           std::size_t data_bytes);

// The stream up to the data, for `array` in format version 1.0.
std::string npy_head(const ArrayRef& array);

// --- safetensors ---

// The key of the header that is no tensor.
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

// The longest header, as the reference implementation has it.
inline constexpr std::size_t kSafetensorsLongestHeader = 100'000'000;

}  // namespace kref
