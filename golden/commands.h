// SPDX-License-Identifier: Apache-2.0
// The commands of kref. Each returns the exit status: 0 all is well, 1 at least one output is
// wrong, 2 the request is wrong, 3 a fault of ours.
#pragma once

#include <exception>
#include <string>

#include "golden/command_line.h"

namespace kref {

int check_command(const Request& request);
int run_command(const Request& request);
int list_command(const Request& request);
int describe_command(const Request& request);
int cost_command(const Request& request);
int version_command(const Request& request);

// What an exception means to the user: the exit status and the message (first line first).
struct Failure {
  int status = 3;
  std::string message;
};
// `subject` is what was being worked on; the message begins with it unless it names it already.
Failure failure_of(std::exception_ptr error, const std::string& subject);

// --threads and --seed, for all that is computed from here on.
void set_execution(const Request& request);

// "kref 1.0.0".
const char* version_string();

}  // namespace kref
