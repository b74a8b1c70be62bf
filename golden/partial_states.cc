// SPDX-License-Identifier: Apache-2.0
#include "golden/partial_states.h"

#include <algorithm>

#include "golden/attention_options.h"
#include "golden/dims.h"
#include "golden/operation.h"

namespace kref {
namespace {

const Array* find(const PartialStates& states, const char* name) {
  const auto at = states.arrays.find(name);
  return at == states.arrays.end() ? nullptr : &at->second;
}

// One of the two sets there are, whole.
CheckedStates choose(const Run& run, const PartialStates& states) {
  CheckedStates out;
  const Array *o = find(states, "o"), *acc = find(states, "acc");
  out.lse = find(states, "lse"), out.m = find(states, "m"), out.l = find(states, "l");
  const char* const kExpected = "expected o, or o and lse, or acc, m and l";
  if (o == nullptr && acc == nullptr) {
    refuse_run(run, "partial.o is missing, and so is partial.acc; ", kExpected);
  }
  if (o != nullptr) {
    for (const char* name : {"acc", "m", "l"}) {
      if (find(states, name) != nullptr) {
        refuse_run(run, "partial.", name, " is given beside partial.o; ", kExpected);
      }
    }
    out.values = o;
    return out;
  }
  if (out.lse != nullptr) refuse_run(run, "partial.lse is given beside partial.acc; ", kExpected);
  for (const char* name : {"m", "l"}) {
    if (find(states, name) == nullptr) {
      refuse_run(run, "partial.", name, " is missing beside partial.acc; ", kExpected);
    }
  }
  out.values = acc;
  return out;
}

void check_dtypes(const Run& run, const PartialStates& states) {
  for (const auto& [name, array] : states.arrays) {
    const DType found = array.dtype();
    if (name == "o" || name == "acc") {
      if (std::find(kFloatTypes.begin(), kFloatTypes.end(), found) != kFloatTypes.end()) continue;
      refuse_run(run, "partial.", name, " has element type ", name_of(found),
                 ", expected a float type");
    } else if (found != DType::kF32 && found != DType::kF64) {
      refuse_run(run, "partial.", name, " has element type ", name_of(found),
                 ", expected F32 or F64");
    }
  }
}

// Keys a block, where there are `count` states of `keys` keys.
Index block_of(const Run& run, const PartialStates& states, Index count, Index keys) {
  const char* const name = states.arrays.contains("o") ? "o" : "acc";
  if (states.block) {
    if (*states.block < 1) {
      refuse_run(run, "partial.", name, " is given with blocks of ", *states.block,
                 " keys (--block-kv), expected 1 or more");
    }
    const Index expected = cdiv(keys, *states.block);
    if (count == expected) return *states.block;
    refuse_run(run, "partial.", name, " has N = ", count, " states, expected ", expected,
               ": S = ", keys, " keys in blocks of ", *states.block, " (--block-kv)");
  }
  if (count == 0 && keys == 0) return 1;
  if (count > 0 && keys > 0 && keys % count == 0) return keys / count;
  refuse_run(run, "partial.", name, " has N = ", count, " states of S = ", keys,
             " keys, expected an N that divides S, or the keys of a block with --block-kv");
}

}  // namespace

CheckedStates check_states(const Run& run, const PartialStates& states, Index keys,
                           const std::vector<std::pair<std::string, std::string>>& inputs,
                           const std::string& o_dims, const std::string& lse_dims) {
  CheckedStates out = choose(run, states);
  check_dtypes(run, states);
  Dims dims(run);
  for (const auto& [name, letters] : inputs) dims.bind("in." + name, run.in.at(name), letters);
  const bool raw = out.l != nullptr;
  dims.bind(raw ? "partial.acc" : "partial.o", *out.values, "N " + o_dims);
  const auto row_numbers = [&](const char* name, const Array* array) {
    if (array != nullptr) dims.bind(name, *array, "N " + lse_dims);
  };
  row_numbers("partial.lse", out.lse);
  row_numbers("partial.m", out.m), row_numbers("partial.l", out.l);
  out.count = dims['N'];
  out.block = block_of(run, states, out.count, keys);
  out.assumed = !states.block;
  return out;
}

}  // namespace kref
