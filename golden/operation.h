// SPDX-License-Identifier: Apache-2.0
// Operation: everything kref knows of one operation, declared once; `list`, `describe`, `run`,
// `check` and the tests read this declaration (spec/runs.md section 3).
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "golden/expectation.h"
#include "golden/plan.h"
#include "golden/run.h"

namespace kref {

struct ClockOptions;   // sharding/virtual_clock.h
struct Cost;           // sharding/cost_model.h
struct MeshLinks;      // sharding/slice.h
enum class ProbeKind;  // golden/probe.h
struct PartialStates;  // golden/partial.h
struct PartialVerdict;
struct Verdict;  // golden/judge.h

// One tensor of an operation, for people and for the shape check.
struct TensorRule {
  const char* name;  // "x", "ct.o"
  const char* dims;  // "*B M K", "B|1 H|1 T|1 S": letters bind sizes, as in runs.md
  bool optional = false;
  const char* note = "";  // element types, meaning
};

// One option of `set`.
struct OptionRule {
  const char* name;
  const char* fallback;  // the default as printed; "required" when there is none
  const char* note;      // legal values and their meaning
};

struct Operation {
  const char* name;
  const char* summary;  // one line
  std::vector<TensorRule> inputs, outputs;
  std::vector<OptionRule> options;
  std::vector<const char*> rules;    // a line each, printed by `describe`
  std::vector<const char*> sources;  // where the semantics come from

  // Refuses (Error) unknown and missing tensors and options, wrong ranks, shapes, element types and
  // placements, each by name. with_outputs: the run carries the outputs to be judged, which must
  // be there and fit.
  void (*validate)(const Run& run, bool with_outputs);

  // Computes the outputs with kref's kernels. `run` has been validated.
  std::map<std::string, Array> (*compute)(const Run& run);

  // What each output that the run carries should hold, and how far an honest machine may be off.
  // `run` has been validated with outputs.
  std::vector<Expectation> (*expect)(const Run& run);

  // What each device does, for `describe RUN`. `run` has been validated. Null: nothing to tell.
  Plan (*plan)(const Run& run) = nullptr;

  // The run with the specs that it leaves out because its options imply them. `run` has been
  // validated. Null: it leaves none out.
  Run (*placed)(const Run& run) = nullptr;

  // What it takes on chips with links, for `cost`. `run` has been declared, and may have inputs of
  // which only shape and element type are known. Error as validate. Null: not priced.
  Cost (*price)(const Run& run, const MeshLinks& links) = nullptr;

  // Fills the inputs `made` with a probe, for `run --probe` (golden/probe.h). `run` has been
  // validated. Null: there is none.
  Run (*probe)(const Run& run, ProbeKind kind, const std::set<std::string>& made) = nullptr;

  // What the virtual clock makes of the devices that `compute` launches (run_launch.h) where the
  // run has a mesh; under ShapesOnly, too. Null: it launches none, and the clock goes by the price.
  ClockOptions (*clock)(const Run& run) = nullptr;

  // Judges what a kernel held after each block of keys, for `check --partial` (golden/partial.h).
  // `run` has been validated with outputs, of which `outputs` are the verdicts. Null: there are no
  // partial results.
  PartialVerdict (*judge_partials)(const Run& run, const PartialStates& states,
                                   const std::vector<Verdict>& outputs) = nullptr;
};

// Every operation of this build, in the order in which `list` prints them.
std::span<const Operation> operations();

// The operation of that name. Error that lists the known ones when there is none.
const Operation& find_operation(const std::string& name);

// The part of `validate` that the declaration alone decides, for an operation to call first: every
// tensor, option and spec of `run` is declared by `operation`, and every tensor and option that is
// not optional is there (outputs only when with_outputs); the mesh, where there is one, has devices
// few enough to run (which a `priced` run need not be), and where there is none no spec names an
// axis. Error otherwise, with the nearest name.
void check_declared(const Operation& operation, const Run& run, bool with_outputs,
                    bool priced = false);

// Throws Error("RUN: OP: ..."): how every refusal of a run begins.
template <class... Parts>
[[noreturn]] void refuse_run(const Run& run, const Parts&... parts) {
  throw Error(detail::cat(run.origin, ": ", run.op, ": ", parts...));
}

// Refuses `found`, the tensor of that name ("out.o"), when it has another element type or shape.
void check_array(const Run& run, const std::string& tensor, const Array& found, DType dtype,
                 std::span<const Index> shape);
// The same of output `name` where the run carries it.
void check_output(const Run& run, const std::string& name, DType dtype,
                  std::span<const Index> shape);

// All that `describe` prints, for people: tensors, options, rules, sources.
std::string describe(const Operation& operation);
// The same as JSON: op, summary, inputs, outputs, options, rules, sources.
nlohmann::ordered_json describe_json(const Operation& operation);

}  // namespace kref
