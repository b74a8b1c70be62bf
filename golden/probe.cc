// SPDX-License-Identifier: Apache-2.0
#include "golden/probe.h"

#include <algorithm>
#include <cmath>

#include "dsl/flat_index.h"
#include "golden/file_text.h"
#include "golden/nearest.h"
#include "golden/operation.h"

namespace kref {
namespace {

const std::vector<std::string> kWords = {"uniform", "select", "position"};

// Integers up to here are held exactly, and their sums over keys in f32.
Index range(DType type, Index keys) {
  const double exact = 1 / unit_roundoff(type);
  return static_cast<Index>(
      std::min(exact, 0x1p24 / static_cast<double>(std::max<Index>(1, keys))));
}

Array zeros(const Array& like) { return Array(like.dtype(), like.shape()); }

Array zeros(DType type, std::vector<Index> shape) { return Array(type, shape); }

// Inputs that follow from others, or are taken where nothing is said.
void complete(Run& run, std::set<std::string>& made) {
  const auto add = [&](const char* name, DType type, std::vector<Index> shape) {
    if (run.in.contains(name)) return;
    run.in.emplace(name, zeros(type, std::move(shape)));
    made.insert(name);
  };
  const auto shape = [&](const char* name) {
    const Array& a = run.in.at(name);
    return std::vector<Index>(a.shape().begin(), a.shape().end());
  };
  if (run.op == "decode_attention") {
    const bool any = run.in.contains("q") || run.in.contains("k_cache");
    if (!any) add("q", DType::kF32, {4, 4, 64}), add("k_cache", DType::kF32, {4, 256, 2, 64});
    if (!run.in.contains("q") || !run.in.contains("k_cache")) return;
    const DType type = run.in.at("q").dtype();
    add("v_cache", type, shape("k_cache"));
    add("lengths", DType::kI32, {run.in.at("q").rank() > 0 ? run.in.at("q").extent(0) : 0});
    return;
  }
  if (!run.in.contains("q")) {
    const auto layout = run.set.find("layout");
    const bool bthd = layout != run.set.end() && *layout == "BTHD";
    const auto shape_of = [&](Index heads) {
      return bthd ? std::vector<Index>{1, 128, heads, 64} : std::vector<Index>{1, heads, 128, 64};
    };
    add("q", DType::kF32, shape_of(4)), add("k", DType::kF32, shape_of(2));
  }
  const DType type = run.in.at("q").dtype();
  add("k", type, shape("q"));
  add("v", type, shape("k"));
}

}  // namespace

ProbeKind parse_probe(const std::string& word) {
  const auto at = std::find(kWords.begin(), kWords.end(), word);
  KREF_CHECK(at != kWords.end(), "--probe ", quote(word), ": expected ", joined(kWords),
             did_you_mean(word, kWords));
  return static_cast<ProbeKind>(at - kWords.begin());
}

const char* name_of(ProbeKind kind) { return kWords[static_cast<std::size_t>(kind)].c_str(); }

// Up to what bf16 holds as well, since a TPU multiplies in it by default; F16 has little range and
// needs few digits instead.
Index ProbeCode::base() const {
  if (kind == ProbeKind::kPosition) return 2;
  const double held = 1 / unit_roundoff(dtype);
  return static_cast<Index>(dtype == DType::kF16 ? held : std::min(held, 256.0));
}

double ProbeCode::gain() const {
  return std::copysign(std::exp2(std::ceil(std::log2(128 / std::fabs(scale)))), scale);
}

double ProbeCode::q(Index h, Index target, Index d) const {
  if (kind == ProbeKind::kUniform) return 0;
  if (kind == ProbeKind::kPosition) {
    const bool used = d < 62 && (keys - 1) >> d > 0;
    return used ? gain() * ((target >> d) % 2 == 1 ? 1 : -1) : 0;
  }
  // The number of the key, digit by digit.
  const auto b = static_cast<double>(base());
  const double digit = std::pow(b, static_cast<double>(d));
  if (digit >= static_cast<double>(std::max<Index>(1, keys))) return 0;
  return (h % 2 == 0 ? 1 : -1) * gain() * digit;
}

double ProbeCode::k(Index g, Index j, Index d) const {
  if (kind == ProbeKind::kPosition && d < 62 && (keys - 1) >> d > 0)
    return (j >> d) % 2 == 1 ? 1 : -1;
  if (kind == ProbeKind::kSelect) {
    Index rest = j, last = keys - 1;
    for (Index n = 0; n < d; ++n) rest /= base(), last /= base();
    if (d == 0 || last > 0) return static_cast<double>(rest % base());
  }
  return static_cast<double>((j * 7 + d * 3 + g) % 5 - 2);  // meets a 0 of q
}

double ProbeCode::v(Index b, Index g, Index j, Index e) const {
  const Index most = range(dtype, keys);
  const bool roomy = most >= 64;
  const Index column = roomy ? 2 * (e / 3 % 8) : 0;
  // Even, so that the mean of a run of neighbours is an integer; never 0.
  const Index period = std::max<Index>(1, (most - (roomy ? 16 : 2)) / 2);
  const Index low = 2 * (j % period) + 2, high = 2 * (j / period) + 2;
  const Index code = (b * groups + g) % std::max<Index>(1, most / 2) + 1;
  Index value = low;
  if (width == 1) {
    const Index both = low + (code - 1) * 2 * std::min(keys, period);
    if (both + column <= most) value = both;
  } else if (e % 3 == 1) {
    value = code;
  } else if (e % 3 == 2) {
    value = keys > period ? high : low + 1;
  }
  return static_cast<double>(value + column);
}

void fill_probe(Run& run, const char* name,
                const std::function<double(const std::vector<Index>&)>& at) {
  Array out = zeros(run.in.at(name));
  const std::vector<Index> shape(out.shape().begin(), out.shape().end());
  with_dtype(out.dtype(), [&]<class T>() {
    auto to = out.mutable_elements<T>();
    for (Index i = 0; i < out.size(); ++i) {
      const double value = at(unravel(i, shape));
      T& element = to[static_cast<std::size_t>(i)];
      if constexpr (std::is_same_v<T, bool>) {
        element = value != 0;
      } else {
        element = static_cast<T>(value);
      }
      if (static_cast<double>(element) == value) continue;
      refuse_run(run, "this probe needs ", value, " in in.", name, ", which ", name_of(out.dtype()),
                 " does not hold; a wider type or a larger scale does");
    }
  });
  run.in[name] = out;
}

Run probe_run(const Run& given, ProbeKind kind, const std::vector<NamedShape>& shapes) {
  const Operation& operation = find_operation(given.op);
  if (operation.probe == nullptr) {
    std::vector<std::string> known;
    for (const Operation& o : operations()) {
      if (o.probe != nullptr) known.emplace_back(o.name);
    }
    refuse_run(given, "there is no probe of this operation, but of ", joined(known));
  }
  Run run = given;
  std::set<std::string> made;
  for (const NamedShape& shape : shapes) {
    const Array array = read_shape(shape);
    KREF_CHECK(run.in.emplace(shape.name, zeros(array)).second, "--shape ", shape.name,
               ": the array is given");
    made.insert(shape.name);
  }
  if (!run.out.empty()) {
    run.out.clear();
    for (const char* name : {"q", "k", "v", "k_cache", "v_cache", "k_new", "v_new"}) {
      const auto at = run.in.find(name);
      if (at == run.in.end()) continue;
      at->second = zeros(at->second);
      made.insert(name);
    }
  }
  complete(run, made);
  if (!run.set.contains("scale") && run.in.contains("q") && run.in.at("q").rank() > 0) {
    const Array& q = run.in.at("q");
    const auto depth = static_cast<double>(std::max<Index>(1, q.extent(q.rank() - 1)));
    run.set["scale"] = std::exp2(-std::round(std::log2(depth) / 2));  // a power of two
  }
  // Lengths of 0 are as good as any to find what does not fit, except where they are refused.
  if (made.contains("lengths")) fill_probe(run, "lengths", [](const auto&) { return 1; });
  operation.validate(run, false);
  Run out = operation.probe(run, kind, made);
  out.metadata["probe"] = name_of(kind);
  return out;
}

}  // namespace kref
