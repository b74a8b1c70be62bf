// SPDX-License-Identifier: Apache-2.0
// Probes: inputs whose right answer is an integer or a dyadic fraction, so that a kernel which
// reads one element too many, too few or of another head gives wrong bits, whatever its tiles.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "golden/cost.h"
#include "golden/run.h"

namespace kref {

// What a row gives.
enum class ProbeKind {
  kUniform,   // q = 0: each row is the mean of the values it sees
  kSelect,    // each row is the value at one end of what it sees: the last key, or the first
  kPosition,  // each row is the value of one key, here and there among those it sees
};

// "uniform", "select", "position". Error that lists them.
ProbeKind parse_probe(const std::string& word);
const char* name_of(ProbeKind kind);

// A probe of the operation of `given`: its options, mesh and inputs are kept, inputs of `shapes`
// are made up, and so are those that the operation needs and nobody gives; of a run file all but
// lengths, masks and segments. Error where a shape does not fit, an element type does not hold what
// the probe needs, or an answer would be neither integer nor dyadic (the row is named).
Run probe_run(const Run& given, ProbeKind kind, const std::vector<NamedShape>& shapes);

// The numbers that q, k and v are filled with.
struct ProbeCode {
  ProbeKind kind;
  DType dtype;
  double scale;
  Index groups, keys, depth, width;  // G, S, D, E

  // In which the number of a key is written along D.
  Index base() const;
  // Of a row of head h that is to select key `target` (kPosition). Heads alternate between the last
  // key that is seen and the first (kSelect).
  double q(Index h, Index target, Index d) const;
  double k(Index g, Index j, Index d) const;
  // Columns tell the position, the kv head and batch, and the column.
  double v(Index b, Index g, Index j, Index e) const;

 private:
  double gain() const;  // a power of two that sets neighbours' logits 128 apart
};

// in.NAME with at(index) in every place, in the type and shape that it has. Error when the type
// does not hold a number.
void fill_probe(Run& run, const char* name,
                const std::function<double(const std::vector<Index>&)>& at);

// What attention_op.cc and decode_op.cc have in Operation::probe: `made` are the inputs to fill,
// zeros as yet; the run fits.
Run probe_attention(const Run& run, ProbeKind kind, const std::set<std::string>& made);
Run probe_decode(const Run& run, ProbeKind kind, const std::set<std::string>& made);

}  // namespace kref
