// SPDX-License-Identifier: Apache-2.0
// One operand's block: coming to it, handing it out, leaving it.
//
// A block inside its array is viewed in place. At the edge an input is viewed in place too while
// only its inside part is asked for, and copied with a poisoned margin when the whole block is; it
// cannot change, so both may be in use at once. An edge output is written in place through valid()
// until the whole block is asked for; from then to the end of the visit the data lives in the copy
// and valid() shows the copy's inside part. (Within one step the whole block must be asked for
// first, so that no Ref to the old place is around.) Where operands share memory, and in strict
// mode, every block is copied when the step begins.
//
// Poison is laid into an output at its first use, when its memory is about to be written anyway.
#include <algorithm>
#include <cstring>

#include "dsl/worker.h"

namespace kref::detail {
namespace {

constexpr std::size_t kGuard = 64;  // bytes before and after a buffer that nobody may write
constexpr unsigned char kGuardByte = 0xB7;

std::size_t buffer_bytes(const Operand& o) {
  return static_cast<std::size_t>(o.window_size) * o.element_bytes;
}

}  // namespace

void Worker::allocate(std::size_t id) {
  const Operand& o = program_.operands[id];
  Window& w = windows_[id];
  if (w.buffer != nullptr) return;
  const std::size_t n = buffer_bytes(o);
  w.memory = kref::detail::allocate(n + 2 * kGuard);
  w.buffer = static_cast<std::byte*>(w.memory.get()) + kGuard;
  std::memset(w.memory.get(), kGuardByte, kGuard);
  std::memset(w.buffer + n, kGuardByte, kGuard);
}

void Worker::check_guards(std::size_t id) {
  const Operand& o = program_.operands[id];
  const Window& w = windows_[id];
  if (w.buffer == nullptr) return;
  const auto clean = [](const std::byte* p) {
    // Every byte is the one after it, and the first is right.
    return *p == std::byte{kGuardByte} && std::memcmp(p, p + 1, kGuard - 1) == 0;
  };
  const bool before = clean(w.buffer - kGuard), after = clean(w.buffer + buffer_bytes(o));
  KREF_CHECK(before && after, subject(program_, o), ": the body of ", step_text(program_, number),
             " wrote ", before ? "past the end" : "before the begin", " of its block");
}

// Makes `next` the block: where it begins, and its part inside the array.
void Worker::locate(const Operand& o, Window& w) {
  Index elements = 1, offset = 0, margin = 0;
  if (o.even) {  // the rest is as it always is
    for (std::size_t d = 0; d < o.rank(); ++d) {
      w.block[d] = w.next[d];
      offset += w.next[d] * o.pitch[d];
    }
    w.origin = static_cast<std::byte*>(o.array.data) + offset;
    return;
  }
  w.edge = false;
  for (std::size_t d = 0; d < o.rank(); ++d) {
    const Index start = w.next[d] * o.unit[d] - o.low[d];
    const Index begin = std::max<Index>(start, 0);
    const Index extent =
        std::max<Index>(0, std::min(start + o.block[d], o.array.extents[d]) - begin);
    w.edge = w.edge || extent != o.block[d];
    elements *= extent;
    offset += begin * o.array.strides[d];
    margin += (begin - start) * o.window[d];
    w.block[d] = w.next[d];
    w.extents[d] = extent;
    w.margins[d] = begin - start;
  }
  const auto element = static_cast<Index>(o.element_bytes);
  w.margin = margin * element;
  w.bytes = elements * element;
  w.origin = static_cast<std::byte*>(o.array.data) + offset * element;
}

void Worker::enter(std::size_t id) {
  const Operand& o = program_.operands[id];
  Window& w = windows_[id];
  OperandView& v = view_store_[id];
  locate(o, w);
  w.visiting = true;
  w.copied = false;
  w.touched = o.kind != Kind::kOut || (o.any_revisit() && come_back(id));
  if ((o.reads() || w.touched) && !(chunk_start_ && fetched_by_previous_step(id))) {
    counts_[id].fetches += 1;
    counts_[id].bytes += w.bytes;
  }
  if (o.writes() && (strictness_.visited != nullptr || o.map.callable != nullptr)) visit(id);
  if (strictness_.dry) return;
  const bool strict = strictness_.strict && !(strictness_.in_place && o.kind == Kind::kIn);
  if (o.copies || o.strided || o.own_window || strict) {
    copy_in(id);
    return;
  }
  v.whole.data = v.inside.data = w.origin;
  v.whole.strides = v.inside.strides = o.array.strides.data() + o.batches;
  v.inside_ready = w.touched;
  v.whole_ready = w.touched && !w.edge;
}

// An output block that was not used at all is poison as well.
void Worker::leave(std::size_t id) {
  const Operand& o = program_.operands[id];
  Window& w = windows_[id];
  if (!w.visiting) return;
  w.visiting = false;
  if (!o.writes()) return;
  counts_[id].write_backs += 1;
  counts_[id].bytes += w.bytes;
  if (strictness_.dry || w.bytes == 0) return;
  if ((strictness_.compare >> id & 1) != 0) {
    if (!same_block(w.origin, o.array.strides.data(), w.buffer + w.margin, o.window.data(),
                    {w.extents.data(), o.rank()}, o.element_bytes)) {
      differing_ |= std::uint64_t{1} << id;
    }
  } else if (w.copied) {
    copy_block(w.origin, o.array.strides.data(), w.buffer + w.margin, o.window.data(),
               {w.extents.data(), o.rank()}, o.element_bytes);
  } else {
    touch(id);
  }
}

void Worker::touch(std::size_t id) {
  const Operand& o = program_.operands[id];
  Window& w = windows_[id];
  if (w.touched) return;
  w.touched = true;
  if (w.bytes == 0) return;
  fill_pattern(w.origin, o.array.dtype, {w.extents.data(), o.rank()}, o.array.strides.data(),
               pattern(id));
}

void Worker::copy_in(std::size_t id) {
  const Operand& o = program_.operands[id];
  Window& w = windows_[id];
  OperandView& v = view_store_[id];
  allocate(id);
  if (w.edge || !w.touched) {
    fill_pattern(w.buffer, o.array.dtype, o.window_size, pattern(id));
  }
  if (w.touched && w.bytes != 0) {
    copy_block(w.buffer + w.margin, o.window.data(), w.origin, o.array.strides.data(),
               {w.extents.data(), o.rank()}, o.element_bytes);
  }
  w.touched = true;
  w.copied = true;
  v.whole.data = w.buffer;
  v.inside.data = w.buffer + w.margin;
  v.whole.strides = v.inside.strides = o.window.data() + o.batches;
  v.whole_ready = v.inside_ready = true;
}

void Worker::make_whole(std::size_t id) {
  if (windows_[id].edge) {
    copy_in(id);
  } else {
    touch(id);
    view_store_[id].whole_ready = view_store_[id].inside_ready = true;
  }
}

void Worker::make_inside(std::size_t id) {
  touch(id);
  view_store_[id].inside_ready = true;
  view_store_[id].whole_ready = !windows_[id].edge;
}

// Whoever comes to an output's block comes at the step that the table has: then no two threads are
// ever in one block, whatever a callable does.
void Worker::visit(std::size_t id) {
  const Operand& o = program_.operands[id];
  const Window& w = windows_[id];
  CellBox(o, w.block.data()).for_each(o, [&](Index cell) {
    if (o.map.callable != nullptr) {
      const Index begin = visits_.begin(id, cell);
      const bool later =
          o.any_revisit() && begin >= 0 && begin / program_.inner == number / program_.inner;
      KREF_CHECK(begin == number || later, subject(program_, o), ": the index map gives block ",
                 block_text(o, w.block.data()), " to ", step_text(program_, number),
                 " and gave another one before the run, expected a callable that depends on the "
                 "step alone");
    }
    if (strictness_.visited == nullptr) return;
    Index& first = (*strictness_.visited)[id][static_cast<std::size_t>(cell)];
    if (first < 0) first = number;
  });
}

// Whether the block was visited before; from now on it was.
bool Worker::come_back(std::size_t id) {
  const Operand& o = program_.operands[id];
  Window& w = windows_[id];
  bool seen = false;
  CellBox(o, w.block.data()).for_each(o, [&](Index cell) {
    seen = w.seen[static_cast<std::size_t>(cell)];
    w.seen[static_cast<std::size_t>(cell)] = true;
  });
  return seen;
}

View table_of(const StepData& data, std::uint32_t id) {
  const Operand& o = data.grid_program->operands[id];
  View view{o.array.data, o.array.extents.data() + o.batches, o.array.strides.data() + o.batches};
  Index offset = 0;
  for (std::size_t n = 0; n < o.batches; ++n)
    offset += o.map.exprs[n](data.at) * o.array.strides[n];
  view.data = static_cast<std::byte*>(o.array.data) + offset * static_cast<Index>(o.element_bytes);
  return view;
}

void make_whole(StepData& data, std::uint32_t id) {
  static_cast<Worker*>(data.worker)->make_whole(id);
}

void make_inside(StepData& data, std::uint32_t id) {
  static_cast<Worker*>(data.worker)->make_inside(id);
}

namespace {

std::string where(const StepData& data) {
  return cat("grid '", data.grid_program->name, "': ", step_text(*data.grid_program, data.number));
}

}  // namespace

void outside_table(const StepData& data, const char* table, const View& view,
                   std::span<const Index> index) {
  std::string text = "(";
  for (std::size_t d = 0; d < index.size(); ++d) text += cat(d == 0 ? "" : ",", index[d]);
  throw Error(cat("grid '", data.grid_program->name, "': table '", table, "': element ", text,
                  ") is asked for in ", step_text(*data.grid_program, data.number),
                  ", its shape is ", shape_string({view.extents, index.size()})));
}

void foreign_axis(const StepData& data, const char* axis) {
  throw Error(cat(where(data), ": axis '", axis, "' belongs to another grid"));
}

void foreign_handle(const StepData& data, const char* operand) {
  throw Error(cat(where(data), ": operand '", operand, "' belongs to another grid"));
}

void no_blocks(const StepData& data, const char* operand) {
  throw Error(cat(where(data), ": an index map asks for the block of '", operand,
                  "', expected indices only"));
}

void inside_before_whole(const StepData& data, const char* operand) {
  throw Error(cat(where(data), ": the whole block of '", operand,
                  "' is asked for after valid() in the same step, expected before it; extents() "
                  "tells the size"));
}

}  // namespace kref::detail
