// SPDX-License-Identifier: Apache-2.0
// An operand from its declaration.
#include <algorithm>

#include "dsl/overlap.h"
#include "dsl/program.h"

namespace kref::detail {
namespace {

// The array and the index map with the dimensions of batches in front, the slowest first.
void set_array(const Program& p, Operand& o, const Declaration& declared) {
  std::vector<BatchAxis> batches(declared.batches.begin(), declared.batches.end());
  std::ranges::sort(batches, {}, &BatchAxis::id);
  o.batches = batches.size();
  o.array.dtype = declared.array.dtype;
  o.array.data = declared.array.data;
  o.array.rank = o.batches + declared.array.rank;
  o.map = declared.map;
  for (std::size_t d = declared.array.rank; d-- > 0;) {
    o.array.extents[o.batches + d] = declared.array.extents[d];
    o.array.strides[o.batches + d] = declared.array.strides[d];
    o.map.exprs[o.batches + d] = declared.map.exprs[d];
  }
  for (std::size_t n = 0; n < batches.size(); ++n) {
    const BatchAxis& b = batches[n];
    KREF_CHECK(b.grid == p.id, subject(p, o), ": a batch belongs to another grid");
    KREF_CHECK(n == 0 || batches[n - 1].id != b.id, subject(p, o), ": vmap '",
               p.axes[static_cast<std::size_t>(b.id)].name, "' takes two of its dimensions");
    o.array.extents[n] = o.blocks[n] = o.cells[n] = b.extent;
    o.array.strides[n] = b.stride;
    o.block[n] = o.unit[n] = 1;
    o.squeezed |= 1u << n;
    o.map.exprs[n] = Axis{b.id, b.extent, b.grid, p.axes[static_cast<std::size_t>(b.id)].name};
  }
  const std::size_t last = o.rank() - 1;
  o.strided = declared.array.rank > 0 && o.array.strides[last] != 1 && o.array.extents[last] > 1;
}

// Dimension `number` of the array as the body has it, d of the whole.
void set_dimension(const std::string& who, Operand& o, std::size_t d, const BlockDim& block,
                   std::size_t number) {
  const Index extent = block.extent(), size = o.array.extents[d];
  KREF_CHECK(size >= 0, who, ": dimension ", number, " of the array has extent ", size,
             ", expected >= 0");
  KREF_CHECK(extent > 0 || (extent == 0 && size == 0), who, ": block extent of dimension ", number,
             " is ", extent, ", expected > 0");
  o.block[d] = extent;
  o.squeezed |= static_cast<std::uint32_t>(block.is_squeezed()) << d;
  if (!block.is_element()) {
    o.unit[d] = extent;
    o.blocks[d] = o.cells[d] = size == 0 ? 0 : cdiv(size, extent);
    return;
  }
  const auto [low, high] = block.padding();
  Index padded = 0;
  KREF_CHECK(low >= 0 && high >= 0, who, ": padding of dimension ", number, " is (", low, ", ",
             high, "), expected >= 0");
  KREF_CHECK(
      !__builtin_add_overflow(size, low, &padded) && !__builtin_add_overflow(padded, high, &padded),
      who, ": padding of dimension ", number, " makes more elements than fit into 64 bits");
  KREF_CHECK(extent <= padded, who, ": Element window of dimension ", number, " has ", extent,
             " elements, expected at most the ", padded, " of the array with its padding");
  o.elements |= 1u << d;
  o.unit[d] = 1;
  o.low[d] = low;
  o.blocks[d] = padded - extent + 1;
  o.cells[d] = size;
}

void set_pitch(Operand& o) {
  o.even = o.elements == 0 && o.array.size() != 0;
  for (std::size_t d = 0; d < o.rank() && o.even; ++d) {
    o.even = o.array.extents[d] % o.block[d] == 0;
    // The stride of a single block may be any number.
    if (o.blocks[d] == 1) continue;
    o.pitch[d] = o.block[d] * o.array.strides[d] * static_cast<Index>(o.element_bytes);
  }
}

void check_mode(const std::string& who, const Operand& o, std::span<const BlockDim> block) {
  KREF_CHECK(o.mode.count >= 0 && o.mode.count <= 2, who, ": Buffered(", o.mode.count,
             "): only single (1) and double (2) buffering are supported");
  if (!o.any_revisit()) return;
  KREF_CHECK(o.writes(), who, ": Revisit::kAny is for what is written");
  KREF_CHECK(o.mode.count == 1, who, ": Revisit::kAny with ",
             o.mode.count == 0 ? "the usual" : "two",
             " buffers, expected Buffered{1}: the block is fetched again where it was stored");
  for (const BlockDim& b : block) {
    KREF_CHECK(!b.is_element(), who, ": Revisit::kAny with an Element dimension is not supported");
  }
}

}  // namespace

void check_batch_dimension(const char* batch, Index size, std::span<const Index> extents,
                           Index axis) {
  const auto rank = static_cast<Index>(extents.size());
  KREF_CHECK(axis >= 0 && axis < rank, "vmap '", batch, "': dimension ", axis,
             " of an array of rank ", rank, ", expected one of 0:", rank);
  const Index extent = extents[static_cast<std::size_t>(axis)];
  KREF_CHECK(extent == size, "vmap '", batch, "': dimension ", axis, " of ", shape_string(extents),
             " has extent ", extent, ", expected ", size);
}

void set_window(Operand& o, const std::string& who) {
  const auto element = static_cast<Index>(o.element_bytes);
  const std::string window = who + ": block";
  o.window_size = checked_product(window.c_str(), o.block.data(), o.rank(), element) / element;
  dense_strides(window.c_str(), o.block.data(), o.rank(), o.window.data());
}

Operand operand_of(const Program& program, const Declaration& declared, const char* name) {
  Operand o;
  o.name = name;
  o.kind = declared.kind;
  o.element_bytes = size_of(declared.array.dtype);
  o.own_window = declared.own_window;
  o.mode = declared.mode;
  set_array(program, o, declared);
  const std::string who = subject(program, o);
  check_mode(who, o, declared.block);
  for (std::size_t d = 0; d < declared.block.size(); ++d) {
    set_dimension(who, o, o.batches + d, declared.block[d], d);
    const AxisExpr& e = o.map.exprs[o.batches + d];
    KREF_CHECK(o.map.callable != nullptr || e.constant() || e.grid() == program.id, who, ": axis '",
               e.name(), "' in the index of dimension ", d, " belongs to another grid");
  }
  for (std::size_t d = 0; d < o.rank(); ++d) {
    const AxisExpr& e = o.map.exprs[d];
    if (e.constant()) continue;
    o.axes |= 1u << e.axis();
    if (e.same(AxisExpr(Axis{.id = e.axis()}))) o.plain |= 1u << d;
  }
  if (o.map.callable != nullptr) o.axes = ~0u;
  checked_product(who.c_str(), o.array.extents.data(), o.rank(),
                  static_cast<Index>(o.element_bytes));
  reach_of(who.c_str(), o.array);
  set_window(o, who);
  set_pitch(o);
  return o;
}

}  // namespace kref::detail
