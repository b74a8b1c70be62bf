// SPDX-License-Identifier: Apache-2.0
#include "dsl/work_meter.h"

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
}  // namespace detail

}  // namespace kref
