// SPDX-License-Identifier: Apache-2.0
// kref cost: what a run, or an operation of given shapes, takes on a TPU.
#include "golden/assemble.h"
#include "golden/commands.h"
#include "golden/console.h"
#include "golden/cost.h"
#include "golden/file_bytes.h"
#include "golden/verdict_json.h"

namespace kref {
namespace {

// A run file, or the operation with arrays or shapes, and the options of the command line on top.
Run run_of(const Request& request, const std::string& subject) {
  if (!names_operation(subject)) {
    KREF_CHECK(request.shape.empty(),
               "cost: --shape goes with the name of an operation, not with "
               "a run file");
    return assemble(request, subject);
  }
  Run run = assemble(request, subject);
  std::vector<NamedShape> shapes;
  for (const Assignment& shape : request.shape) shapes.push_back({shape.name, shape.value});
  add_shapes(run, shapes);
  return run;
}

void write_trace(const std::string& path, const nlohmann::ordered_json& trace) {
  const std::string text = trace.dump();
  FileWriter file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

int cost_command(const Request& request) {
  check_subjects(request);
  KREF_CHECK(request.chip.has_value(),
             "cost: expected --chip, one of v3, v4p, v5p, v5e, v6e, or one with other numbers: "
             "v5e:hbm=8.2e11");
  CostRequest on{find_chip(*request.chip), {}, request.network};
  if (request.slice) on.slice = parse_slice(on.chip, *request.slice);
  KREF_CHECK(!request.trace || (request.subjects.size() == 1 && !request.sweep),
             "cost: --trace writes one run, expected one subject and no --sweep");
  int status = 0;
  for (const std::string& subject : request.subjects) {
    try {
      const Run run = run_of(request, subject);
      if (request.sweep) {
        const Sweep sweep = sweep_layer(run, on);
        print(request.json ? json_line(sweep_json(sweep)) : sweep_text(sweep));
        continue;
      }
      const PricedRun priced = price_run(run, on);
      std::optional<TimedRun> timed;
      if (request.trace || priced.links.mesh.device_count() <= kMaxRunDevices) {
        timed = time_run(run, priced);
      }
      if (request.trace) write_trace(*request.trace, trace_json(*timed, priced.links));
      const TimedRun* const clocks = timed ? &*timed : nullptr;
      print(request.json ? json_line(cost_json(run, priced, clocks))
                         : cost_text(run, priced, clocks));
    } catch (const BrokenPipe&) {
      throw;
    } catch (...) {
      const Failure failure = failure_of(std::current_exception(), subject);
      complain(failure.message);
      status = std::max(status, failure.status);
    }
  }
  return status;
}

}  // namespace kref
