// SPDX-License-Identifier: Apache-2.0
// What is said of partial results, for people and as JSON.
#include <algorithm>

#include "golden/partial.h"
#include "golden/report_text.h"
#include "golden/verdict_json.h"

namespace kref {
namespace {

Index end_key(const PartialVerdict& v, Index block) {
  return std::min(v.keys, (block + 1) * v.block_keys);
}

std::string block_name(const PartialVerdict& v, Index block) {
  return detail::cat("key block ", block, " (keys ", block * v.block_keys, "..",
                     end_key(v, block) - 1, ") of ", v.blocks);
}

std::string numbers(const PartialElement& e) {
  return detail::number(e.actual, 9) + ", expected " + detail::number(e.expected, 9) + ", bound " +
         detail::number(e.bound, 9);
}

std::string asked_line(const PartialVerdict& v, const PartialVerdict::Asked& asked) {
  const std::string name = "the worst " + asked.output + detail::indices(asked.index);
  if (asked.judged == 0) {
    return "  the row of " + name + " sees no key: no partial result of it is judged\n";
  }
  if (!asked.first) {
    return "  each partial result of " + name +
           " is right: its fault lies behind the last key block\n";
  }
  return "  " + name + " departs at " + block_name(v, asked.first->block) + ": " +
         asked.first->state + " is " + numbers(*asked.first) + "\n";
}

nlohmann::ordered_json json_of(const PartialVerdict& v, const PartialElement& e) {
  return {{"state", e.state},
          {"index", e.index},
          {"block", e.block},
          {"keys", {e.block * v.block_keys, end_key(v, e.block)}},
          {"expected", number_json(e.expected)},
          {"actual", number_json(e.actual)},
          {"bound", number_json(e.bound)}};
}

}  // namespace

std::string partial_report(const PartialVerdict& v, bool outputs_right) {
  const bool judged = std::any_of(v.asked.begin(), v.asked.end(),
                                  [](const PartialVerdict::Asked& a) { return a.judged > 0; });
  std::string out = "partial results: ";
  if (v.ok()) {
    out += detail::cat("all ", v.elements, " elements after ", v.blocks, " key blocks are right");
    return out + (judged ? ": the fault lies behind the last key block\n" : "\n");
  }
  out += detail::cat(v.wrong, " of ", v.elements, " elements wrong",
                     outputs_right ? ", though the outputs are right" : "", "\n");
  out += "  first depart at " + block_name(v, v.first->block) +
         detail::cat(", where ", v.wrong_there, " are wrong; the worst, ") + v.first->state +
         detail::indices(v.first->index) + ", is " + numbers(*v.first) + "\n";
  // A block of more keys than S / N departs at the first, and N does not tell: 300 keys are three
  // blocks of 100 and of 128.
  if (v.assumed && v.blocks > 1 && v.first->block == 0) {
    out += detail::cat("  keys a block taken to be S / N = ", v.block_keys,
                       ": say with --block-kv where they are more\n");
  }
  for (const PartialVerdict::Asked& asked : v.asked) out += asked_line(v, asked);
  if (v.unseen > 0) {
    out += detail::cat("  not judged: ", v.unseen, " states of rows that had seen no key\n");
  }
  if (!v.sinks.empty()) out += "  sinks taken to be in " + v.sinks + " of the states\n";
  return out;
}

nlohmann::ordered_json to_json(const PartialVerdict& v) {
  nlohmann::ordered_json out = {{"blocks", v.blocks},
                                {"block_keys", v.block_keys},
                                {"elements", v.elements},
                                {"wrong", v.wrong},
                                {"largest_error", number_json(v.ratio)},
                                {"unseen", v.unseen}};
  out["sinks"] = v.sinks.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(v.sinks);
  out["first"] = nullptr;
  if (v.first) {
    out["first"] = json_of(v, *v.first);
    out["first"]["wrong"] = v.wrong_there;
  }
  out["worst"] = nlohmann::ordered_json::array();
  for (const PartialVerdict::Asked& asked : v.asked) {
    out["worst"].push_back({{"output", asked.output},
                            {"index", asked.index},
                            {"judged", asked.judged},
                            {"departs", nullptr}});
    if (asked.first) out["worst"].back()["departs"] = json_of(v, *asked.first);
  }
  return out;
}

}  // namespace kref
