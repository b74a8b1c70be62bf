// SPDX-License-Identifier: Apache-2.0
// Pending: a collective that was started and not yet taken (lax.x_start(...), .done()).
#pragma once

#include <memory>

#include "dsl/array.h"

namespace kref {

// Move-only. The operand stays as it was until done(). On threads nothing travels by itself: the
// receiver copies in done(), so that what overlaps with computing is the others' waiting; the cost
// model prices the transfer from start to done. A Pending that is destroyed without done() ends the
// launch with an Error that names device, operation and call site.
class [[nodiscard]] Pending {
 public:
  // What a collective leaves for done() to do.
  class Work {
   public:
    virtual ~Work() = default;
    virtual Array finish() = 0;
  };

  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}

  // Waits for the others and gives the result. Error when it was taken before.
  Array done() {
    KREF_CHECK(work_ != nullptr, "done() of a collective whose result was taken already");
    const std::unique_ptr<Work> work = std::move(work_);
    return work->finish();
  }

 private:
  std::unique_ptr<Work> work_;
};

}  // namespace kref
