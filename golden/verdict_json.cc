// SPDX-License-Identifier: Apache-2.0
#include "golden/verdict_json.h"

#include <cmath>

namespace kref {

nlohmann::ordered_json number_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

nlohmann::ordered_json to_json(const Verdict& verdict) {
  nlohmann::ordered_json out;
  out["output"] = verdict.output;
  out["dtype"] = name_of(verdict.dtype);
  out["shape"] = verdict.shape;
  out["elements"] = verdict.elements;
  out["wrong"] = verdict.wrong;
  out["tiles"] = verdict.tiles;
  out["wrong_tiles"] = verdict.wrong_tiles;
  out["tile_axes"] = verdict.tile_axes;
  out["first_wrong_tiles"] = nlohmann::ordered_json::array();
  for (const WrongTile& tile : verdict.first_wrong_tiles) {
    out["first_wrong_tiles"].push_back({{"tile", tile.tile},
                                        {"wrong", tile.wrong},
                                        {"elements", tile.elements},
                                        {"device", tile.device}});
  }
  out["pattern"] = verdict.pattern;
  out["detail"] = verdict.detail;
  out["hint"] = verdict.hint;
  const Worst& worst = verdict.worst;
  if (worst.element < 0) {
    out["worst"] = nullptr;
    return out;
  }
  out["worst"] = {{"element", worst.element},
                  {"index", worst.index},
                  {"expected", number_json(worst.expected)},
                  {"actual", number_json(worst.actual)},
                  {"bound", number_json(worst.bound)},
                  {"likely_bound", number_json(worst.likely_bound)},
                  {"worst_bound", number_json(worst.worst_bound)},
                  {"fraction", number_json(worst.ratio)},
                  {"tile", worst.tile},
                  {"step", worst.step},
                  {"device", worst.device}};
  if (worst.integers) {
    out["worst"]["expected"] = worst.integers->first;
    out["worst"]["actual"] = worst.integers->second;
  }
  return out;
}

std::string json_line(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace kref
