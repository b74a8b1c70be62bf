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
  bool batch = false;  // of Grid::vmap
  Index stride = 1;    // steps between neighbouring coordinates
};

struct Operand {
  const char* name = "";
  Kind kind = Kind::kIn;
  MutableArrayRef array;     // scratch: element type, rank and extents
  std::size_t batches = 0;   // leading dimensions that belong to batches: no Ref has them
  Shape<kMaxRank> block{};   // extents of a whole block
  Shape<kMaxRank> unit{};    // elements between block indices: the extent, or 1 (Element)
  Shape<kMaxRank> low{};     // elements of padding before the array
  Shape<kMaxRank> blocks{};  // how many block indices there are in each dimension
  // What visits are counted in: blocks, and elements of the array in Element dimensions.
  Shape<kMaxRank> cells{};
  Shape<kMaxRank> pitch{};     // where `even`: bytes from one block to the next
  Shape<kMaxRank> window{};    // strides of a copied block: dense
  Index window_size = 1;       // its elements
  std::uint32_t squeezed = 0;  // bit d: dimension d
  std::uint32_t elements = 0;  // the same: an Element dimension
  Buffered mode;
  IndexMapData map;
  std::uint32_t plain = 0;        // bit d: the index of dimension d is a coordinate
  std::uint32_t axes = 0;         // bit a: the block may move when axis a moves
  std::size_t element_bytes = 0;  // set with the array: the loop over steps wants no switch
  bool even = false;              // every block is a whole one inside the array
  bool copies = false;            // shares memory with another operand: never viewed in place
  bool strided = false;           // elements of the last dimension lie apart: never viewed in place
  bool own_window = false;        // an input whose window a body may write
  bool tabled = false;  // an output whose visits only going through all steps can tell apart

  std::size_t rank() const { return array.rank; }
  bool moves() const { return kind != Kind::kScratch && kind != Kind::kPrefetch; }
  bool any_revisit() const { return mode.revisit == Revisit::kAny; }
  bool writes() const { return kind == Kind::kOut || kind == Kind::kInOut; }
  bool reads() const { return kind == Kind::kIn || kind == Kind::kInOut; }
  Index block_count() const;
  Index cell_count() const;
  // The block index of the step whose coordinates `step` has, one number a dimension, those of
  // batches included. A callable may throw.
  void index_of(const Step& step, const Index* coordinates, Index* block) const;
};

// The cells that a block covers, from the first to before the last of each dimension.
struct CellBox {
  CellBox(const Operand& operand, const Index* block);
  Shape<kMaxRank> begin{}, end{};
  // Calls f(number) for each of them, in row-major order.
  template <class F>
  void for_each(const Operand& operand, F f) const {
    const std::size_t r = operand.rank();
    Shape<kMaxRank> at = begin;
    for (std::size_t d = 0; d < r; ++d) {
      if (begin[d] >= end[d]) return;
    }
    while (true) {
      Index n = 0;
      for (std::size_t d = 0; d < r; ++d) n = n * operand.cells[d] + at[d];
      f(n);
      std::size_t d = r;
      while (d-- > 0) {
        if (++at[d] < end[d]) break;
        at[d] = begin[d];
      }
      if (d >= r) return;
    }
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

// The operand that was declared; Errors of Grid::in and its like. `name` is kept.
Operand operand_of(const Program& program, const Declaration& declared, const char* name);
// Strides and number of elements of a copied block; Error where 64 bits do not count its bytes.
void set_window(Operand& operand, const std::string& who);

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
// Do the expressions of an output with Element windows say that two visits never share an element?
bool apart_windows(const Program& program, const Operand& operand);
// Error on an out or in_out whose elements share memory, or that shares memory with another
// operand without being the same view; marks those that are as copies.
void check_memory(Program& program);
// Error on an aliased pair whose maps, given as data, let one coordinate of a parallel axis read
// what another one writes; sets one_thread where a callable leaves that open.
void check_aliases(Program& program);
// Error on block shapes no TPU accepts, and on a total above options.vmem_bytes.
void check_tpu(const Program& program, const CheckOptions& options);
// What a TPU has against the program; Error on a chip that is not known.
std::vector<TpuWarning> tpu_warnings(const Program& program, const char* chip);
// Bytes of windows in all their buffers and of scratch, padded to tiles, and of tables.
void tpu_bytes(const Program& program, Index& vmem, Index& smem);

}  // namespace kref::detail
