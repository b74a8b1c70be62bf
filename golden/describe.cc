// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "golden/operation.h"

namespace kref {
namespace {

// One row of a table: two columns of the widths given, then the rest.
std::string row(const std::string& a, std::size_t wa, const std::string& b, std::size_t wb,
                const std::string& rest) {
  std::string out = "  " + a + std::string(wa > a.size() ? wa - a.size() : 0, ' ') + "  " + b;
  if (!rest.empty()) out += std::string(wb > b.size() ? wb - b.size() : 0, ' ') + "  " + rest;
  return out + '\n';
}

struct Row {
  std::string name, value, note;
};

std::string table(const char* title, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::size_t names = 0, values = 0;
  for (const Row& r : rows) {
    names = std::max(names, r.name.size());
    values = std::max(values, r.value.size());
  }
  std::string out = std::string(title) + '\n';
  for (const Row& r : rows) out += row(r.name, names, r.value, values, r.note);
  return out + '\n';
}

std::vector<Row> tensor_rows(const char* prefix, const std::vector<TensorRule>& rules) {
  std::vector<Row> rows;
  for (const TensorRule& rule : rules) {
    rows.push_back({std::string(prefix) + rule.name + (rule.optional ? "?" : ""),
                    std::string("[") + rule.dims + "]", rule.note});
  }
  return rows;
}

std::string lines(const char* title, const std::vector<const char*>& entries) {
  if (entries.empty()) return "";
  std::string out = std::string(title) + '\n';
  for (const char* entry : entries) out += std::string("  ") + entry + '\n';
  return out + '\n';
}

nlohmann::ordered_json tensors_json(const std::vector<TensorRule>& rules) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const TensorRule& rule : rules) {
    out.push_back({{"name", rule.name},
                   {"dims", rule.dims},
                   {"optional", rule.optional},
                   {"note", rule.note}});
  }
  return out;
}

}  // namespace

nlohmann::ordered_json describe_json(const Operation& operation) {
  nlohmann::ordered_json out = {{"op", operation.name}, {"summary", operation.summary}};
  out["inputs"] = tensors_json(operation.inputs);
  out["outputs"] = tensors_json(operation.outputs);
  out["options"] = nlohmann::ordered_json::array();
  for (const OptionRule& rule : operation.options) {
    out["options"].push_back(
        {{"name", rule.name}, {"default", rule.fallback}, {"note", rule.note}});
  }
  out["rules"] = operation.rules;
  out["sources"] = operation.sources;
  return out;
}

std::string describe(const Operation& operation) {
  std::vector<Row> options;
  for (const OptionRule& rule : operation.options) {
    options.push_back({rule.name, rule.fallback, rule.note});
  }
  std::string out = std::string(operation.name) + ": " + operation.summary + "\n\n";
  out += table("inputs", tensor_rows("in.", operation.inputs));
  out += table("outputs", tensor_rows("out.", operation.outputs));
  out += table("options (--set NAME=VALUE) and their defaults", options);
  out += lines("rules", operation.rules);
  out += lines("sources", operation.sources);
  out.pop_back();  // one newline at the end, not an empty line
  return out;
}

}  // namespace kref
