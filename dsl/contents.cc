// SPDX-License-Identifier: Apache-2.0
#include "dsl/contents.h"

#include "dsl/poison.h"

namespace kref::detail {

namespace {

Shape<kMaxRank> strides_of_contents(const Operand& o) {
  Shape<kMaxRank> strides{};
  dense_strides(o.name, o.array.extents.data(), o.rank(), strides.data());
  return strides;
}

}  // namespace

Contents save(const Program& program, std::uint64_t operands) {
  Contents out(program.operands.size());
  for (std::size_t id = 0; id < out.size(); ++id) {
    const Operand& o = program.operands[id];
    if (!o.writes() || (operands >> id & 1) == 0 || o.array.size() == 0) continue;
    out[id].size = static_cast<std::size_t>(o.array.size()) * o.element_bytes;
    out[id].memory = allocate(out[id].size);
    copy_block(out[id].memory.get(), strides_of_contents(o).data(), o.array.data,
               o.array.strides.data(), o.array.shape(), o.element_bytes);
  }
  return out;
}

void restore(const Program& program, const Contents& contents) {
  for (std::size_t id = 0; id < contents.size(); ++id) {
    const Operand& o = program.operands[id];
    if (contents[id].size == 0) continue;
    copy_block(o.array.data, o.array.strides.data(), contents[id].data(),
               strides_of_contents(o).data(), o.array.shape(), o.element_bytes);
  }
}

}  // namespace kref::detail
