// SPDX-License-Identifier: Apache-2.0
// What the TPU compiler would refuse although an interpreter runs it: jax/_src/pallas/mosaic checks
// block shapes in its lowering, and windows must fit into VMEM.
#include <algorithm>
#include <cstring>

#include "dsl/program.h"

namespace kref::detail {
namespace {

Index bits_of(const Operand& o) {
  return o.array.dtype == DType::kBool ? 32 : static_cast<Index>(8 * o.element_bytes);
}

// One block, the whole array, at an index that is written as zero.
bool trivial(const Operand& o) {
  if (o.map.callable != nullptr) return false;
  for (std::size_t d = 0; d < o.rank(); ++d) {
    const AxisExpr& e = o.map.exprs[d];
    if (o.block[d] != o.array.extents[d] || !e.constant() || e(nullptr) != 0) return false;
  }
  return true;
}

void check_shape(const Program& program, const Operand& o) {
  const std::string who = subject(program, o);
  const std::size_t r = o.rank();
  KREF_CHECK(r > 0, who, ": a block of rank 0, expected rank 1 or more on a TPU");
  const std::string found = cat(": block ", shape_string({o.block.data(), r}), " of array ",
                                shape_string(o.array.shape()), ", expected on a TPU ");
  KREF_CHECK(!program.axes.empty() || trivial(o), who, found,
             "the whole array, since the grid has no axes");
  const Index last = o.block[r - 1];
  const bool whole = last == o.array.extents[r - 1];
  if (r == 1) {
    const bool power = last > 0 && (last & (last - 1)) == 0;
    const Index least = std::max<Index>(128, 128 * 32 / bits_of(o));
    KREF_CHECK(whole || last % 1024 == 0 || (power && last >= least), who, found,
               "the whole array, a multiple of 1024, or a power of two from ", least);
    return;
  }
  const Index rows = o.block[r - 2];
  KREF_CHECK((whole || last % 128 == 0) && (rows == o.array.extents[r - 2] || rows % 8 == 0), who,
             found,
             "its last two dimensions to be multiples of 8 and 128, or the whole of the array's");
}

// The multiple of `to` that n rounds up to, or n where that does not fit into an Index.
Index padded(Index n, Index to) {
  Index out = 0;
  return __builtin_mul_overflow(cdiv(n, to), to, &out) ? n : out;
}

// Bytes of a buffer of that shape in VMEM: the last two dimensions are padded to tiles.
Index padded_bytes(const Program& program, const Operand& o) {
  const std::size_t r = o.rank();
  const Index packing = std::max<Index>(1, 32 / bits_of(o));
  Shape<kMaxRank> shape = o.block;
  if (r >= 2) {
    Index sublanes = packing;
    while (sublanes < std::min<Index>(o.block[r - 2], 8)) sublanes *= 2;
    shape[r - 2] = padded(o.block[r - 2], sublanes);
    shape[r - 1] = padded(o.block[r - 1], 128);
  } else {
    shape[0] = padded(r == 0 ? 1 : o.block[0], 128 * packing);
  }
  const std::string who = subject(program, o) + ": block padded to tiles";
  return checked_product(who.c_str(), shape.data(), std::max<std::size_t>(r, 1),
                         static_cast<Index>(o.element_bytes));
}

// VMEM of one TensorCore (jax/_src/tpu_info.py).
struct Chip {
  const char* name;
  Index vmem_mib;
};
constexpr Chip kChips[] = {{"v2", 16},   {"v3", 16},  {"v4i", 16},  {"v4", 16},
                           {"v5e", 128}, {"v5p", 64}, {"v6e", 128}, {"7", 64},
                           {"7x", 64},   {"8i", 192}, {"8t", 128}};

Index vmem_of(const Program& program, const char* chip) {
  std::string known;
  for (const Chip& c : kChips) {
    if (std::strcmp(c.name, chip) == 0) return c.vmem_mib << 20;
    known += cat(known.empty() ? "" : ", ", c.name);
  }
  throw Error(
      cat("grid '", program.name, "': chip '", chip, "' is not known, expected one of ", known));
}

}  // namespace

void check_tpu(const Program& program, const CheckOptions& options) {
  const bool named = options.chip != nullptr;
  const Index most = named ? vmem_of(program, options.chip) : options.vmem_bytes;
  KREF_CHECK(!named || options.vmem_bytes == 0, "grid '", program.name, "': chip '",
             named ? options.chip : "", "' and vmem_bytes ", options.vmem_bytes,
             " are both given, expected one of them");
  Index total = 0;
  std::string parts;
  for (const Operand& o : program.operands) {
    if (options.tpu_shapes && o.kind != Kind::kScratch) check_shape(program, o);
    if (most == 0) continue;
    const Index buffers = o.kind == Kind::kScratch || trivial(o) ? 1 : 2;
    const Index bytes = padded_bytes(program, o);
    parts += cat(parts.empty() ? "" : ", ", o.name, ' ', buffers, " x ", bytes);
    for (Index b = 0; b < buffers; ++b) {
      KREF_CHECK(!__builtin_add_overflow(total, bytes, &total), subject(program, o),
                 ": windows and scratch need more than 2^63 - 1 bytes of VMEM\n  ", parts);
    }
  }
  KREF_CHECK(most == 0 || total <= most, "grid '", program.name, "': windows and scratch need ",
             total, " bytes of VMEM, expected at most ", most,
             named ? cat(", the VMEM of a TensorCore of ", options.chip) : "", "\n  ", parts);
}

}  // namespace kref::detail
