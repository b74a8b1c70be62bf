// SPDX-License-Identifier: Apache-2.0
#include "dsl/worker.h"

namespace kref::detail {

VisitTable::VisitTable(const Program& program, Failure& failure)
    : begins_(program.operands.size()) {
  std::vector<std::size_t> ids;
  for (std::size_t id = 0; id < begins_.size(); ++id) {
    const Operand& o = program.operands[id];
    if (!o.writes() || o.map.callable == nullptr) continue;
    begins_[id].assign(static_cast<std::size_t>(o.block_count()), -1);
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
        o.map.call(o.map.callable.get(), step, next.data());
        check_block(program, o, next.data(), data.number);
        if (!new_point && next == block[id]) continue;
        block[id] = next;
        Index& begin = begins_[id][static_cast<std::size_t>(o.block_number(next.data()))];
        KREF_CHECK(begin < 0, subject(program, o), ": block ", block_text(o, next.data()), " of ",
                   step_text(program, data.number), " was left before: it was visited in ",
                   step_text(program, begin),
                   ", and an output block is visited in consecutive steps");
        begin = data.number;
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
