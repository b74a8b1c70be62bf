// SPDX-License-Identifier: Apache-2.0
#include "dsl/worker.h"

namespace kref::detail {

namespace {

// A block, or an element of an Element window, that step `begin` visits and `step` visits again.
void check_again(const Program& program, const Operand& o, const Index* block, Index step,
                 Index begin) {
  const bool same_point = begin / program.inner == step / program.inner;
  if (o.any_revisit() && same_point) return;
  const std::string who =
      cat(subject(program, o), ": block ", block_text(o, block), " of ", step_text(program, step));
  KREF_CHECK(o.elements == 0, who, " shares elements with the window of ",
             step_text(program, begin),
             ", and an element of an output is written by one visit alone");
  KREF_CHECK(!o.any_revisit(), who, " was visited at other coordinates of the parallel axes, in ",
             step_text(program, begin), ", where Revisit::kAny does not lead");
  throw Error(cat(who, " was left before: it was visited in ", step_text(program, begin),
                  ", and an output block is visited in consecutive steps"));
}

}  // namespace

VisitTable::VisitTable(const Program& program, Failure& failure)
    : begins_(program.operands.size()) {
  std::vector<std::size_t> ids;
  for (std::size_t id = 0; id < begins_.size(); ++id) {
    const Operand& o = program.operands[id];
    if (!counts(o)) continue;
    begins_[id].assign(static_cast<std::size_t>(o.cell_count()), -1);
    ids.push_back(id);
  }
  if (ids.empty() || program.steps == 0) return;

  Shape<kMaxAxes> at{};
  std::vector<Shape<kMaxRank>> block(begins_.size());
  StepData data;
  data.grid_program = &program;
  data.grid = program.id;
  data.at = at.data();
  const Step step(data);
  for (; data.number < program.steps; ++data.number) {
    const bool new_point = data.number % program.inner == 0;
    try {
      for (const std::size_t id : ids) {
        const Operand& o = program.operands[id];
        Shape<kMaxRank> next{};
        o.index_of(step, at.data(), next.data());
        check_block(program, o, next.data(), data.number);
        if (!new_point && next == block[id]) continue;
        block[id] = next;
        CellBox(o, next.data()).for_each(o, [&](Index cell) {
          Index& begin = begins_[id][static_cast<std::size_t>(cell)];
          if (begin >= 0) check_again(program, o, next.data(), data.number, begin);
          if (begin < 0) begin = data.number;
        });
      }
    } catch (...) {
      failure.report(data.number, std::current_exception());
      return;
    }
    for (std::size_t a = program.axes.size(); a-- > 0 && ++at[a] == program.axes[a].size;) {
      at[a] = 0;
    }
  }
}

}  // namespace kref::detail
