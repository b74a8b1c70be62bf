// SPDX-License-Identifier: Apache-2.0
// Probes: right answers that are exact, and the same for every tiling.
#include <doctest/doctest.h>

#include "kernels/flash_attention.h"
#include "tests/probe_cases.h"
#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("what the kernels compute is the definition, bit for bit, and checks") {
  for (const ProbeConfig& config : configs()) {
    CAPTURE(std::string(config.name));
    for (const ProbeKind kind : kKinds) {
      CAPTURE(std::string(name_of(kind)));
      Run run = probe_of(config, kind);
      const Operation& operation = find_operation(run.op);
      run.out = operation.compute(run);
      operation.validate(run, true);
      CHECK(right(operation.expect(run), run.out));
      const Array o = run.out.at("o");
      CHECK_FALSE(differ(o, Probed(run).o()));
      // Zeros would not pass: only rows that see nothing, or their sink alone, are 0.
      Index zero = 0;
      for (Index i = 0; i < o.size(); ++i) zero += o.at(i) == 0;
      CHECK(zero * 2 < o.size());
      if (config.shapes.size() < 4) CHECK(zero == 0);
    }
  }
}

TEST_CASE("two tilings of flash_attention differ in no bit") {
  for (const ProbeConfig& config : configs()) {
    if (std::string(config.op) != "attention") continue;
    CAPTURE(std::string(config.name));
    for (const ProbeKind kind : kKinds) {
      CAPTURE(std::string(name_of(kind)));
      const Run run = probe_of(config, kind);
      const AttentionRun a = read_attention(run);
      std::vector<Array> o;
      for (const AttentionTile& tile : {AttentionTile{128, 128}, AttentionTile{7, 16}, {1, 48}}) {
        o.emplace_back(a.out_dtype, a.o_shape());
        flash_attention(a.in, o.back().mutable_ref(), {}, a.options, tile);
        CHECK_FALSE(differ(o[0], o.back()));
      }
    }
  }
}

TEST_CASE("what makes no probe is refused by name") {
  const auto message = [](const char* op, nlohmann::json set, std::vector<NamedShape> shapes,
                          ProbeKind kind) {
    return refusal([&] { probe_of({"", op, shapes, set}, kind); });
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  using Shapes = std::vector<NamedShape>;
  has(message("matmul", nlohmann::json::object(), {}, ProbeKind::kUniform), "no probe");
  has(message("attention", {{"scale", 0.5}}, Shapes{{"q", "f32[1,4,8]"}}, ProbeKind::kUniform),
      "in.q");
  has(message("attention", nlohmann::json::object(),
              Shapes{{"q", "f32[1,1,300,2]"}, {"k", "f32[1,1,300,2]"}}, ProbeKind::kPosition),
      "needs D = 9");
  has(message("attention", {{"scale", 1}, {"soft_cap", 2}}, Shapes{{"q", "f32[1,1,8,8]"}},
              ProbeKind::kSelect),
      "soft_cap");
  has(message("attention", {{"scale", 0}}, {}, ProbeKind::kSelect), "scale is 0");
  // A mean of 3 of these keys is no dyadic number.
  has(message("attention", {{"causal", "top_left"}}, Shapes{{"q", "bf16[1,1,600,16]"}},
              ProbeKind::kUniform),
      "no multiple of 2^-12");
  CHECK(refusal([] { parse_probe("uniforn"); }).find("did you mean") != std::string::npos);
}

}  // namespace
}  // namespace kref
