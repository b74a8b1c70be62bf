// SPDX-License-Identifier: Apache-2.0
// From a request to runs: a run file, or an operation with separate arrays, and the options of the
// command line on top.
#pragma once

#include <string>

#include "golden/command_line.h"
#include "golden/partial.h"
#include "golden/run.h"

namespace kref {

// True when `subject` names an operation (a file of that name is given as ./NAME).
bool names_operation(const std::string& subject);

// True when `subject` can only be a file, whether it is there or not.
bool is_file_like(const std::string& subject);

// Refuses a request whose options and subjects do not go together: no subject, an operation among
// others, --in with a run file. Error.
void check_subjects(const Request& request);

// The run of one subject, not yet validated. --set, --mesh and the specs replace what a run file
// says. Error for a bad file or option.
Run assemble(const Request& request, const std::string& subject);

// What --partial and --block-kv give; nothing without --partial. Error for a bad file, an array
// of another name, one given twice, and a --dtype of one that is not given.
std::optional<PartialStates> read_partials(const Request& request);

// NAME=FILE[:MEMBER] taken apart: the whole text is FILE when there is a file of that name.
struct Place {
  std::string file, member;
};
Place split_place(const std::string& text);

}  // namespace kref
