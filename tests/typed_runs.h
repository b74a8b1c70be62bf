// SPDX-License-Identifier: Apache-2.0
// Typed bodies of one argument, called once: what they compute, and what they are told.
#pragma once

#include <string>
#include <vector>

#include "sharding/typed_shard_map.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {

template <class Body>
std::string message(const Mesh& mesh, const Placement& in, const Placement& out, const Array& x,
                    Body body) {
  return refusal([&] { shard_map(mesh, {.in_specs = {in}, .out_specs = {out}}, body)(x); });
}

template <class Body>
std::vector<double> run(const Mesh& mesh, const Placement& in, const Placement& out, const Array& x,
                        Body body) {
  return values(shard_map(mesh, {.in_specs = {in}, .out_specs = {out}}, body)(x));
}

}  // namespace kref
