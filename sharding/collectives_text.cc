// SPDX-License-Identifier: Apache-2.0
// The collectives in words, for messages and for the comparison of what devices bring.
#include "sharding/collectives_run.h"

namespace kref {
namespace detail {
namespace {

std::string option(const char* name, Index value) { return cat(name, "=", value); }
std::string option(const char* name, bool value) {
  return cat(name, "=", value ? "true" : "false");
}

std::string joined(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!out.empty()) out += ", ";
    out += part;
  }
  return out;
}

std::string sum_option(const SumOptions& sum) {
  return joined({sum.wire ? cat("wire=", name_of(*sum.wire)) : "",
                 sum.accumulate ? cat("accumulate=", name_of(*sum.accumulate)) : "",
                 sum.order == SumOrder::kRing ? "order=ring" : ""});
}

}  // namespace

std::string groups_string(const AxisIndexGroups& groups) {
  if (groups.empty()) return "";
  std::string out = "axis_index_groups=[";
  for (std::size_t g = 0; g < groups.size(); ++g)
    out.append(g > 0 ? "," : "").append(shape_string(groups[g]));
  return out + "]";
}

std::string options_string(const AllGather& op) {
  return joined({option("axis", op.axis), option("tiled", op.tiled),
                 groups_string(op.axis_index_groups),
                 op.to == GatherTo::kInvarying ? "to=invarying"
                 : op.to == GatherTo::kReduced ? "to=reduced"
                                               : ""});
}
std::string options_string(const OwnSlice& op) {
  return joined(
      {option("axis", op.axis), option("tiled", op.tiled), groups_string(op.axis_index_groups)});
}
std::string options_string(const PsumScatter& op) {
  return joined({option("scatter_dimension", op.scatter_dimension), option("tiled", op.tiled),
                 groups_string(op.axis_index_groups), sum_option(op.sum)});
}
std::string options_string(const Psum& op) {
  return joined({groups_string(op.axis_index_groups), sum_option(op.sum)});
}
std::string options_string(const Pvary& op) {
  return joined({groups_string(op.axis_index_groups), op.mean ? "mean=true" : ""});
}
std::string options_string(const Pmean& op) {
  return joined({groups_string(op.axis_index_groups), sum_option(op.sum)});
}
std::string options_string(const Pmax& op) { return groups_string(op.axis_index_groups); }
std::string options_string(const Pargmax&) { return ""; }
std::string options_string(const AllToAll& op) {
  return joined({option("split_axis", op.split_axis), option("concat_axis", op.concat_axis),
                 option("tiled", op.tiled), groups_string(op.axis_index_groups)});
}
std::string options_string(const Ppermute& op) {
  std::string out = "perm=[";
  for (std::size_t k = 0; k < op.perm.size(); ++k) {
    out += cat(k > 0 ? "," : "", "(", op.perm[k].first, ",", op.perm[k].second, ")");
  }
  return out + "]";
}
std::string options_string(const Pbroadcast& op) {
  return joined({option("source", op.source), groups_string(op.axis_index_groups)});
}
std::string options_string(const PsumTo& op) {
  return joined(
      {option("target", op.target), groups_string(op.axis_index_groups), sum_option(op.sum)});
}

}  // namespace detail

std::string to_string(const LinearCollective& op) {
  return std::visit(
      [](const auto& o) {
        const std::string options = detail::options_string(o);
        return detail::cat(detail::name_of_op(o), "(", to_string(o.axis_name),
                           options.empty() ? "" : ", ", options, ")");
      },
      op);
}

const AxisNames& axis_name(const LinearCollective& op) {
  return std::visit([](const auto& o) -> const AxisNames& { return o.axis_name; }, op);
}

}  // namespace kref
