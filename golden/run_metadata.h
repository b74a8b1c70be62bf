// SPDX-License-Identifier: Apache-2.0
// The metadata of a run file, between strings and the fields of Run.
#pragma once

#include "golden/run.h"

namespace kref {

// Fills op, set, mesh, in_specs and out_specs from run.metadata. Error (begins with run.origin)
// for a missing or foreign `kref` version, no `op`, and anything that is not as runs.md says.
void parse_metadata(Run& run);

// The metadata that says what `run` says: its own keys, and the rest of run.metadata unchanged.
std::map<std::string, std::string> metadata_of(const Run& run);

}  // namespace kref
