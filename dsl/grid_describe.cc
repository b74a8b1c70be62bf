// SPDX-License-Identifier: Apache-2.0
// Grid::describe: the operands as a table.
#include <algorithm>

#include "dsl/program.h"

namespace kref {
namespace {

using detail::cat;
using detail::index_text;
using detail::Kind;
using detail::Operand;

using Row = std::array<std::string, 8>;

std::string list_text(const Operand& o, auto item) {
  std::string out = "(";
  for (std::size_t d = 0; d < o.rank(); ++d) out += (d == 0 ? "" : ", ") + item(d);
  return out + ")";
}

Row row_of(const Operand& o) {
  constexpr const char* kKinds[] = {"in", "out", "in_out", "scratch", "table"};
  const bool scratch = !o.moves();
  return {o.name,
          kKinds[static_cast<std::size_t>(o.kind)],
          name_of(o.array.dtype),
          shape_string(o.array.shape()),
          scratch ? "-"
                  : list_text(o,
                              [&](std::size_t d) {
                                if ((o.squeezed >> d & 1) != 0) return std::string("squeezed");
                                return (o.elements >> d & 1) == 0
                                           ? std::to_string(o.block[d])
                                           : cat("Element(", o.block[d], ')');
                              }),
          scratch                     ? "-"
          : o.map.callable != nullptr ? "callable"
                                      : index_text(o),
          scratch ? "-" : std::to_string(o.block_count()),
          std::to_string(o.window_size * static_cast<Index>(o.element_bytes))};
}

}  // namespace

std::string Grid::describe() const {
  const detail::Program& p = *program_;
  std::string out =
      cat("grid '", p.name, "': ", p.count_steps(), p.count_steps() == 1 ? " step" : " steps");
  for (std::size_t a = 0; a < p.axes.size(); ++a) {
    out += cat(a == 0 ? ", axes " : ", ", p.axes[a].name, '=', p.axes[a].size,
               p.axes[a].parallel ? " parallel" : " sequential");
  }
  std::vector<Row> rows = {
      {"operand", "kind", "type", "array", "block", "index", "blocks", "bytes a block"}};
  for (const Operand& o : p.operands) rows.push_back(row_of(o));
  std::array<std::size_t, 8> width{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  for (const Row& row : rows) {
    out += "\n ";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string gap(width[c] - row[c].size(), ' ');
      const bool number = c >= 6;
      out += ' ' + (number ? gap : "") + row[c] + (number || c + 1 == row.size() ? "" : gap);
    }
  }
  return out + "\n";
}

}  // namespace kref
