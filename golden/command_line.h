// SPDX-License-Identifier: Apache-2.0
// The command line of kref as a value (spec/runs.md section 2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kref {

// NAME=VALUE of a repeatable option, in the order given; no name twice.
struct Assignment {
  std::string name, value;
};

// What the user asks for. Texts are as typed: their meaning is checked where they are used.
struct Request {
  std::string verb;                    // "check", "run", "list", "describe", "cost", "version"
  std::vector<std::string> subjects;   // run files, or one operation
  std::vector<Assignment> in, actual;  // NAME=FILE[:MEMBER]
  std::vector<Assignment> set;         // KEY=VALUE
  std::vector<Assignment> dtype;       // NAME=TYPE
  std::vector<Assignment> in_spec, out_spec;  // NAME=SPEC
  std::vector<Assignment> shape;              // NAME=bf16[2,3]: an input of which no more is known
  std::vector<std::string> out;               // FILE or NAME=FILE[:MEMBER]
  std::vector<std::string> partial;           // of check: FILE, or NAME=FILE[:MEMBER]
  std::optional<int> block_kv;                // of check: keys a partial result
  std::optional<std::string> probe;           // of run: uniform, select, position
  std::optional<std::string> mesh;
  std::optional<int> threads;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> chip, slice;  // of cost
  std::optional<std::string> trace;        // of cost: a file to write
  std::vector<std::string> network;        // axes of the mesh between slices
  bool sweep = false;
  bool json = false, quiet = false;
};

// A request, or a text to print and an exit status: help (0), or nothing asked (2).
struct ParsedLine {
  std::optional<Request> request;
  std::string text;
  int status = 0;
};

// Error: one line, for anything the command does not know.
ParsedLine parse_command_line(int argc, const char* const* argv);

}  // namespace kref
