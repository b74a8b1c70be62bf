// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "golden/array_file.h"
#include "golden/assemble.h"
#include "golden/commands.h"
#include "golden/console.h"
#include "golden/operation.h"
#include "golden/probe.h"
#include "golden/verdict_json.h"

namespace kref {
namespace {

enum class Form { kRunFile, kNpz, kNpy };

// Where outputs go: one of them, or all when `output` is empty.
struct Target {
  std::string output, file, member;
  Form form = Form::kRunFile;
};

Form form_of(const std::string& file) {
  if (file.ends_with(".safetensors")) return Form::kRunFile;
  if (file.ends_with(".npz")) return Form::kNpz;
  KREF_CHECK(file.ends_with(".npy"), "--out ", file,
             ": the name tells the format; expected .safetensors, .npz or .npy");
  return Form::kNpy;
}

// FILE, or NAME=FILE where NAME holds no '/': ./a=b.npy is a file.
Target parse_target(const std::string& text, const Operation& operation) {
  Target t;
  const std::size_t eq = text.find('=');
  if (eq == std::string::npos || text.substr(0, eq).find('/') != std::string::npos) {
    t.file = text;
    t.form = form_of(t.file);
    return t;
  }
  t.output = text.substr(0, eq);
  const auto& outputs = operation.outputs;
  KREF_CHECK(std::any_of(outputs.begin(), outputs.end(),
                         [&](const TensorRule& rule) { return rule.name == t.output; }),
             "--out ", text, ": ", operation.name, " has no output '", t.output, "'");
  const Place place = split_place(text.substr(eq + 1));
  t.file = place.file;
  t.member = place.member;
  t.form = form_of(t.file);
  KREF_CHECK(t.form != Form::kNpy || t.member.empty(), "--out ", text,
             ": a .npy file has no names");
  return t;
}

void write(const Target& target, const Run& run) {
  std::vector<NamedArray> arrays;
  for (const auto& [name, array] : run.out) {
    if (target.output.empty() || name == target.output) {
      arrays.push_back({target.member.empty() ? name : target.member, array.ref()});
    }
  }
  KREF_CHECK(!arrays.empty(), "--out ", target.output, ": this run does not compute it");
  if (target.form == Form::kNpz) {
    write_npz(target.file, arrays);
  } else if (target.form == Form::kNpy) {
    KREF_CHECK(arrays.size() == 1, "--out ", target.file, ": a .npy file holds one array and ",
               run.op, " has ", arrays.size(), " outputs; use .npz or --out NAME=FILE");
    write_npy(target.file, arrays[0].array);
  } else if (target.output.empty()) {
    write_run(target.file, run);
  } else {
    write_safetensors(target.file, arrays);
  }
}

std::string summary(const Request& request, const Run& run) {
  if (!request.json) {
    std::string out;
    for (const auto& [name, array] : run.out)
      out += (out.empty() ? "" : ", ") + name + ' ' + to_string(array);
    std::string files;
    for (const std::string& file : request.out) files += (files.empty() ? "" : ", ") + file;
    return run.op + ": " + out + " -> " + files + '\n';
  }
  nlohmann::ordered_json object = {
      {"run", request.subjects[0]}, {"op", run.op}, {"files", request.out}};
  object["outputs"] = nlohmann::ordered_json::array();
  for (const auto& [name, array] : run.out) {
    object["outputs"].push_back(
        {{"output", name},
         {"dtype", name_of(array.dtype())},
         {"shape", std::vector<Index>(array.shape().begin(), array.shape().end())}});
  }
  return json_line(object);
}

}  // namespace

int run_command(const Request& request) {
  check_subjects(request);
  set_execution(request);
  KREF_CHECK(request.subjects.size() == 1, "run: expected one run, found ",
             request.subjects.size());
  const std::string& subject = request.subjects[0];
  try {
    progress("reading " + subject);
    Run run = assemble(request, subject);
    if (request.probe) {
      std::vector<NamedShape> shapes;
      for (const Assignment& shape : request.shape) shapes.push_back({shape.name, shape.value});
      run = probe_run(run, parse_probe(*request.probe), shapes);
    } else {
      KREF_CHECK(request.shape.empty(), "run: --shape goes with --probe");
    }
    const Operation& operation = find_operation(run.op);
    KREF_CHECK(!request.out.empty(), "run: expected --out FILE");
    std::vector<Target> targets;
    for (const std::string& text : request.out) targets.push_back(parse_target(text, operation));
    operation.validate(run, false);
    progress("computing " + subject);
    run.out = operation.compute(run);
    run.metadata["source"] = version_string();
    for (const Target& target : targets) write(target, run);
    if (!request.quiet) print(summary(request, run));
    end_progress();
    return 0;
  } catch (const BrokenPipe&) {
    throw;
  } catch (...) {
    const Failure failure = failure_of(std::current_exception(), subject);
    complain(failure.message);
    return failure.status;
  }
}

}  // namespace kref
