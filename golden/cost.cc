// SPDX-License-Identifier: Apache-2.0
#include "golden/cost.h"

#include <algorithm>
#include <limits>
#include <set>

#include "golden/attention_options.h"
#include "golden/file_text.h"
#include "golden/nearest.h"

namespace kref {
namespace {

// What a run of shapes may hold elements of: small arrays that options are read from.
constexpr Index kMostElements = 1 << 24;

// An array of which only shape and type are known; integers and bools are there, and 0.
Array shape_only(const std::string& name, DType type, const std::vector<Index>& shape) {
  if (is_float(type) || type == DType::kI8 || type == DType::kU8) {
    return Array(type, shape, nullptr, nullptr);
  }
  const Index n = detail::checked_product(name.c_str(), shape.data(), shape.size());
  KREF_CHECK(n <= kMostElements, "--shape ", name, ": ", name_of(type), shape_string(shape),
             " has ", n, " elements, expected at most ", kMostElements, " of this type");
  return Array(type, shape);
}

// Shapes that follow from others, and lengths whose values are `unknown`: all there is.
void complete(Run& run, std::set<std::string> unknown) {
  const auto has = [&](const char* name, std::size_t rank) {
    const auto at = run.in.find(name);
    return at != run.in.end() && at->second.rank() == rank;
  };
  const auto fill = [&](const char* name, Index length) {
    if (!unknown.contains(name) || run.in.at(name).dtype() != DType::kI32) return;
    const Index most = std::min<Index>(length, std::numeric_limits<std::int32_t>::max());
    for (std::int32_t& n : run.in.at(name).mutable_elements<std::int32_t>()) {
      n = static_cast<std::int32_t>(most);
    }
  };
  if (run.op.starts_with("mlp") && has("x", 2) && has("w_in", 2)) {
    const Array x = run.in.at("x"), w = run.in.at("w_in");
    if (!run.in.contains("w_out")) {
      run.in.emplace("w_out", shape_only("w_out", w.dtype(), {w.extent(1), w.extent(0)}));
    }
    if (run.op == "mlp.vjp" && !run.in.contains("ct.y")) {
      run.in.emplace("ct.y", shape_only("ct.y", x.dtype(), {x.extent(0), x.extent(1)}));
    }
  }
  if (run.op == "decode_attention" && has("k_cache", 4)) {
    const Array cache = run.in.at("k_cache");
    if (!run.in.contains("lengths")) {
      run.in.emplace("lengths", shape_only("lengths", DType::kI32, {cache.extent(0)}));
      unknown.insert("lengths");
    }
    fill("lengths", cache.extent(1));
  }
  const bool backward = run.op == "attention.vjp";
  if ((run.op == "attention" || backward) && has("q", 4) && has("k", 4)) {
    const auto layout = run.set.find("layout");
    const std::size_t tokens = layout != run.set.end() && *layout == "BTHD" ? 1 : 2;
    fill("q_lengths", run.in.at("q").extent(tokens));
    fill("kv_lengths", run.in.at("k").extent(tokens));
    if (backward && has("v", 4) && !run.in.contains("ct.o")) {
      const Array q = run.in.at("q");
      std::vector<Index> shape(q.shape().begin(), q.shape().end());
      shape[3] = run.in.at("v").extent(3);
      const DType type = Options(run).dtype("out_dtype", kFloatTypes).value_or(q.dtype());
      run.in.emplace("ct.o", shape_only("ct.o", type, shape));
    }
  }
}

}  // namespace

Array read_shape(const NamedShape& given) {
  const auto refuse = [&](const char* why) {
    throw Error(detail::cat("--shape ", given.name, ": ", quote(given.text), ' ', why,
                            ", expected an element type and extents, as in bf16[8192,28672]"));
  };
  const std::size_t open = given.text.find('[');
  if (open == std::string::npos || given.text.back() != ']') refuse("has no [extents]");
  DType type{};
  if (!parse_dtype(given.text.substr(0, open).c_str(), type)) refuse("has no known element type");
  std::vector<Index> shape;
  std::string rest = given.text.substr(open + 1, given.text.size() - open - 2);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string part = rest.substr(0, comma);
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) refuse("has an extent that is no whole number");
    if (part.size() > 18) refuse("has an extent of more than 18 digits");
    shape.push_back(std::stoll(part));
    if (comma == std::string::npos) break;
    rest = rest.substr(comma + 1);
    if (rest.empty()) refuse("ends with a comma");
  }
  if (shape.size() > kMaxRank) refuse("has too many dimensions");
  detail::checked_product(given.name.c_str(), shape.data(), shape.size(),
                          static_cast<Index>(size_of(type)));
  return shape_only(given.name, type, shape);
}

void add_shapes(Run& run, const std::vector<NamedShape>& shapes) {
  if (shapes.empty()) return;
  std::set<std::string> unknown;
  for (const NamedShape& given : shapes) {
    KREF_CHECK(run.in.emplace(given.name, read_shape(given)).second, "cost: ", given.name,
               " is given by --in and by --shape");
    unknown.insert(given.name);
  }
  complete(run, std::move(unknown));
}

PricedRun price_run(const Run& run, const CostRequest& request) {
  const Operation& operation = find_operation(run.op);
  if (operation.price == nullptr) {
    std::vector<std::string> priced;
    for (const Operation& o : operations()) {
      if (o.price != nullptr) priced.emplace_back(o.name);
    }
    refuse_run(run, "this operation is not priced; priced are ", joined(priced));
  }
  check_declared(operation, run, false, true);
  const Mesh mesh = run.mesh.value_or(Mesh());
  PricedRun priced{{}, lay_out(request.chip, mesh, request.slice, request.network)};
  priced.cost = operation.price(run, priced.links);
  return priced;
}

}  // namespace kref
