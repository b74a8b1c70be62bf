// SPDX-License-Identifier: Apache-2.0
// The kref command. Everything it can do is in the library; this file only maps words to commands
// and failures to exit statuses.
#include <csignal>
#include <cstdio>
#include <new>

#include "dsl/check.h"
#include "dsl/grid.h"
#include "dsl/threads.h"
#include "golden/assemble.h"
#include "golden/commands.h"
#include "golden/console.h"
#include "golden/mapped_files.h"
#include "golden/operation.h"
#include "golden/verdict_json.h"

namespace kref {

const char* version_string() { return "kref " KREF_VERSION; }

void set_execution(const Request& request) {
  if (request.threads) set_threads(*request.threads);
  if (request.seed) set_check_seed(*request.seed);
}

Failure failure_of(std::exception_ptr error, const std::string& subject) {
  Failure failure;
  const auto named = [&](const std::string& message) {
    const std::string first_line = message.substr(0, message.find('\n'));
    return first_line.find(subject) != std::string::npos ? message : subject + ": " + message;
  };
  try {
    std::rethrow_exception(error);
  } catch (const BrokenPipe&) {
    throw;
  } catch (const Error& e) {
    failure = {2, named(e.what())};
  } catch (const std::bad_alloc&) {
    failure = {2, named("not enough memory for this request")};
  } catch (const std::exception& e) {
    failure = {3, named(std::string("internal fault: ") + e.what())};
  } catch (...) {
    failure = {3, named("internal fault: an exception of unknown type")};
  }
  return failure;
}

int version_command(const Request& request) {
  print(request.json ? json_line({{"kref", KREF_VERSION}, {"run_file", "1"}})
                     : std::string(version_string()) + "\n");
  return 0;
}

int list_command(const Request& request) {
  std::size_t width = 0;
  for (const Operation& o : operations()) width = std::max(width, std::string(o.name).size());
  for (const Operation& o : operations()) {
    std::string name = o.name;
    if (request.json) {
      print(json_line({{"op", name}, {"summary", o.summary}}));
    } else {
      name.resize(width, ' ');
      print(name + "  " + o.summary + "\n");
    }
  }
  return 0;
}

int describe_command(const Request& request) {
  KREF_CHECK(!request.subjects.empty(),
             "describe: expected the name of an operation, or a run file; `kref list` shows the "
             "operations");
  bool first = true;
  for (const std::string& name : request.subjects) {
    if (!request.json && !first) print("\n");
    first = false;
    if (is_file_like(name)) {
      const Run run = assemble(request, name);
      print(request.json ? json_line(describe_run_json(run)) : describe_run(run));
      continue;
    }
    const Operation& operation = find_operation(name);
    print(request.json ? json_line(describe_json(operation)) : describe(operation));
  }
  return 0;
}

namespace {

int dispatch(int argc, char** argv) {
  ParsedLine line = parse_command_line(argc, argv);
  if (!line.request) {
    if (line.status == 0) {
      print(line.text);
    } else {
      std::fputs(line.text.c_str(), stderr);
    }
    return line.status;
  }
  const Request& request = *line.request;
  if (request.verb == "check") return check_command(request);
  if (request.verb == "run") return run_command(request);
  if (request.verb == "list") return list_command(request);
  if (request.verb == "cost") return cost_command(request);
  if (request.verb == "describe") return describe_command(request);
  return version_command(request);
}

}  // namespace
}  // namespace kref

int main(int argc, char** argv) {
  // A closed pipe is an error of one write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  kref::end_on_shortened_files(2);
  try {
    return kref::dispatch(argc, argv);
  } catch (const kref::BrokenPipe&) {
    return 2;  // the result could not be delivered, and nobody reads what would be said
  } catch (...) {
    const kref::Failure failure = kref::failure_of(std::current_exception(), "");
    kref::complain(failure.message);
    return failure.status;
  }
}
