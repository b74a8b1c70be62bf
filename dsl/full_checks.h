// SPDX-License-Identifier: Apache-2.0
// KREF_CHECKS, which makes every run of the process a checked one.
#pragma once

namespace kref {

// Does the environment say KREF_CHECKS=full? Error when it says anything else.
bool full_checks();

}  // namespace kref
