// SPDX-License-Identifier: Apache-2.0
// Faults put into right outputs of collectives, as programs make them: what the judge is tried on.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "golden/collective_run.h"
#include "tests/collective_runs.h"

namespace kref {

// An output as doubles, on its devices.
struct Output {
  Run run;
  Expectation expected;
  Array right;
  std::vector<Index> shape, local;
  PartitionSpec spec;

  explicit Output(Run r) : run(std::move(r)) {
    const CollectiveRun c = read_collective(run);
    spec = c.vjp ? c.in_spec : c.out_spec;
    shape = c.vjp ? c.x_shape : c.y_shape;
    local = c.vjp ? c.x_local : c.y_local;
    expected = std::move(find_operation(run.op).expect(run)[0]);
    right = run.out.at(expected.output);
  }

  std::vector<double> values() const {
    std::vector<double> out;
    for (Index i = 0; i < right.size(); ++i) out.push_back(right.at(i));
    return out;
  }
  Array array(const std::vector<double>& values) const {
    Array out(right.dtype(), right.shape());
    with_dtype(right.dtype(), [&]<class T>() {
      T* to = out.mutable_elements<T>().data();
      for (std::size_t i = 0; i < values.size(); ++i) {
        if constexpr (std::is_integral_v<T>) {
          to[i] = static_cast<T>(static_cast<std::int64_t>(values[i]));
        } else {
          to[i] = static_cast<T>(values[i]);
        }
      }
    });
    return out;
  }

  std::vector<Index> index_of(Index element) const {
    std::vector<Index> at(shape.size());
    for (std::size_t d = shape.size(); d-- > 0; element /= shape[d]) at[d] = element % shape[d];
    return at;
  }
  // Which shard an element lies in: its block along each dimension.
  std::vector<Index> shard_of(Index element) const {
    std::vector<Index> at = index_of(element);
    for (std::size_t d = 0; d < at.size(); ++d) at[d] /= local[d];
    return at;
  }
  // Elements of each shard, row-major.
  std::vector<std::vector<Index>> shards() const {
    std::map<std::vector<Index>, std::vector<Index>> by;
    for (Index i = 0; i < right.size(); ++i) by[shard_of(i)].push_back(i);
    std::vector<std::vector<Index>> out;
    for (auto& [at, elements] : by) out.push_back(elements);
    return out;
  }
  // "(X=1, Y=0..3)" by the definition of a spec: the block's index along a dimension is that along
  // its axes, the first one major.
  std::string device(Index element) const {
    const std::vector<Index> block = shard_of(element);
    std::string out;
    for (const MeshAxis& axis : run.mesh->axes()) {
      std::string index = axis.size == 1 ? "0" : "0.." + std::to_string(axis.size - 1);
      for (std::size_t d = 0; d < shape.size(); ++d) {
        Index rest = block[d];
        for (std::size_t a = spec[d].size(); a-- > 0;) {
          const Index size = run.mesh->size(spec[d][a]);
          if (spec[d][a] == axis.name) index = std::to_string(rest % size);
          rest /= size;
        }
      }
      out += (out.empty() ? "(" : ", ") + axis.name + "=" + index;
    }
    return out + ")";
  }
};

struct Mutant {
  std::string kind;
  std::set<std::string> names;  // what a guess may say beside "unknown"
  std::vector<double> z;
};

inline double poison_of(DType type) {
  return with_dtype(type, []<class T>() { return static_cast<double>(poison<T>()); });
}

inline std::vector<Mutant> mutants(const Output& o) {
  std::vector<Mutant> out;
  const std::vector<double> z = o.values();
  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  const auto shards = o.shards();
  for (std::size_t s = 0; s < shards.size(); ++s) {
    std::vector<double> w = z;
    for (const Index i : shards[s]) w[at(i)] = 0;
    out.push_back({"shard of zeros", {"tile missing"}, w});
    for (const Index i : shards[s]) w[at(i)] = poison_of(o.right.dtype());
    out.push_back({"shard of poison", {"tile missing"}, w});
    for (const Index i : shards[s]) w[at(i)] = -z[at(i)];
    out.push_back({"shard negated", {"sign"}, w});
    w = z;
    w[at(shards[s].back())] += 8;
    out.push_back({"one element off", {}, w});
    // Two shards swapped, and one that holds another's copy.
    for (std::size_t t = s + 1; t < shards.size(); t += 1 + s) {
      w = z;
      for (std::size_t k = 0; k < shards[s].size(); ++k) {
        w[at(shards[s][k])] = z[at(shards[t][k])];
        w[at(shards[t][k])] = z[at(shards[s][k])];
      }
      out.push_back({"two shards swapped", {"shard swapped"}, w});
      w = z;
      for (std::size_t k = 0; k < shards[s].size(); ++k) {
        w[at(shards[s][k])] = z[at(shards[t][k])];
      }
      out.push_back({"shard of another", {"rows shifted"}, w});
    }
    // Each shard written column by column.
    const std::size_t r = o.local.size();
    if (r < 2 || o.local[r - 1] != o.local[r - 2]) continue;
    w = z;
    const Index n = o.local[r - 1];
    for (std::size_t k = 0; k < shards[s].size(); ++k) {
      const auto e = static_cast<Index>(k);
      const Index matrix = e / (n * n), i = e / n % n, j = e % n;
      w[at(shards[s][k])] = z[at(shards[s][at((matrix * n + j) * n + i)])];
    }
    out.push_back({"shard transposed", {"transposed"}, w});
  }
  std::vector<double> w = z;
  for (double& v : w) v *= 2;
  out.push_back({"doubled", {"scaled by c"}, w});
  // Every shard where the next one belongs: the members of a group in another order.
  w = z;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    for (std::size_t k = 0; k < shards[s].size(); ++k) {
      w[at(shards[s][k])] = z[at(shards[(s + 1) % shards.size()][k])];
    }
  }
  out.push_back({"shards moved round", {"rows shifted", "shard swapped"}, w});
  return out;
}

}  // namespace kref
