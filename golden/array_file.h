// SPDX-License-Identifier: Apache-2.0
// Array files in and out: .npy, .npz and .safetensors, each read and written whole. A file that is
// not exactly what its format says is refused, also where other readers are lenient: nothing is
// skipped, guessed or cut off.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsl/array.h"

namespace kref {

// The elements of an array as its file holds them: in the file's order, at any alignment.
struct FileElements {
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
  const unsigned char* bytes = nullptr;
  bool mapped = false;  // `bytes` lie in a mapped file
};

// One array of a file. Its elements stay as the file holds them until array() is called; of a .npz
// only then is the member inflated and its checksum compared, so that the others cost nothing.
struct FileArray {
  std::string name;   // of the tensor or zip member (without ".npy"); "" in a .npy file
  std::string descr;  // element type as the file spells it: "<f4", "|V2", "BF16"
  // Absent for the types that numpy has no name for and that ml_dtypes writes as void ("<V2",
  // "|V2", "<V1", "|V1") or as "<f1": array() needs a hint for them.
  std::optional<DType> dtype;
  std::size_t item_bytes = 0;  // bytes of one element
  std::vector<Index> shape;    // rank 0 to 6

  // The elements: native byte order, row-major, aligned. Views the file where that is possible and
  // worth it (1 MiB and more of aligned, little-endian, row-major data), else a copy.
  // `hint` is the type the user gives (--dtype). Error when it is missing but needed, has another
  // size than the elements, or contradicts the file; for a BOOL byte other than 0 and 1; and for a
  // corrupt member of a .npz.
  Array array(std::optional<DType> hint = std::nullopt) const;

  std::string origin;                      // "x.npz: member 'x'": the start of every message
  std::function<FileElements()> elements;  // reads them. Error when they are corrupt
  bool big_endian = false;
  bool fortran_order = false;  // the first index runs fastest
};

// A file that was read, whole.
struct ArrayFile {
  enum class Format { kNpy, kNpz, kSafetensors };

  std::string path;  // as given
  Format format = Format::kNpy;
  std::vector<FileArray> arrays;                // in the order of the file's directory
  std::map<std::string, std::string> metadata;  // safetensors only

  // The array of that name; null when there is none.
  const FileArray* find(const std::string& name) const;
};

// Reads a file whose format is told from its content, never from its name. Error: one line that
// names the file, the tensor or member, and the reason.
ArrayFile read_array_file(const std::string& path);

// What goes into a file of several arrays.
struct NamedArray {
  std::string name;
  ArrayRef array;
};

// Writers. Arrays may be strided. The bytes of the file depend on nothing but the arguments. The
// file appears under its name only when it is complete; Error when it cannot be written (a full
// disk included), when two arrays share a name, or when a name does not fit the format.

// One array in format version 1.0. BF16 is written as "<V2" and F8 as "<V1", as ml_dtypes does, so
// reading them back needs a hint.
void write_npy(const std::string& path, const ArrayRef& array);
// Uncompressed, as numpy.savez writes it. Names: not absolute, without "..".
void write_npz(const std::string& path, std::span<const NamedArray> arrays);
// Widest elements first, so that every tensor is aligned. Names and metadata in UTF-8.
void write_safetensors(const std::string& path, std::span<const NamedArray> arrays,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace kref
