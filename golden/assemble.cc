// SPDX-License-Identifier: Apache-2.0
#include "golden/assemble.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "golden/array_file.h"
#include "golden/file_text.h"
#include "golden/json_guard.h"
#include "golden/nearest.h"
#include "golden/operation.h"

namespace kref {
namespace {

// Each file is opened once, also when several operands come from it.
class Files {
 public:
  const ArrayFile& open(const std::string& path) {
    auto at = files_.find(path);
    if (at == files_.end()) at = files_.emplace(path, read_array_file(path)).first;
    return at->second;
  }

 private:
  std::map<std::string, ArrayFile> files_;
};

// The array that `place` means for an operand: the named member, the one named like the operand, or
// the only one.
const FileArray& choose(const ArrayFile& file, const Place& place, const Assignment& given,
                        const char* flag) {
  std::vector<std::string> names;
  for (const FileArray& array : file.arrays) names.push_back(array.name);
  const std::string& wanted = place.member.empty() ? given.name : place.member;
  if (const FileArray* found = file.find(wanted)) return *found;
  if (place.member.empty() && file.arrays.size() == 1) return file.arrays[0];
  throw Error(detail::cat(place.file, ": no array named ", quote(wanted), " for ", flag, ' ',
                          given.name, "; it holds ", joined(names),
                          place.member.empty() && names.size() > 1
                              ? detail::cat("; name one: ", flag, ' ', given.name, "=FILE:NAME")
                              : ""));
}

// What --dtype says of the array of that name.
std::optional<DType> hint_of(const Request& request, const std::string& name) {
  for (const Assignment& d : request.dtype) {
    if (d.name != name) continue;
    DType type{};
    KREF_CHECK(parse_dtype(d.value.c_str(), type), "--dtype ", d.name, ": unknown element type ",
               quote(d.value));
    return type;
  }
  return std::nullopt;
}

void load(Files& files, const std::vector<Assignment>& given, const char* flag,
          const Request& request, std::map<std::string, Array>& into) {
  for (const Assignment& a : given) {
    const Place place = split_place(a.value);
    const FileArray& found = choose(files.open(place.file), place, a, flag);
    into.emplace(a.name, found.array(hint_of(request, a.name)));
  }
}

constexpr std::string_view kPartial = "partial.";  // the names of partial results begin so

bool names_partial(const Request& request, const Assignment& a) {
  return !request.partial.empty() && a.name.starts_with(kPartial);
}

// One --partial: NAME=FILE[:MEMBER], or a file of arrays with those names, or of one that is o.
std::vector<std::pair<std::string, const FileArray*>> partials_of(Files& files,
                                                                  const std::string& text) {
  const std::vector<std::string> known = {"o", "lse", "acc", "m", "l"};
  const auto is_known = [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  };
  const std::size_t eq = text.find('=');
  if (eq != std::string::npos && is_known(text.substr(0, eq))) {
    const Assignment a{text.substr(0, eq), text.substr(eq + 1)};
    const Place place = split_place(a.value);
    return {{a.name, &choose(files.open(place.file), place, a, "--partial")}};
  }
  std::error_code ignored;
  KREF_CHECK(eq == std::string::npos || std::filesystem::exists(text, ignored), "--partial ",
             quote(text), ": ", quote(text.substr(0, eq)), " is none of ", joined(known),
             did_you_mean(text.substr(0, eq), known), ", and there is no file of that name");
  std::vector<std::pair<std::string, const FileArray*>> out;
  const ArrayFile& file = files.open(text);
  for (const FileArray& array : file.arrays) {
    const bool is_only = file.arrays.size() == 1 && array.name.empty();
    KREF_CHECK(is_only || is_known(array.name), text, ": --partial: array ", quote(array.name),
               " is none of ", joined(known), did_you_mean(array.name, known),
               "; name one: --partial o=FILE:NAME");
    out.emplace_back(is_only ? "o" : array.name, &array);
  }
  return out;
}

// JSON where it is JSON, else the bare word: precision=bf16_x3 needs no quotes in a shell.
nlohmann::json option_value(const Assignment& a) {
  const char first = a.value[0];
  const bool json = first == '[' || first == '{' || first == '"' || first == '-' ||
                    (first >= '0' && first <= '9') || a.value == "true" || a.value == "false" ||
                    a.value == "null";
  return json ? parse_json("--set " + a.name, a.value) : nlohmann::json(a.value);
}

}  // namespace

bool is_file_like(const std::string& subject) {
  std::error_code ignored;
  if (names_operation(subject)) return false;
  if (std::filesystem::exists(subject, ignored)) return true;
  // "psun.vjp" is a slip of the pen, no file.
  return subject.find_first_of("/.") != std::string::npos && !subject.ends_with(".vjp");
}

bool names_operation(const std::string& subject) {
  return std::any_of(operations().begin(), operations().end(),
                     [&](const Operation& o) { return o.name == subject; });
}

Place split_place(const std::string& text) {
  std::error_code ignored;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || std::filesystem::exists(text, ignored)) {
    return {text, ""};
  }
  KREF_CHECK(colon + 1 < text.size(), quote(text), ": expected FILE:NAME, the name is empty");
  return {text.substr(0, colon), text.substr(colon + 1)};
}

void check_subjects(const Request& request) {
  const auto& subjects = request.subjects;
  KREF_CHECK(!subjects.empty(), request.verb, ": expected a run file, or an operation with --in");
  KREF_CHECK(request.partial.empty() || subjects.size() == 1,
             "--partial: expected one run or operation, found ", subjects.size());
  KREF_CHECK(!request.block_kv || !request.partial.empty(),
             "--block-kv: expected with --partial, whose keys a block it tells");
  bool operation = false;
  for (const std::string& subject : subjects) {
    if (names_operation(subject)) {
      operation = true;
    } else if (!is_file_like(subject)) {
      std::vector<std::string> known;
      for (const Operation& o : operations()) known.emplace_back(o.name);
      throw Error(detail::cat(quote(subject), " is neither a file nor an operation; operations: ",
                              joined(known), did_you_mean(subject, known)));
    }
  }
  KREF_CHECK(!operation || subjects.size() == 1, request.verb,
             ": an operation stands alone, found ", subjects.size(), " arguments");
  if (operation) {
    for (const Assignment& d : request.dtype) {
      if (names_partial(request, d)) continue;
      const auto same = [&](const Assignment& a) { return a.name == d.name; };
      KREF_CHECK(std::any_of(request.in.begin(), request.in.end(), same) ||
                     std::any_of(request.actual.begin(), request.actual.end(), same),
                 "--dtype ", d.name, ": no array of that name is given");
    }
    return;
  }
  const bool typed = std::any_of(request.dtype.begin(), request.dtype.end(),
                                 [&](const Assignment& d) { return !names_partial(request, d); });
  KREF_CHECK(request.in.empty() && request.actual.empty() && !typed, request.verb,
             ": --in, --actual and --dtype go with the name of an operation, not with a run file");
}

std::optional<PartialStates> read_partials(const Request& request) {
  if (request.partial.empty()) return std::nullopt;
  PartialStates out;
  out.block = request.block_kv;
  Files files;
  for (const std::string& text : request.partial) {
    for (const auto& [name, array] : partials_of(files, text)) {
      KREF_CHECK(!out.arrays.contains(name), "--partial ", name, " is given twice");
      const std::string full = std::string(kPartial) + name;
      out.arrays.emplace(name, array->array(hint_of(request, full)));
    }
  }
  for (const Assignment& d : request.dtype) {
    KREF_CHECK(!names_partial(request, d) || out.arrays.contains(d.name.substr(kPartial.size())),
               "--dtype ", d.name, ": no partial result of that name is given");
  }
  return out;
}

Run assemble(const Request& request, const std::string& subject) {
  Run run;
  if (names_operation(subject)) {
    run.origin = "command line";
    run.op = subject;
    Files files;
    load(files, request.in, "--in", request, run.in);
    load(files, request.actual, "--actual", request, run.out);
  } else {
    run = read_run(subject);
  }
  for (const Assignment& a : request.set) run.set[a.name] = option_value(a);
  if (request.mesh) run.mesh = Mesh::parse(*request.mesh);
  for (const Assignment& a : request.in_spec) run.in_specs[a.name] = PartitionSpec::parse(a.value);
  for (const Assignment& a : request.out_spec) run.out_specs[a.name] = OutSpec::parse(a.value);
  return run;
}

}  // namespace kref
