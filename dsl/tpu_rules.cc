// SPDX-License-Identifier: Apache-2.0
// What the TPU compiler would refuse although an interpreter runs it: jax/_src/pallas/mosaic checks
// block shapes in its lowering, and windows must fit into VMEM.
#include <algorithm>
#include <iterator>

#include "dsl/program.h"
#include "dsl/tpu_memory.h"

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

using Chip = TpuMemory;
// What is taken where no chip is named.
constexpr const Chip& kUsual = *find_tpu_memory("v5e");

const Chip& chip_of(const Program& program, const char* name) {
  if (const Chip* found = find_tpu_memory(name)) return *found;
  std::string known;
  for (const Chip& c : kTpuMemories) known += cat(known.empty() ? "" : ", ", c.name);
  throw Error(
      cat("grid '", program.name, "': chip '", name, "' is not known, expected one of ", known));
}

// What that chip has against the operand's blocks: rule and sentence.
std::vector<TpuWarning> shape_warnings(const Program& program, const Operand& o, const Chip& chip) {
  const std::string who = subject(program, o);
  const std::size_t r = o.rank();
  if (r == 0) return {{"rank", who + ": a block of rank 0, expected rank 1 or more on a TPU"}};
  const std::string found = cat(who, ": block ", shape_string({o.block.data(), r}), " of array ",
                                shape_string(o.array.shape()), ", expected on a TPU ");
  std::vector<TpuWarning> out;
  const auto warn = [&](const char* rule, const std::string& what) {
    out.push_back({rule, found + what});
  };
  if (program.axes.empty() && !trivial(o)) {
    warn("no grid", "the whole array, since the grid has no axes");
  }
  const Index last = o.block[r - 1];
  const bool whole = last == o.array.extents[r - 1];
  if (r == 1) {
    const bool power = last > 0 && (last & (last - 1)) == 0;
    const Index least = std::max<Index>(128, 128 * 32 / bits_of(o)) * (chip.generation < 4 ? 2 : 1);
    if (!(whole || last % chip.row == 0 || (power && last >= least))) {
      warn("rank 1",
           cat("the whole array, a multiple of ", chip.row, ", or a power of two from ", least));
    }
  } else {
    const Index rows = o.block[r - 2];
    if (!((whole || last % 128 == 0) && (rows == o.array.extents[r - 2] || rows % 8 == 0))) {
      warn("tile",
           "its last two dimensions to be multiples of 8 and 128, or the whole of the array's");
    }
  }
  if (o.elements != 0) {
    const std::uint32_t all = (1u << r) - 1;
    if ((o.elements | o.squeezed) != all) {
      warn("element", "all of its dimensions that are not squeezed to be Elements, or none");
    }
    for (std::size_t d = 0; d < r; ++d) {
      if (o.low[d] == 0) continue;
      warn("padding", cat("no padding before the array, which has ", o.low[d],
                          " elements of it in dimension ", d));
    }
  }
  return out;
}

// True when the compiler can see that the block never changes: no axis of more than one coordinate.
bool stays(const Program& program, const Operand& o) {
  if (o.map.callable != nullptr) return false;
  return std::ranges::all_of(std::span(o.map.exprs).first(o.rank()), [&](const AxisExpr& e) {
    return e.constant() || program.axes[static_cast<std::size_t>(e.axis())].size <= 1;
  });
}

Index buffers_of(const Program& program, const Operand& o) {
  if (o.kind == Kind::kScratch || stays(program, o)) return 1;
  return o.mode.count == 0 ? 2 : o.mode.count;
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

struct Budget {
  Index vmem = 0, smem = 0;
  std::string parts;  // "x 2 x 4096, acc 1 x 4096"
};

Budget budget_of(const Program& program) {
  Budget out;
  for (const Operand& o : program.operands) {
    if (o.kind == Kind::kPrefetch) {
      out.smem += o.array.size() * static_cast<Index>(o.element_bytes);
      continue;
    }
    const Index buffers = buffers_of(program, o), bytes = padded_bytes(program, o);
    out.parts += cat(out.parts.empty() ? "" : ", ", o.name, ' ', buffers, " x ", bytes);
    for (Index b = 0; b < buffers; ++b) {
      KREF_CHECK(!__builtin_add_overflow(out.vmem, bytes, &out.vmem), subject(program, o),
                 ": windows and scratch need more than 2^63 - 1 bytes of VMEM\n  ", out.parts);
    }
  }
  return out;
}

// Empty when the windows and the scratch fit.
std::string vmem_fault(const Program& program, const Budget& need, Index most, const char* chip) {
  if (need.vmem <= most) return "";
  return cat("grid '", program.name, "': windows and scratch need ", need.vmem,
             " bytes of VMEM, expected at most ", most,
             chip != nullptr ? cat(", the VMEM of a TensorCore of ", chip) : "", "\n  ",
             need.parts);
}

}  // namespace

void check_tpu(const Program& program, const CheckOptions& options) {
  const bool named = options.chip != nullptr;
  const Index most = named ? chip_of(program, options.chip).vmem_mib << 20 : options.vmem_bytes;
  KREF_CHECK(!named || options.vmem_bytes == 0, "grid '", program.name, "': chip '",
             named ? options.chip : "", "' and vmem_bytes ", options.vmem_bytes,
             " are both given, expected one of them");
  for (const Operand& o : program.operands) {
    if (!options.tpu_shapes || !o.moves()) continue;
    const auto warnings =
        shape_warnings(program, o, named ? chip_of(program, options.chip) : kUsual);
    if (!warnings.empty()) throw Error(warnings.front().text);
  }
  if (most == 0) return;
  const std::string fault = vmem_fault(program, budget_of(program), most, options.chip);
  if (!fault.empty()) throw Error(fault);
}

std::vector<TpuWarning> tpu_warnings(const Program& program, const char* name) {
  const Chip& chip = name == nullptr ? kUsual : chip_of(program, name);
  std::vector<TpuWarning> out;
  for (const Operand& o : program.operands) {
    if (o.moves()) std::ranges::copy(shape_warnings(program, o, chip), std::back_inserter(out));
  }
  const Budget need = budget_of(program);
  const std::string fault = vmem_fault(program, need, chip.vmem_mib << 20, chip.name);
  if (!fault.empty()) out.push_back({"vmem", fault});
  if (need.smem > chip.smem_kib << 10) {
    out.push_back({"smem", cat("grid '", program.name, "': tables need ", need.smem,
                               " bytes of SMEM, expected at most ", chip.smem_kib << 10,
                               ", the SMEM of a TensorCore of ", chip.name)});
  }
  return out;
}

void tpu_bytes(const Program& program, Index& vmem, Index& smem) {
  const Budget need = budget_of(program);
  vmem = need.vmem, smem = need.smem;
}

}  // namespace kref::detail
