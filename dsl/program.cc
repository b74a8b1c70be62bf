// SPDX-License-Identifier: Apache-2.0
#include "dsl/program.h"

#include <algorithm>

namespace kref::detail {

Index Operand::block_count() const { return checked_product(name, blocks.data(), rank()); }
Index Operand::cell_count() const { return checked_product(name, cells.data(), rank()); }

void Operand::index_of(const Step& step, const Index* coordinates, Index* index) const {
  const std::size_t written = map.callable == nullptr ? rank() : batches;
  for (std::size_t d = 0; d < written; ++d) index[d] = map.exprs[d](coordinates);
  if (map.callable != nullptr) map.call(map.callable.get(), step, index + batches);
}

CellBox::CellBox(const Operand& operand, const Index* block) {
  for (std::size_t d = 0; d < operand.rank(); ++d) {
    const bool element = (operand.elements >> d & 1) != 0;
    const Index start = element ? block[d] - operand.low[d] : block[d];
    begin[d] = std::max<Index>(start, 0);
    end[d] = element ? std::min(start + operand.block[d], operand.cells[d]) : start + 1;
  }
}

std::string subject(const Program& program, const Operand& operand) {
  constexpr const char* kKinds[] = {"input", "output", "in_out", "scratch", "table"};
  return cat("grid '", program.name, "': ", kKinds[static_cast<std::size_t>(operand.kind)], " '",
             operand.name, "'");
}

std::string step_text(const Program& program, Index step) {
  Shape<kMaxAxes> at{};
  program.coordinates_of(step, at.data());
  std::string out = cat("step ", step);
  for (std::size_t a = 0; a < program.axes.size(); ++a) {
    out += cat(a == 0 ? " (" : ", ", program.axes[a].name, '=', at[a]);
  }
  return program.axes.empty() ? out : out + ")";
}

std::string block_text(const Operand& operand, const Index* block) {
  std::string out = "(";
  for (std::size_t d = 0; d < operand.rank(); ++d) out += cat(d == 0 ? "" : ",", block[d]);
  return out + ")";
}

std::string index_text(const Operand& operand) {
  if (operand.map.callable != nullptr) return "a callable";
  std::string out = "(";
  for (std::size_t d = 0; d < operand.rank(); ++d) {
    out += (d == 0 ? "" : ", ") + operand.map.exprs[d].text();
  }
  return out + ")";
}

Index Program::count_steps() const {
  for (const ProgramAxis& a : axes) {
    if (a.size == 0) return 0;
  }
  Index n = 1;
  for (const ProgramAxis& a : axes) {
    KREF_CHECK(!__builtin_mul_overflow(n, a.size, &n), "grid '", name, "': axis '", a.name,
               "' makes more steps than fit into 64 bits");
  }
  return n;
}

void Program::coordinates_of(Index step, Index* at) const {
  for (std::size_t a = axes.size(); a-- > 0;) {
    at[a] = step % axes[a].size;
    step /= axes[a].size;
  }
}

void Program::prepare() {
  if (prepared) return;
  steps = count_steps();
  points = steps == 0 ? 0 : 1;
  Index stride = 1;
  for (std::size_t a = axes.size(); a-- > 0 && steps > 0;) {
    axes[a].stride = stride;
    stride *= axes[a].size;
  }
  for (const ProgramAxis& a : axes) {
    if (a.parallel && steps > 0) points *= a.size;
  }
  inner = steps == 0 ? 0 : steps / points;
  check_memory(*this);
  if (steps > 0) {
    // An array without elements has no blocks. If nothing is to be computed either, there is
    // nothing to do; else the grid asks for blocks that do not exist.
    const Operand* empty = nullptr;
    bool output = false;
    for (const Operand& o : operands) {
      if (!o.moves()) continue;
      if (o.array.size() == 0) empty = &o;
      output = output || (o.writes() && o.array.size() != 0);
    }
    if (empty != nullptr) {
      KREF_CHECK(!output, subject(*this, *empty), ' ', to_string(ArrayRef(empty->array)),
                 " is empty, the grid has ", steps, " steps");
      steps = points = inner = 0;
    }
  }
  if (steps > 0) {
    // Of several blocks out of range, report the one of the lowest step.
    Index first_bad = steps;
    const Operand* bad = nullptr;
    for (const Operand& o : operands) {
      if (!o.moves() || o.map.callable != nullptr) continue;
      for (std::size_t d = 0; d < o.rank(); ++d) {
        const AxisExpr& e = o.map.exprs[d];
        const Index size = e.constant() ? 1 : axes[static_cast<std::size_t>(e.axis())].size;
        if (e.surely_within(size, o.blocks[d])) continue;
        const Index step_stride =
            e.constant() ? 1 : axes[static_cast<std::size_t>(e.axis())].stride;
        for (Index c = 0; c < size && c * step_stride < first_bad; ++c) {
          if (e.within(c, o.blocks[d])) continue;
          first_bad = c * step_stride;
          bad = &o;
        }
      }
    }
    if (bad != nullptr) {
      Shape<kMaxAxes> at{};
      Shape<kMaxRank> block{};
      coordinates_of(first_bad, at.data());
      for (std::size_t d = 0; d < bad->rank(); ++d) block[d] = bad->map.exprs[d](at.data());
      check_block(*this, *bad, block.data(), first_bad);
      throw Error(cat(subject(*this, *bad), ": the block index of ", step_text(*this, first_bad),
                      " does not fit into 64 bits"));
    }
    for (Operand& o : operands) {
      if (!o.writes()) continue;
      o.tabled = o.map.callable != nullptr || !apart_windows(*this, o);
      if (o.map.callable == nullptr) check_visits(*this, o);
    }
    check_aliases(*this);
  }
  prepared = true;
}

}  // namespace kref::detail
