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

Contents save(const Program& program) {
  Contents out(program.operands.size());
  for (std::size_t id = 0; id < out.size(); ++id) {
    const Operand& o = program.operands[id];
    if (!o.writes() || o.array.size() == 0) continue;
    out[id].resize(static_cast<std::size_t>(o.array.size()) * o.element_bytes);
    copy_block(out[id].data(), strides_of_contents(o).data(), o.array.data, o.array.strides.data(),
               o.array.shape(), o.element_bytes);
  }
  return out;
}

void restore(const Program& program, const Contents& contents) {
  for (std::size_t id = 0; id < contents.size(); ++id) {
    const Operand& o = program.operands[id];
    if (contents[id].empty()) continue;
    copy_block(o.array.data, o.array.strides.data(), contents[id].data(),
               strides_of_contents(o).data(), o.array.shape(), o.element_bytes);
  }
}

}  // namespace kref::detail
