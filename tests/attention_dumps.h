// SPDX-License-Identifier: Apache-2.0
// Kernels that dump the state of their online softmax after each block of keys, simulated: in f32
// (f64 for F64 inputs), rescaled from block to block as they do it, which the judge does not.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "golden/attention_op.h"
#include "golden/operation.h"
#include "golden/partial.h"

namespace kref {

// What a kernel does with one row of one block: the keys it takes, given those that it should.
struct SeenKey {
  Index index = 0;
  double logit = 0;
  std::vector<double> v;
};
struct SeenRow {
  Index batch = 0, head = 0, query = 0;
  std::size_t first = 0;  // element of o
  bool plain = false;     // a softmax, not a row that has a rule of its own
  double sink = 0;
  std::vector<SeenKey> keys;
  std::vector<double> o;  // by the definition
  double lse = 0;
};

inline std::vector<SeenRow> rows_of(const AttentionRun& run,
                                    const reference::AttentionOptions& given) {
  reference::AttentionOptions options = given;
  options.p_dtype.reset();
  std::vector<SeenRow> out;
  reference::attention_rows(run.in, options, [&](const reference::AttentionRow& row) {
    SeenRow seen;
    seen.batch = row.batch, seen.head = row.head, seen.query = row.query;
    seen.first = static_cast<std::size_t>(
        reference::o_offset(options.layout, run.heads, run.queries, run.width, row));
    seen.plain = row.kind == reference::AttentionRow::Kind::kSoftmax;
    seen.sink = row.sink, seen.o = row.o, seen.lse = row.lse;
    for (const auto& key : row.keys) {
      const double* v = row.v + key.index * run.width;
      seen.keys.push_back({key.index, key.logit, {v, v + run.width}});
    }
    out.push_back(std::move(seen));
  });
  return out;
}

struct DumpingKernel {
  Index block = 1;
  bool raw = false;                              // acc, m and l in place of o and lse
  enum { kFirst, kLast, kAfter } sink = kFirst;  // when it joins; kAfter: after the last dump
  // The keys that it takes of block `j`, those of the row as it should be: a fault changes them.
  std::function<std::vector<SeenKey>(const SeenRow& row, Index j, std::vector<SeenKey> right)>
      take = {};
  double shift = 0;  // added to what it takes for the maximum

  struct Result {
    std::map<std::string, Array> states, outputs;
  };

  // Of a run; `like`: what its outputs are made as.
  Result operator()(const AttentionRun& run, const std::map<std::string, Array>& like) const {
    return run.dtype() == DType::kF64 ? compute<double>(run, like) : compute<float>(run, like);
  }

 private:
  template <class R>
  Result compute(const AttentionRun& run, const std::map<std::string, Array>& like) const {
    constexpr R kInfinity = std::numeric_limits<R>::infinity();
    const R log2e = static_cast<R>(1.4426950408889634);
    const bool base2 = run.options.lse_base == reference::LogBase::k2;
    const Index count = cdiv(run.keys, block);
    std::vector<double> o, lse, acc_all, m_all, l_all;
    const std::vector<SeenRow> rows = rows_of(run, run.options);
    const auto width = static_cast<std::size_t>(run.width), all = rows.size() * width;
    std::vector<double> out_o(all), out_lse(rows.size());
    const auto n = static_cast<std::size_t>(count);
    o.resize(n * all), acc_all.resize(n * all);
    for (auto* numbers : {&lse, &m_all, &l_all}) numbers->resize(n * rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const SeenRow& row = rows[r];
      R m = -kInfinity, l = 0;
      std::vector<R> acc(width, 0);
      const auto add = [&](R logit, const std::vector<double>* v) {
        const R to = std::isnan(logit) ? logit : std::max(m, logit + static_cast<R>(shift));
        if (to == -kInfinity) return;
        const R factor = std::exp(m - to), p = std::exp(logit - to);
        l = l * factor + p;
        for (std::size_t e = 0; e < width; ++e) {
          acc[e] = acc[e] * factor + (v == nullptr ? 0 : p * static_cast<R>((*v)[e]));
        }
        m = to;
      };
      const auto value = [&](std::size_t e) { return l == 0 ? R{0} : acc[e] / l; };
      const auto log_sum = [&] { return (m + std::log(l)) * (base2 ? log2e : R{1}); };
      if (sink == kFirst) add(static_cast<R>(row.sink), nullptr);
      for (Index j = 0; j < count; ++j) {
        std::vector<SeenKey> keys;
        for (const SeenKey& key : row.keys) {
          if (key.index / block == j) keys.push_back(key);
        }
        if (take) keys = take(row, j, std::move(keys));
        for (const SeenKey& key : keys) add(static_cast<R>(key.logit), &key.v);
        if (sink == kLast && j + 1 == count) add(static_cast<R>(row.sink), nullptr);
        const auto at = static_cast<std::size_t>(j);
        for (std::size_t e = 0; e < width; ++e) {
          o[at * all + row.first + e] = static_cast<double>(value(e));
          acc_all[at * all + row.first + e] = static_cast<double>(acc[e]);
        }
        lse[at * rows.size() + r] = static_cast<double>(log_sum());
        m_all[at * rows.size() + r] = static_cast<double>(m);
        l_all[at * rows.size() + r] = static_cast<double>(l);
      }
      if (sink == kAfter) add(static_cast<R>(row.sink), nullptr);
      for (std::size_t e = 0; e < width; ++e) {
        out_o[row.first + e] = row.plain ? static_cast<double>(value(e)) : row.o[e];
      }
      out_lse[r] = row.plain ? static_cast<double>(log_sum()) : row.lse;
    }
    constexpr DType kType = dtype_of<R>;
    const auto states = [&](const Array& a, DType type, const std::vector<double>& values) {
      std::vector<Index> shape(a.shape().begin(), a.shape().end());
      shape.insert(shape.begin(), count);
      return rounded_array(type, shape, values);
    };
    const auto output = [&](const Array& a, const std::vector<double>& values) {
      return rounded_array(a.dtype(), {a.shape().begin(), a.shape().end()}, values);
    };
    const Array &like_o = like.at("o"), &like_lse = like.at("lse");
    Result result;
    result.outputs = {{"o", output(like_o, out_o)}, {"lse", output(like_lse, out_lse)}};
    if (raw) {
      result.states = {{"acc", states(like_o, kType, acc_all)},
                       {"m", states(like_lse, kType, m_all)},
                       {"l", states(like_lse, kType, l_all)}};
    } else {
      result.states = {{"o", states(like_o, like_o.dtype(), o)},
                       {"lse", states(like_lse, kType, lse)}};
    }
    return result;
  }
};

struct Judged {
  std::vector<Verdict> outputs;
  PartialVerdict partial;
  bool outputs_right() const {
    return std::all_of(outputs.begin(), outputs.end(), [](const Verdict& v) { return v.ok(); });
  }
  std::string text() const { return partial_report(partial, outputs_right()); }
};

inline Judged judged(const Run& run, const PartialStates& states) {
  const Operation& operation = find_operation(run.op);
  operation.validate(run, true);
  Judged out;
  for (const Expectation& e : operation.expect(run)) {
    out.outputs.push_back(judge(e, run.out.at(e.output)));
  }
  out.partial = operation.judge_partials(run, states, out.outputs);
  return out;
}

// Both outputs, as things to be like.
inline std::map<std::string, Array> outputs_of(const AttentionRun& run) {
  return {{"o", Array(run.out_dtype, run.o_shape())}, {"lse", Array(DType::kF32, run.lse_shape())}};
}

inline float noise(std::uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<float>(state >> 8) * 0x1p-23f - 1;  // -1 to 1
}

// Two sequences, four heads on two kv heads, T = 24, S = 30, D = 8, E = 6.
inline Run random_run(const nlohmann::json& options) {
  Run run;
  run.origin = "test", run.op = "attention";
  run.set = {{"scale", 0.7}, {"out_dtype", "F32"}};
  run.set.update(options);
  const bool bthd = run.set.value("layout", "BHTD") == "BTHD";
  std::uint32_t state = 7;
  const auto fill = [&](const char* name, Index heads, Index rows, Index columns) {
    Array a(DType::kF32, bthd ? std::vector<Index>{2, rows, heads, columns}
                              : std::vector<Index>{2, heads, rows, columns});
    for (float& x : a.mutable_elements<float>()) x = noise(state);
    run.in[name] = a;
  };
  fill("q", 4, 24, 8), fill("k", 2, 30, 8), fill("v", 2, 30, 6);
  run.out = outputs_of(read_attention(run));
  return run;
}

inline PartialStates states_of(const DumpingKernel& kernel, Run& run) {
  const DumpingKernel::Result result = kernel(read_attention(run), run.out);
  for (const auto& [name, array] : result.outputs) run.out[name] = array;
  return {result.states, kernel.block};
}

}  // namespace kref
