// SPDX-License-Identifier: Apache-2.0
#include "golden/collective_run.h"

#include <algorithm>

#include "golden/operation.h"
#include "golden/options.h"
#include "sharding/collective_traits.h"

namespace kref {
namespace {

using nlohmann::json;

// In the order of the enum.
constexpr const char* kNames[] = {"all_gather", "psum",         "pmean",      "pmax",
                                  "pmin",       "psum_scatter", "all_to_all", "ppermute"};
constexpr std::string_view kVjp = ".vjp";

// An integer that an Index holds; nothing for anything else.
std::optional<Index> integer(const json& value) {
  // What has no sign is stored unsigned: past 2^63 it would read as negative.
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<Index>() < 0)) {
    return std::nullopt;
  }
  return value.get<Index>();
}

// The option; one without a fallback is required.
Index integer_option(const Options& options, const char* name, std::optional<Index> fallback) {
  const json* value = options.find(name);
  if (value == nullptr && fallback) return *fallback;
  const std::optional<Index> found = value == nullptr ? std::nullopt : integer(*value);
  if (!found) options.refuse(name, "a dimension, an integer");
  return *found;
}

std::vector<std::string> axis_name(const Options& options) {
  const json* value = options.find("axis_name");
  const std::string expected = "the name of a mesh axis, or a list of such names";
  if (value == nullptr) options.refuse("axis_name", expected);
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) options.refuse("axis_name", expected);
  std::vector<std::string> names;
  for (const json& name : *value) {
    if (!name.is_string()) options.refuse("axis_name", expected);
    names.push_back(name.get<std::string>());
  }
  return names;
}

// As the option has them; empty when it is absent.
AxisIndexGroups given_groups(const Options& options) {
  constexpr const char* kName = "axis_index_groups";
  const json* value = options.find(kName);
  if (value == nullptr || value->is_null()) return {};
  const char* expected = "a list of lists of indices, or null";
  if (!value->is_array() || value->empty()) options.refuse(kName, expected);
  AxisIndexGroups groups;
  for (const json& list : *value) {
    if (!list.is_array()) options.refuse(kName, expected);
    groups.emplace_back();
    for (const json& entry : list) {
      const std::optional<Index> index = integer(entry);
      if (!index) options.refuse(kName, expected);
      groups.back().push_back(*index);
    }
  }
  return groups;
}

// The groups of the value, which is set.
void set_groups(const Run& run, CollectiveRun& c) {
  const GroupSizes sizes =
      std::visit([](const auto& value) { return detail::group_sizes(value); }, c.value);
  try {
    check_groups(c.mesh, c.axis_name, c.given_groups, sizes, run.op);
  } catch (const Error& e) {
    throw Error(detail::cat(run.origin, ": ", e.what()));
  }
  c.groups = c.given_groups;
  if (!c.groups.empty()) return;
  c.groups.emplace_back();
  for (Index i = 0; i < axis_size(c.mesh, c.axis_name); ++i) c.groups[0].push_back(i);
}

std::vector<std::pair<Index, Index>> perm(const Options& options) {
  const json* value = options.find("perm");
  const char* expected = "a list of [source, destination]";
  if (value == nullptr || !value->is_array()) options.refuse("perm", expected);
  std::vector<std::pair<Index, Index>> pairs;
  for (const json& pair : *value) {
    const bool two = pair.is_array() && pair.size() == 2;
    const std::optional<Index> from = two ? integer(pair[0]) : std::nullopt,
                               to = two ? integer(pair[1]) : std::nullopt;
    if (!from || !to) options.refuse("perm", expected);
    pairs.emplace_back(*from, *to);
  }
  return pairs;
}

// The option and the value of the sharding layer: dimensions as given.
void set_value(const Options& options, CollectiveRun& c) {
  c.axis_name = axis_name(options);
  c.given_groups = given_groups(options);
  const AxisNames axes(c.axis_name);
  const AxisIndexGroups& groups = c.given_groups;
  switch (c.which) {
    case Collective::kAllGather:
      c.tiled = options.flag("tiled", false);
      c.axis = integer_option(options, "axis", 0);
      c.value = AllGather{axes, c.axis, c.tiled, groups};
      break;
    case Collective::kPsum:
      c.value = Psum{axes, groups};
      break;
    case Collective::kPmean:
      c.value = Pmean{axes, groups};
      break;
    case Collective::kPmax:
    case Collective::kPmin:
      c.value = Pmax{axes, groups, c.which == Collective::kPmin};
      break;
    case Collective::kPsumScatter:
      c.tiled = options.flag("tiled", false);
      c.scatter_dimension = integer_option(options, "scatter_dimension", 0);
      c.value = PsumScatter{axes, c.scatter_dimension, c.tiled, groups};
      break;
    case Collective::kAllToAll:
      c.tiled = options.flag("tiled", false);
      c.split_axis = integer_option(options, "split_axis", std::nullopt);
      c.concat_axis = integer_option(options, "concat_axis", std::nullopt);
      c.value = AllToAll{axes, c.split_axis, c.concat_axis, c.tiled, groups};
      break;
    case Collective::kPpermute:
      c.perm = perm(options);
      c.value = Ppermute{axes, c.perm};
      break;
  }
}

// Dimensions from 0 and ranks below n, once the sharding layer has passed them.
void normalize(CollectiveRun& c) {
  const auto rank = static_cast<Index>(c.x_shape.size());
  const auto from_start = [](Index& d, Index r) { d += d < 0 ? r : 0; };
  from_start(c.axis, c.tiled ? rank : rank + 1);  // of the result, which has one more
  for (Index* d : {&c.scatter_dimension, &c.split_axis, &c.concat_axis}) from_start(*d, rank);
  const Index n = c.group_size();
  for (auto& [source, destination] : c.perm) {
    source = (source % n + n) % n;
    destination = (destination % n + n) % n;
  }
}

// Shape and type of what a device gets, and the shape of the global array made of it.
void set_result(CollectiveRun& c) {
  check_spec(c.in_spec, c.x_shape, c.mesh, "in.x");
  c.x_local = local_shape(c.in_spec, c.x_shape, c.mesh);
  std::visit(
      [&](const auto& value) {
        detail::ResultType type = detail::result_type(value, c.x_local, c.x_dtype, c.group_size());
        c.y_local = std::move(type.shape);
        c.y_dtype = type.dtype;
      },
      c.value);
  normalize(c);
  if (c.out_spec.entries.size() > c.y_local.size()) {
    throw Error(detail::cat("out.y: spec ", to_string(c.out_spec), ", which has length ",
                            c.out_spec.entries.size(), ", does not fit the output, which has rank ",
                            c.y_local.size()));
  }
  // Extents of 0 are divisible by everything: do the axes fit, before they are multiplied?
  check_spec(c.out_spec, std::vector<Index>(c.y_local.size(), 0), c.mesh, "out.y");
  c.y_shape = c.y_local;
  for (std::size_t d = 0; d < c.y_shape.size(); ++d) {
    const Index factors[] = {c.y_shape[d], block_count(c.out_spec[d], c.mesh)};
    c.y_shape[d] = detail::checked_product("out.y", factors, 2);
  }
  detail::checked_product("out.y", c.y_shape.data(), c.y_shape.size());
}

void set_specs(const Run& run, CollectiveRun& c) {
  if (const auto at = run.in_specs.find("x"); at != run.in_specs.end()) c.in_spec = at->second;
  if (const auto at = run.out_specs.find("y"); at != run.out_specs.end()) {
    if (!at->second.unreduced.empty()) {
      refuse_run(run, "out_specs y: unreduced is for matmul, a collective has no partial sums");
    }
    c.out_spec = at->second.spec;
  }
}

}  // namespace

std::optional<Collective> collective_of(const std::string& op) {
  std::string_view name = op;
  const bool vjp = name.ends_with(kVjp);
  if (vjp) name.remove_suffix(kVjp.size());
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (name != kNames[i]) continue;
    const auto which = static_cast<Collective>(i);
    // An extremum has no derivative.
    const bool extremum = which == Collective::kPmax || which == Collective::kPmin;
    return vjp && extremum ? std::nullopt : std::optional(which);
  }
  return std::nullopt;
}

const char* name_of(Collective which) { return kNames[static_cast<std::size_t>(which)]; }

CollectiveRun read_collective(const Run& run) {
  const Options options(run);
  const std::optional<Collective> which = collective_of(run.op);
  KREF_DCHECK(which.has_value());
  CollectiveRun c;
  c.which = *which;
  c.vjp = run.op.ends_with(kVjp);
  if (run.mesh) c.mesh = *run.mesh;
  const Array& x = run.in.at("x");
  c.x_shape.assign(x.shape().begin(), x.shape().end());
  c.x_dtype = x.dtype();
  if (c.vjp && !is_float(c.x_dtype)) {
    refuse_run(run, "in.x has element type ", name_of(c.x_dtype),
               ", expected a float type: nothing else has a gradient");
  }
  set_specs(run, c);
  set_value(options, c);
  set_groups(run, c);
  try {
    set_result(c);
  } catch (const Error& e) {
    // "all_gather: axis=5 is .." would have the name twice.
    const std::string name = std::string(name_of(c.which)) + ": ";
    const std::string what = e.what();
    refuse_run(run, what.starts_with(name) ? what.substr(name.size()) : what);
  }
  return c;
}

}  // namespace kref
