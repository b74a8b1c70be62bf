// SPDX-License-Identifier: Apache-2.0
// What the TPU compiler would refuse although an interpreter runs it: jax/_src/pallas/mosaic checks
// block shapes in its lowering, and windows must fit into VMEM.
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

// Bytes of a buffer of that shape in VMEM: the last two dimensions are padded to tiles.
Index padded_bytes(const Operand& o) {
  const std::size_t r = o.rank();
  const Index packing = std::max<Index>(1, 32 / bits_of(o));
  Index bytes = static_cast<Index>(o.element_bytes);
  for (std::size_t d = 0; d + 2 < r; ++d) bytes *= o.block[d];
  const auto padded = [](Index n, Index to) { return cdiv(n, to) * to; };
  if (r >= 2) {
    Index sublanes = packing;
    while (sublanes < std::min<Index>(o.block[r - 2], 8)) sublanes *= 2;
    return bytes * padded(o.block[r - 2], sublanes) * padded(o.block[r - 1], 128);
  }
  return bytes * padded(r == 0 ? 1 : o.block[0], 128 * packing);
}

}  // namespace

void check_tpu(const Program& program, const CheckOptions& options) {
  Index total = 0;
  std::string parts;
  for (const Operand& o : program.operands) {
    if (options.tpu_shapes && o.kind != Kind::kScratch) check_shape(program, o);
    const Index buffers = o.kind == Kind::kScratch || trivial(o) ? 1 : 2;
    total += buffers * padded_bytes(o);
    parts += cat(parts.empty() ? "" : ", ", o.name, ' ', buffers, " x ", padded_bytes(o));
  }
  KREF_CHECK(options.vmem_bytes == 0 || total <= options.vmem_bytes, "grid '", program.name,
             "': windows and scratch need ", total, " bytes of VMEM, expected at most ",
             options.vmem_bytes, "\n  ", parts);
}

}  // namespace kref::detail
