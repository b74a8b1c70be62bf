// SPDX-License-Identifier: Apache-2.0
// Two exchanges posted together: which rows everybody sends where, and the rows. The receiver takes
// them.
#include "sharding/ragged.h"

#include <algorithm>
#include <cstring>

#include "kernels/tile_ops.h"
#include "sharding/collectives_run.h"

namespace kref {
namespace {

// The vectors of every member behind one another, as 64-bit integers.
enum Vector { kInputOffsets, kSendSizes, kOutputOffsets, kRecvSizes, kVectors };
const char* const kVectorNames[] = {"input_offsets", "send_sizes", "output_offsets", "recv_sizes"};

const Array& vector_of(const RaggedSlices& s, int which) {
  const Array* const all[] = {&s.input_offsets, &s.send_sizes, &s.output_offsets, &s.recv_sizes};
  return *all[which];
}

void check_slices(const RaggedSlices& slices, Index n) {
  const Array& first = slices.input_offsets;
  for (int v = 0; v < kVectors; ++v) {
    const Array& x = vector_of(slices, v);
    KREF_CHECK(is_integer(x.dtype()), "ragged_all_to_all: ", kVectorNames[v], " is ", to_string(x),
               ", expected an integer type");
    KREF_CHECK(x.rank() == 1, "ragged_all_to_all: ", kVectorNames[v], " is ", to_string(x),
               ", expected rank 1");
    KREF_CHECK(x.extent(0) > 0, "ragged_all_to_all: ", kVectorNames[v],
               " is empty, expected a positive length");
    KREF_CHECK(x.dtype() == first.dtype() && x.extent(0) == first.extent(0),
               "ragged_all_to_all: ", kVectorNames[v], " is ", to_string(x),
               ", expected the type and length of input_offsets, ", to_string(first));
  }
  KREF_CHECK(first.extent(0) % n == 0, "ragged_all_to_all: ", first.extent(0),
             " slices, which the size of the group, ", n, ", does not divide");
}

// Both have rows of one shape and type.
void check_rows(const Array& operand, const Array& output) {
  KREF_CHECK(operand.dtype() == output.dtype(), "ragged_all_to_all: operand is ",
             to_string(operand), ", output is ", to_string(output), ", expected one element type");
  const auto a = operand.shape(), b = output.shape();
  KREF_CHECK(
      a.size() == b.size() && !a.empty() && std::equal(a.begin() + 1, a.end(), b.begin() + 1),
      "ragged_all_to_all: operand is ", to_string(operand), ", output is ", to_string(output),
      ", expected the same dimensions behind the first");
}

// Refuses rows begin .. begin + size - 1 where an array has `rows`. `sender`: the member that sends
// the slice; -1: this one.
void check_range(const char* array, Index sender, Index slice, Index begin, Index size,
                 Index rows) {
  KREF_CHECK(begin >= 0 && size >= 0 && begin <= rows && size <= rows - begin,
             "ragged_all_to_all: ", sender < 0 ? "" : detail::cat("member ", sender, ", "),
             "slice ", slice, ": ", size, " rows from ", begin, " on are not rows of ", array,
             ", which has ", rows);
}

// [kVectors, K] I64.
Array packed(const RaggedSlices& slices) {
  const Index k = slices.input_offsets.extent(0);
  const Index shape[] = {kVectors, k};
  Array out = Array::unwritten(DType::kI64, shape);
  for (int v = 0; v < kVectors; ++v) {
    const MutableArrayRef row(DType::kI64, {&k, 1},
                              out.mutable_elements<std::int64_t>().data() + v * k);
    detail::cast(vector_of(slices, v), row, Overflow::kDefault);
  }
  return out;
}

// One slice that arrives here: number `slice` of the sender's.
struct Arrival {
  Index sender, slice, from, size, to;
};

// What the members' vectors say arrives at `rank`: each sender's slices for it, by sender.
std::vector<Arrival> arrivals(Exchange& exchange, Index n, Index rank, Index k, const Array& own) {
  const Index each = k / n;
  std::vector<Arrival> out;
  std::vector<std::byte> fetched(static_cast<std::size_t>(kVectors * k) * sizeof(std::int64_t));
  const auto own_vectors = own.elements<std::int64_t>();
  for (Index j = 0; j < n; ++j) {
    const auto* all =
        reinterpret_cast<const std::int64_t*>(exchange.view(j, 0, fetched.size(), fetched.data()));
    for (Index s = 0; s < each; ++s) {
      const Index i = rank * each + s;
      const Arrival a = {j, i, all[kInputOffsets * k + i], all[kSendSizes * k + i],
                         all[kOutputOffsets * k + i]};
      const Index expected = own_vectors[static_cast<std::size_t>(kRecvSizes * k + j * each + s)];
      KREF_CHECK(a.size == expected, "ragged_all_to_all: recv_sizes[", j * each + s, "] is ",
                 expected, ", but member ", j, " sends ", a.size, " rows, its send_sizes[", i, "]");
      out.push_back(a);
    }
  }
  return out;
}

// No row is written twice.
void check_disjoint(std::vector<Arrival> all) {
  std::erase_if(all, [](const Arrival& a) { return a.size == 0; });
  std::sort(all.begin(), all.end(), [](const Arrival& a, const Arrival& b) { return a.to < b.to; });
  for (std::size_t i = 1; i < all.size(); ++i) {
    KREF_CHECK(all[i - 1].to + all[i - 1].size <= all[i].to, "ragged_all_to_all: row ", all[i].to,
               " of output is sent by member ", all[i - 1].sender, " and by member ",
               all[i].sender);
  }
}

// For the transpose, which writes back each row once: a row that went to several members would have
// the sum of their cotangents.
void check_sent_once(const Array& vectors) {
  const auto v = vectors.elements<std::int64_t>();
  const auto k = static_cast<std::size_t>(vectors.extent(1));
  std::vector<std::pair<Index, Index>> sent;  // begin, end
  for (std::size_t i = 0; i < k; ++i) {
    const Index begin = v[kInputOffsets * k + i], size = v[kSendSizes * k + i];
    if (size > 0) sent.emplace_back(begin, begin + size);
  }
  std::sort(sent.begin(), sent.end());
  for (std::size_t i = 1; i < sent.size(); ++i) {
    KREF_CHECK(sent[i - 1].second <= sent[i].first, "ragged_all_to_all: row ", sent[i].first,
               " of operand is sent twice, which has no transpose here");
  }
}

std::size_t row_bytes(const Array& x) {
  return static_cast<std::size_t>(detail::product(x.shape(), 1, x.rank())) * size_of(x.dtype());
}

// A new array with the bytes of x.
Array copied(const Array& x) {
  Array out = Array::unwritten(x.dtype(), x.shape());
  if (x.bytes() > 0) std::memcpy(out.mutable_data(), x.data(), x.bytes());
  return out;
}

}  // namespace

Pending RaggedAllToAll::start(Device& device, const Array& operand, const Array& output,
                              const RaggedSlices& slices, CallSite where) const {
  ReplicaGroup group = detail::at_call(where, [&] {
    check_groups(device.mesh(), axis_name, axis_index_groups, GroupSizes::kEqual, kName);
    ReplicaGroup found = replica_group(device.mesh(), axis_name, axis_index_groups, device.index());
    check_rows(operand, output);
    check_slices(slices, found.size());
    return found;
  });
  const Array vectors = packed(slices);
  const Index k = slices.input_offsets.extent(0);
  detail::at_call(where, [&] {
    const auto v = vectors.elements<std::int64_t>();
    for (Index i = 0; i < k; ++i) {
      const auto at = [&](int which) { return v[static_cast<std::size_t>(which * k + i)]; };
      check_range("operand", -1, i, at(kInputOffsets), at(kSendSizes), operand.extent(0));
    }
    return 0;
  });
  const std::string groups = detail::groups_string(axis_index_groups),
                    more = groups.empty() ? "" : ", " + groups;
  auto which = detail::post(*this, "slices" + more, device, group, vectors, where);
  auto rows = detail::post(*this, "operand" + more, device, group, operand, where);
  return detail::deferred([which = std::move(which), rows = std::move(rows),
                           group = std::move(group), vectors, output, k, where] {
    which->match();
    const std::vector<Arrival> all = detail::at_call(where, [&] {
      const auto found = arrivals(*which, group.size(), group.rank, k, vectors);
      for (const Arrival& a : found) {
        check_range("output", a.sender, a.slice, a.to, a.size, output.extent(0));
      }
      check_disjoint(found);
      return found;
    });
    which->wait(Exchange::End::kOwn);
    rows->match();
    Array out = copied(output);
    const std::size_t bytes = row_bytes(output);
    auto* to = static_cast<std::byte*>(out.mutable_data());
    for (const Arrival& a : all) {
      const std::size_t count = static_cast<std::size_t>(a.size) * bytes;
      if (count == 0) continue;
      std::byte* at = to + static_cast<std::size_t>(a.to) * bytes;
      const std::size_t from = static_cast<std::size_t>(a.from) * bytes;
      const std::byte* in_place = rows->view(a.sender, from, count, nullptr);
      if (in_place != nullptr) {
        std::memcpy(at, in_place, count);
      } else if (const std::byte* got = rows->view(a.sender, from, count, at); got != at) {
        std::memcpy(at, got, count);
      }
    }
    rows->wait(Exchange::End::kOwn);
    return out;
  });
}

Array RaggedAllToAll::operator()(Device& device, const Array& operand, const Array& output,
                                 const RaggedSlices& slices, CallSite where) const {
  return start(device, operand, output, slices, where).done();
}

RaggedCotangents RaggedAllToAll::transposed(Device& device, const Array& ct, Index operand_rows,
                                            const RaggedSlices& slices, CallSite where) const {
  KREF_CHECK(ct.rank() >= 1, "ragged_all_to_all: the cotangent is ", to_string(ct),
             ", expected at least rank 1");
  detail::at_call(where, [&] {
    check_slices(slices, 1);
    check_sent_once(packed(slices));
    return 0;
  });
  const AllToAll swap{axis_name, 0, 0, true, axis_index_groups};
  // As the receiver sees it: where each slice landed, and where it came from.
  Pending landed = swap.start(device, slices.output_offsets, where);
  const Array came_from = swap(device, slices.input_offsets, where);
  const RaggedSlices back = {landed.done(), slices.recv_sizes, came_from, slices.send_sizes};
  std::vector<Index> shape(ct.shape().begin(), ct.shape().end());
  shape[0] = operand_rows;
  RaggedCotangents out;
  out.operand = (*this)(device, ct, Array(ct.dtype(), shape), back, where);
  out.output = copied(ct);
  auto* bytes = static_cast<std::byte*>(out.output.mutable_data());
  const std::size_t row = row_bytes(ct);
  const Array vectors = packed(back);  // checked by the call above
  const auto v = vectors.elements<std::int64_t>();
  const auto k = static_cast<std::size_t>(back.send_sizes.extent(0));
  for (std::size_t i = 0; i < k; ++i) {
    const auto begin = static_cast<std::size_t>(v[kInputOffsets * k + i]),
               size = static_cast<std::size_t>(v[kSendSizes * k + i]);
    if (size * row > 0) std::memset(bytes + begin * row, 0, size * row);
  }
  return out;
}

Array ragged_all_to_all(Device& device, const Array& operand, const Array& output,
                        const RaggedSlices& slices, const AxisNames& axis_name,
                        const AxisIndexGroups& groups, CallSite where) {
  return RaggedAllToAll{axis_name, groups}(device, operand, output, slices, where);
}
Pending ragged_all_to_all_start(Device& device, const Array& operand, const Array& output,
                                const RaggedSlices& slices, const AxisNames& axis_name,
                                const AxisIndexGroups& groups, CallSite where) {
  return RaggedAllToAll{axis_name, groups}.start(device, operand, output, slices, where);
}

}  // namespace kref
