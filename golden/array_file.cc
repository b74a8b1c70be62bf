// SPDX-License-Identifier: Apache-2.0
#include "golden/array_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "dsl/tensor.h"
#include "golden/array_format.h"
#include "golden/file_text.h"

namespace kref {
namespace {

static_assert(std::endian::native == std::endian::little,
              "readers and writers copy little-endian bytes as they are");

// Copies `count` elements of Bits from a column-major array of the shape to a row-major one.
// Neither order is kind to the cache on both sides, hence the squares over the first and the last
// dimension, which are contiguous in one array each.
template <class Bits>
void from_fortran(const unsigned char* from, std::span<const Index> shape, unsigned char* to) {
  constexpr Index kSquare = 32;
  const std::size_t rank = shape.size(), last = rank - 1;
  Shape<kMaxRank> in{}, out{}, at{};
  for (std::size_t d = 0, stride = 1; d < rank; stride *= static_cast<std::size_t>(shape[d++])) {
    in[d] = static_cast<Index>(stride);
  }
  for (std::size_t d = rank, stride = 1; d-- > 0; stride *= static_cast<std::size_t>(shape[d])) {
    out[d] = static_cast<Index>(stride);
  }
  for (bool more = true; more;) {
    Index in_base = 0, out_base = 0;
    for (std::size_t d = 1; d < last; ++d) in_base += at[d] * in[d], out_base += at[d] * out[d];
    for (Index i0 = 0; i0 < shape[0]; i0 += kSquare) {
      for (Index j0 = 0; j0 < shape[last]; j0 += kSquare) {
        for (Index i = i0; i < std::min(i0 + kSquare, shape[0]); ++i) {
          for (Index j = j0; j < std::min(j0 + kSquare, shape[last]); ++j) {
            std::memcpy(to + (out_base + i * out[0] + j) * static_cast<Index>(sizeof(Bits)),
                        from + (in_base + i + j * in[last]) * static_cast<Index>(sizeof(Bits)),
                        sizeof(Bits));
          }
        }
      }
    }
    more = false;
    for (std::size_t d = last; d-- > 1 && !more;) {
      more = ++at[d] < shape[d];
      if (!more) at[d] = 0;
    }
  }
}

template <class Bits>
void reverse_bytes(unsigned char* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::reverse(bytes + i * sizeof(Bits), bytes + (i + 1) * sizeof(Bits));
  }
}

template <class F>
void with_bits(std::size_t item_bytes, F&& f) {
  switch (item_bytes) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

// The type the elements have, from what the file and the user say.
DType element_type(const FileArray& array, std::optional<DType> hint) {
  if (array.dtype) {
    KREF_CHECK(!hint || *hint == *array.dtype, array.origin, ": element type is ",
               name_of(*array.dtype), " (", quote(array.descr), " in the file), but --dtype says ",
               name_of(*hint));
    return *array.dtype;
  }
  KREF_CHECK(hint, array.origin, ": element type ", quote(array.descr), " stands for any type of ",
             array.item_bytes, array.item_bytes == 1 ? " byte" : " bytes",
             "; say which with --dtype, e.g. ",
             array.item_bytes == 1 ? "NAME=f8_e4m3" : "NAME=bf16");
  KREF_CHECK(size_of(*hint) == array.item_bytes, array.origin, ": element type ",
             quote(array.descr), " has ", array.item_bytes,
             array.item_bytes == 1 ? " byte" : " bytes", ", but --dtype says ", name_of(*hint),
             " of ", size_of(*hint));
  KREF_CHECK(is_float(*hint) || array.descr.find('f') == std::string::npos, array.origin,
             ": element type ", quote(array.descr), " is a float, but --dtype says ",
             name_of(*hint));
  return *hint;
}

}  // namespace

Array FileArray::array(std::optional<DType> hint) const {
  const DType type = element_type(*this, hint);
  const std::size_t size = shape_bytes(origin, shape, item_bytes);
  const FileElements in = elements();
  if (type == DType::kBool) check_bools(origin, in.bytes, size);
  if (size == 0) return Array(type, shape);

  const bool reorder = fortran_order && shape.size() > 1;
  const bool swap = big_endian && item_bytes > 1;
  const bool aligned = reinterpret_cast<std::uintptr_t>(in.bytes) % item_bytes == 0;
  if (!reorder && !swap && aligned && (!in.mapped || size >= kMapBytes))
    return Array(type, shape, in.owner, in.bytes);

  Array out(type, shape);
  auto* const to = static_cast<unsigned char*>(out.mutable_data());
  with_bits(item_bytes, [&]<class Bits>() {
    if (reorder) {
      from_fortran<Bits>(in.bytes, shape, to);
    } else {
      std::memcpy(to, in.bytes, size);
    }
    if (swap) reverse_bytes<Bits>(to, size / sizeof(Bits));
  });
  return out;
}

const FileArray* ArrayFile::find(const std::string& name) const {
  for (const FileArray& a : arrays) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

std::size_t shape_bytes(const std::string& origin, std::span<const Index> shape,
                        std::size_t item_bytes) {
  KREF_CHECK(shape.size() <= kMaxRank, origin, ": shape of rank ", shape.size(),
             ", expected at most ", kMaxRank);
  constexpr std::size_t kMost = std::size_t{1} << 62;
  std::size_t total = item_bytes;
  bool empty = false;
  for (const Index extent : shape) {
    KREF_CHECK(extent >= 0, origin, ": shape ", shape_string(shape), " has a negative dimension");
    if (extent == 0) {
      empty = true;
      continue;
    }
    KREF_CHECK(total <= kMost / static_cast<std::size_t>(extent), origin, ": shape ",
               shape_string(shape), " is too large: more than 2^62 bytes");
    total *= static_cast<std::size_t>(extent);
  }
  return empty ? 0 : total;
}

void check_bools(const std::string& origin, const unsigned char* bytes, std::size_t count) {
  constexpr std::size_t kChunk = 4096;  // each looked at as a whole first, which is quick
  for (std::size_t start = 0; start < count; start += kChunk) {
    const std::size_t end = std::min(count, start + kChunk);
    unsigned char seen = 0;
    for (std::size_t i = start; i < end; ++i) seen = static_cast<unsigned char>(seen | bytes[i]);
    if (seen <= 1) continue;
    for (std::size_t i = start; i < end; ++i) {
      KREF_CHECK(bytes[i] <= 1, origin, ": BOOL value in byte ", i, " of the data is ",
                 int{bytes[i]}, ", expected 0 or 1");
    }
  }
}

ArrayFile parse_array_file(const FileBytes& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data), file.size);
  KREF_CHECK(!text.empty(), file.path, ": is empty (0 bytes), expected .npy, .npz or safetensors");
  if (text.starts_with(kNpyMagic)) return parse_npy(file);
  KREF_CHECK(!kNpyMagic.starts_with(text), file.path, ": ends inside the .npy magic, after ",
             text.size(), " bytes");
  using namespace std::string_view_literals;
  // A member, or the end of an archive that has none.
  if (text.starts_with("PK\3\4"sv) || text.starts_with("PK\5\6"sv)) return parse_npz(file);

  std::uint64_t length = 0;
  if (text.size() >= sizeof(length)) std::memcpy(&length, text.data(), sizeof(length));
  const bool fits = text.size() >= sizeof(length) && length <= text.size() - sizeof(length);
  if (fits || (text.size() > sizeof(length) && text[sizeof(length)] == '{'))
    return parse_safetensors(file);
  throw Error(detail::cat(
      file.path, ": not .npy (no magic), not .npz (no zip signature), not safetensors (",
      text.size() < sizeof(length) ? "too short for a header length, " : "header length ",
      text.size() < sizeof(length) ? "" : std::to_string(length) + ", ", "file of ", text.size(),
      " bytes)"));
}

ArrayFile read_array_file(const std::string& path) {
  try {
    return parse_array_file(read_file(path));
  } catch (const std::bad_alloc&) {
    throw Error(path + ": does not fit into memory");
  }
}

}  // namespace kref
