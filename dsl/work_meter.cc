// SPDX-License-Identifier: Apache-2.0
#include "dsl/work_meter.h"

#include "dsl/check.h"

namespace kref {
namespace {
thread_local WorkMeter* current = nullptr;
thread_local bool no_memory = false;
}  // namespace

MeterScope::MeterScope(WorkMeter* meter) : before_(current) { current = meter; }
MeterScope::~MeterScope() { current = before_; }

ShapesOnly::ShapesOnly(bool on) : before_(no_memory) { no_memory = on; }
ShapesOnly::~ShapesOnly() { no_memory = before_; }

namespace detail {
WorkMeter* work_meter() { return current; }
bool shapes_only() { return no_memory; }

void need_elements(const char* who, const char* name, const void* data) {
  KREF_CHECK(
      data != nullptr || !no_memory, who, ": ", name,
      " has no elements under ShapesOnly, but they are looked at; expected an array that was "
      "made outside of it");
}
void need_memory(const char* who) {
  KREF_CHECK(!no_memory, who, ": does not run on shapes alone; expected no ShapesOnly");
}
}  // namespace detail

}  // namespace kref
