// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kref::bench {

// Registers attention_vjp/TYPE/TxSxD/MASK/THREADS/WHO: flash_attention_vjp from o and lse, as kref
// and as hand-written loops round the same verbs.
void add_attention_vjp();

}  // namespace kref::bench
