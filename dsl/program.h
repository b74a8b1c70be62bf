// SPDX-License-Identifier: Apache-2.0
// What a Grid was told, with element types and ranks erased, so that its execution exists once.
// Internal to dsl/.
#pragma once

#include <string>
#include <vector>

#include "dsl/grid.h"

namespace kref::detail {

inline constexpr std::size_t kMaxAxes = 16;
inline constexpr std::size_t kMaxOperands = 64;  // sets of operands are bits of one word

struct ProgramAxis {
  const char* name;
  Index size;
  bool parallel;
  Index stride = 1;  // steps between neighbouring coordinates
};

struct Operand {
  const char* name = "";
  Kind kind = Kind::kIn;
  MutableArrayRef array;       // scratch: element type, rank and extents
  Shape<kMaxRank> block{};     // extents of a whole block
  Shape<kMaxRank> blocks{};    // how many blocks cover each dimension
  Shape<kMaxRank> window{};    // strides of a copied block: dense
  Index window_size = 1;       // its elements
  std::uint32_t squeezed = 0;  // bit d: dimension d
  IndexMapData map;
  std::uint32_t axes = 0;         // bit a: the block may move when axis a moves
  std::size_t element_bytes = 0;  // set with the array: the loop over steps wants no switch
  bool copies = false;            // shares memory with another operand: never viewed in place

  std::size_t rank() const { return array.rank; }
  bool writes() const { return kind == Kind::kOut || kind == Kind::kInOut; }
  bool reads() const { return kind == Kind::kIn || kind == Kind::kInOut; }
  Index block_count() const;
  // Place of a block in row-major order.
  Index block_number(const Index* at) const {
    Index n = 0;
    for (std::size_t d = 0; d < rank(); ++d) n = n * blocks[d] + at[d];
    return n;
  }
};

// Two operands over the same view, of which the first is written; indices into the operands.
struct Alias {
  std::size_t writer, reader;
};

struct Program {
  std::string name;
  std::uint32_t id = 0;
  std::vector<ProgramAxis> axes;
  std::vector<Operand> operands;
  bool prepared = false;  // prepare() has passed: nothing may be declared any more

  // Filled in by prepare().
  Index steps = 0;
  Index points = 0;  // combinations of parallel coordinates
  Index inner = 0;   // steps of each: steps = points * inner
  std::vector<Alias> aliases;
  bool one_thread = false;  // an aliased pair may carry something between points, so in order only

  // Checks what does not depend on data and the rules of index maps given as data; Error names the
  // first step that breaks one. Computes the fields above.
  void prepare();
  // The product of the axis sizes; Error when it does not fit.
  Index count_steps() const;
  void coordinates_of(Index step, Index* at) const;
};

// "grid 'matmul': output 'z'", the start of every message about an operand.
std::string subject(const Program& program, const Operand& operand);
// "step 7 (i=1, j=3)".
std::string step_text(const Program& program, Index step);
// "(4,0)".
std::string block_text(const Operand& operand, const Index* block);

// "(i, k / 2)", or "a callable".
std::string index_text(const Operand& operand);

// Error when `block` does not name a block of the operand.
void check_block(const Program& program, const Operand& operand, const Index* block, Index step);
// Error on an output whose map, given as data, comes back to a block it left, or gives one block to
// two coordinates of a parallel axis.
void check_visits(const Program& program, const Operand& operand);
// Error on an out or in_out whose elements share memory, or that shares memory with another
// operand without being the same view; marks those that are as copies.
void check_memory(Program& program);
// Error on an aliased pair whose maps, given as data, let one coordinate of a parallel axis read
// what another one writes; sets one_thread where a callable leaves that open.
void check_aliases(Program& program);
// Error on block shapes no TPU accepts, and on a total above options.vmem_bytes.
void check_tpu(const Program& program, const CheckOptions& options);

}  // namespace kref::detail
