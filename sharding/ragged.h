// SPDX-License-Identifier: Apache-2.0
// RaggedAllToAll: all_to_all of slices whose sizes differ (lax.ragged_all_to_all;
// sharding_semantics 2.4).
#pragma once

#include "sharding/collectives.h"

namespace kref {

// Which rows travel: four arrays of rank 1 and one integer type, K elements each, K / n for each of
// the n members of the group in order. Slice i of a member is rows input_offsets[i] ..
// input_offsets[i] + send_sizes[i] - 1 of its operand; it goes to member i / (K / n), to rows from
// output_offsets[i] on of that one's output: offsets there are the sender's to give. recv_sizes is
// all_to_all(send_sizes).
struct RaggedSlices {
  Array input_offsets, send_sizes, output_offsets, recv_sizes;
};

// What the transpose gives: cotangents of operand and output.
struct RaggedCotangents {
  Array operand, output;
};

// Row r of the output, along its first dimension, is what some member sent there, or what `output`
// held before. Operand and output have one element type and the same dimensions behind the first.
// Linear in (operand, output) together: the tangents travel as they do.
//
// Error, on the member that sees it: vectors that are not of rank 1, empty, of different lengths or
// types, not of an integer type, or of a length that n does not divide; a negative size or offset;
// rows outside the operand or the output; recv_sizes that are not what the others send; two slices
// that meet in one row of the output, whose content would depend on which came last.
struct RaggedAllToAll {
  static constexpr const char* kName = "ragged_all_to_all";
  AxisNames axis_name;
  AxisIndexGroups axis_index_groups = {};

  Array operator()(Device& device, const Array& operand, const Array& output,
                   const RaggedSlices& slices, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& operand, const Array& output,
                const RaggedSlices& slices, CallSite where = CallSite::here()) const;

  // Of a cotangent of the result, for the slices of the call and an operand of `operand_rows` rows:
  // the rows go back where they came from, zeros elsewhere; output_ct is `ct` with the received
  // rows, a union of intervals, set to zero.
  RaggedCotangents transposed(Device& device, const Array& ct, Index operand_rows,
                              const RaggedSlices& slices, CallSite where = CallSite::here()) const;

  bool operator==(const RaggedAllToAll&) const = default;
};

// lax.ragged_all_to_all, and started only.
Array ragged_all_to_all(Device& device, const Array& operand, const Array& output,
                        const RaggedSlices& slices, const AxisNames& axis_name,
                        const AxisIndexGroups& groups = {}, CallSite where = CallSite::here());
Pending ragged_all_to_all_start(Device& device, const Array& operand, const Array& output,
                                const RaggedSlices& slices, const AxisNames& axis_name,
                                const AxisIndexGroups& groups = {},
                                CallSite where = CallSite::here());

}  // namespace kref
