// SPDX-License-Identifier: Apache-2.0
#include "golden/run_metadata.h"

#include "golden/file_text.h"
#include "golden/json_guard.h"
#include "golden/options.h"

namespace kref {
namespace {

using nlohmann::json;

constexpr const char* kVersion = "1";

template <class... Parts>
[[noreturn]] void refuse(const Run& run, const Parts&... parts) {
  throw Error(detail::cat(run.origin, ": ", parts...));
}

// The JSON object under `key`; an empty one when the key is absent.
json object_at(const Run& run, const char* key) {
  const auto at = run.metadata.find(key);
  if (at == run.metadata.end()) return json::object();
  json value = parse_json(detail::cat(run.origin, ": metadata ", key), at->second);
  if (!value.is_object())
    refuse(run, "metadata ", key, " is ", shown(value), ", expected a JSON object");
  return value;
}

// A list of axis names.
std::vector<std::string> axes_from(const Run& run, const std::string& where, const json& value) {
  std::vector<std::string> axes;
  for (const json& axis : value) {
    if (!axis.is_string())
      refuse(run, where, " holds ", shown(axis), ", expected the name of an axis");
    axes.push_back(axis.get<std::string>());
  }
  return axes;
}

// null, "X" or ["X", "Y"] for each dimension.
PartitionSpec spec_from(const Run& run, const std::string& where, const json& value) {
  if (!value.is_array()) {
    refuse(run, where, " is ", shown(value),
           ", expected a list with null, \"X\" or [\"X\", \"Y\"] a dimension");
  }
  PartitionSpec spec;
  for (const json& entry : value) {
    if (entry.is_null()) {
      spec.entries.emplace_back();
    } else if (entry.is_string()) {
      spec.entries.push_back({entry.get<std::string>()});
    } else if (entry.is_array()) {
      spec.entries.push_back(axes_from(run, where, entry));
    } else {
      refuse(run, where, " holds ", shown(entry), ", expected null, \"X\" or [\"X\", \"Y\"]");
    }
  }
  return spec;
}

// A spec, or {"spec": [..], "unreduced": ["Y"]}.
OutSpec out_spec_from(const Run& run, const std::string& where, const json& value) {
  if (!value.is_object()) return {spec_from(run, where, value), {}};
  OutSpec out;
  for (const auto& [key, part] : value.items()) {
    if (key == "spec") {
      out.spec = spec_from(run, where + " spec", part);
    } else if (key == "unreduced") {
      if (!part.is_array())
        refuse(run, where, " unreduced is ", shown(part), ", expected a list of axes");
      out.unreduced = axes_from(run, where + " unreduced", part);
    } else {
      refuse(run, where, " has an unknown key ", quote(key), "; known: spec, unreduced");
    }
  }
  return out;
}

// The shortest JSON form that spec_from reads back as the same.
json json_of(const PartitionSpec& spec) {
  json out = json::array();
  for (std::size_t d = 0; d < spec.entries.size(); ++d) {
    const std::span<const std::string> axes = spec[d];
    if (axes.empty()) {
      out.push_back(nullptr);
    } else if (axes.size() == 1) {
      out.push_back(axes[0]);
    } else {
      out.push_back(std::vector<std::string>(axes.begin(), axes.end()));
    }
  }
  return out;
}

}  // namespace

void parse_metadata(Run& run) {
  const auto& metadata = run.metadata;
  const auto version = metadata.find("kref");
  if (version == metadata.end()) {
    refuse(run, "not a run file: no metadata key 'kref', expected '", kVersion, "'");
  }
  if (version->second != kVersion) {
    refuse(run, "run file version is ", quote(version->second), ", expected '", kVersion, "'");
  }
  const auto op = metadata.find("op");
  if (op == metadata.end() || op->second.empty()) {
    refuse(run, "no metadata key 'op', expected the name of an operation");
  }
  run.op = op->second;
  run.set = object_at(run, "set");
  if (const auto mesh = metadata.find("mesh"); mesh != metadata.end()) {
    try {
      run.mesh = Mesh::parse(mesh->second);
    } catch (const Error& e) {
      refuse(run, e.what());
    }
  }
  const json in_specs = object_at(run, "in_specs"), out_specs = object_at(run, "out_specs");
  for (const auto& [name, value] : in_specs.items()) {
    run.in_specs[name] = spec_from(run, "in_specs " + quote(name), value);
  }
  for (const auto& [name, value] : out_specs.items()) {
    run.out_specs[name] = out_spec_from(run, "out_specs " + quote(name), value);
  }
}

std::map<std::string, std::string> metadata_of(const Run& run) {
  std::map<std::string, std::string> out = run.metadata;
  for (const char* key : {"set", "mesh", "in_specs", "out_specs"}) out.erase(key);
  out["kref"] = kVersion;
  out["op"] = run.op;
  out["set"] = run.set.dump();
  if (run.mesh) out["mesh"] = to_string(*run.mesh);
  json specs = json::object();
  for (const auto& [name, spec] : run.in_specs) specs[name] = json_of(spec);
  if (!specs.empty()) out["in_specs"] = specs.dump();
  specs = json::object();
  for (const auto& [name, out_spec] : run.out_specs) {
    specs[name] = json_of(out_spec.spec);
    if (!out_spec.unreduced.empty()) {
      specs[name] = {{"spec", json_of(out_spec.spec)}, {"unreduced", out_spec.unreduced}};
    }
  }
  if (!specs.empty()) out["out_specs"] = specs.dump();
  return out;
}

}  // namespace kref
