// SPDX-License-Identifier: Apache-2.0
#include "dsl/grid.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "dsl/full_checks.h"
#include "dsl/grid_run.h"
#include "dsl/program.h"

namespace kref {

using detail::Kind;
using detail::Operand;
using detail::Program;

namespace {

std::atomic<std::uint64_t> check_seed{1};

// Names outlive their grid, since axes and handles do and carry them into messages.
const char* intern(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>>& names = *new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  auto it = names.find(name);
  if (it == names.end()) it = names.emplace(name).first;
  return it->c_str();
}

std::uint32_t next_id() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

void check_open(const Program& p, std::string_view what, std::string_view name) {
  KREF_CHECK(!p.prepared, "grid '", p.name, "': ", std::string(what), " '", std::string(name),
             "' is declared after run");
}

void check_operand_name(const Program& p, std::string_view name) {
  KREF_CHECK(!name.empty(), "grid '", p.name, "': operand without a name");
  KREF_CHECK(p.operands.size() < detail::kMaxOperands, "grid '", p.name, "': operand '",
             std::string(name), "' is one more than ", detail::kMaxOperands);
  for (const Operand& o : p.operands) {
    KREF_CHECK(name != o.name, "grid '", p.name, "': two operands are named '", std::string(name),
               "'");
  }
}

}  // namespace

Grid::Grid(std::string_view name) : id_(next_id()), program_(std::make_unique<Program>()) {
  program_->name = std::string(name);
  program_->id = id_;
}

Grid::~Grid() = default;

const std::string& Grid::name() const { return program_->name; }

Axis Grid::parallel(std::string_view name, Index size) { return declare_axis(name, size, true); }

Axis Grid::sequential(std::string_view name, Index size) { return declare_axis(name, size, false); }

Batch Grid::vmap(std::string_view name, Index size) {
  Program& p = *program_;
  for (const auto& a : p.axes) {
    KREF_CHECK(a.batch, "grid '", p.name, "': vmap '", std::string(name), "' after axis '", a.name,
               "', expected before all axes");
  }
  const Axis axis = declare_axis(name, size, true);
  p.axes.back().batch = true;
  return {axis.id, id_, size, axis.name};
}

Axis Grid::declare_axis(std::string_view name, Index size, bool parallel) {
  Program& p = *program_;
  check_open(p, "axis", name);
  KREF_CHECK(!name.empty(), "grid '", p.name, "': axis without a name");
  KREF_CHECK(size >= 0, "grid '", p.name, "': axis '", std::string(name), "' has size ", size,
             ", expected >= 0");
  KREF_CHECK(p.axes.size() < detail::kMaxAxes, "grid '", p.name, "': axis '", std::string(name),
             "' is one more than ", detail::kMaxAxes);
  for (const auto& a : p.axes) {
    KREF_CHECK(name != a.name, "grid '", p.name, "': two axes are named '", std::string(name), "'");
    KREF_CHECK(!parallel || a.parallel, "grid '", p.name, "': parallel axis '", std::string(name),
               "' after sequential axis '", a.name, "', expected the parallel axes first");
  }
  const char* kept = intern(name);
  p.axes.push_back({kept, size, parallel, false, 1});
  return {static_cast<int>(p.axes.size()) - 1, size, id_, kept};
}

void Grid::declare_operand(const detail::Declaration& declared, std::uint32_t& id,
                           const char*& kept_name) {
  Program& p = *program_;
  check_open(p, "operand", declared.name);
  check_operand_name(p, declared.name);
  Operand o = detail::operand_of(p, declared, intern(declared.name));
  id = static_cast<std::uint32_t>(p.operands.size());
  kept_name = o.name;
  p.operands.push_back(std::move(o));
}

void Grid::declare_scratch(std::string_view name, DType type, std::span<const Index> extents,
                           std::uint32_t& id, const char*& kept_name) {
  Program& p = *program_;
  check_open(p, "scratch", name);
  check_operand_name(p, name);
  Operand o;
  o.name = intern(name);
  o.kind = Kind::kScratch;
  o.element_bytes = size_of(type);
  const std::string who = subject(p, o);
  for (std::size_t d = 0; d < extents.size(); ++d) {
    KREF_CHECK(extents[d] >= 0, who, ": extent of dimension ", d, " is ", extents[d],
               ", expected >= 0");
    o.block[d] = extents[d];
  }
  detail::checked_product(who.c_str(), extents.data(), extents.size(),
                          static_cast<Index>(o.element_bytes));
  o.array = MutableArrayRef(type, extents, nullptr);
  detail::set_window(o, who);
  id = static_cast<std::uint32_t>(p.operands.size());
  kept_name = o.name;
  p.operands.push_back(std::move(o));
}

bool full_checks() {
  const char* checks = std::getenv("KREF_CHECKS");
  if (checks == nullptr || *checks == '\0') return false;
  KREF_CHECK(std::strcmp(checks, "full") == 0, "KREF_CHECKS is '", checks, "', expected 'full'");
  return true;
}

void set_check_seed(std::uint64_t seed) { check_seed = seed; }

Index Grid::steps() const { return program_->count_steps(); }

Trace Grid::run_erased(detail::Body body) {
  if (full_checks()) return check_erased(body, {.seed = check_seed});
  program_->prepare();
  return detail::run(*program_, body);
}

Trace Grid::check_erased(detail::Body body, const CheckOptions& options) {
  program_->prepare();
  detail::check_tpu(*program_, options);
  KREF_CHECK(options.cores >= 0, "grid '", program_->name, "': check on ", options.cores,
             " cores, expected >= 0");
  Trace trace = detail::check(*program_, body, options);
  trace.warnings = detail::tpu_warnings(*program_, options.chip);
  return trace;
}

std::vector<TpuWarning> Grid::tpu_report(const char* chip) {
  program_->prepare();
  return detail::tpu_warnings(*program_, chip);
}

GridCost Grid::cost() { return cost_erased(nullptr); }

GridCost Grid::cost_erased(const detail::Body* body) {
  program_->prepare();
  return detail::cost(*program_, body);
}

const OperandTrace& Trace::operator[](const char* name) const {
  for (const OperandTrace& o : operands) {
    if (o.name == name) return o;
  }
  throw Error(detail::cat("trace: no operand is named '", name, "'"));
}

}  // namespace kref
