// SPDX-License-Identifier: Apache-2.0
// The collectives of jax.lax as values: each has a rule for the shape and the element type of its
// result, the bytes it sends, an execution on a device, and, where it is linear, a transpose
// (sharding_semantics 2.1, 2.2, 2.5).
//
// Shapes are those of one device's array, n is the size of the group. Members of a group rank in
// row-major order over `axis_name`, or by their place in `axis_index_groups`. No axis at all: the
// identity. Negative dimensions count from the end. All devices of a group call the same
// collective with arrays of one shape and type, else all of them end with one Error (launch.h);
// what can be seen on one device alone (an unbound axis, a shape that does not fit) is refused
// there, naming collective, device and call site.
//
// Sums run in ascending rank, in f32 for 16-bit and fp8 floats, wrapping for integers; bool sums as
// s32. So no result depends on the schedule.
//
// An Array is handed over by reference: until every member is done with the collective its elements
// must not be written, for example through a view taken before the call.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "sharding/device.h"
#include "sharding/pending.h"

namespace kref {

// Which transposes: those of shard_map(check_vma=True), where psum and pvary are a pair and nothing
// is summed twice; or of check_vma=False, where psum transposes to itself (sharding_semantics 2.2).
enum class Typing { kChecked, kUnchecked };

// The order in which a sum over ranks 0 .. n - 1 adds: ascending; or that of a ring which shifts
// i -> i - 1 (sharding_semantics 2.6): chunk c of the n chunks as ranks c - 1, c - 2, ..., c + 1,
// c. The chunks of psum_scatter are the members' blocks, those of the others ceil(elements / n)
// elements each of the flattened array.
enum class SumOrder { kRank, kRing };

// How the elements of a sum travel and are added. Not set: the operand's type on the wire; f32
// accumulation for 16-bit and 8-bit floats, else the operand's type. Both are floats where floats
// are summed, integers where integers are; no running sum is in an 8-bit float.
struct SumOptions {
  std::optional<DType> wire = {};        // each term is rounded to this type first
  std::optional<DType> accumulate = {};  // type of the running sum
  SumOrder order = SumOrder::kRank;
  bool operator==(const SumOptions&) const = default;
};

// State that a gathered result has in checked mode (lax.all_gather's `to`); numbers are the same.
enum class GatherTo { kVarying, kInvarying, kReduced };

// Each collective below offers, beside its fields (JAX's names and defaults):
//   result_shape(in, n)       shape of the result; Error as sharding_semantics 2.5
//   result_dtype(in)          its element type; Error where the collective is not defined for `in`
//   sent_bytes(in, dtype, n)  bytes that one member sends in all, by the ring algorithms of 2.6
//   operator()(device, x)     runs it
//   start(device, x)          its asynchronous form: post now, take the result with .done()
//   transpose(typing)         of the linear ones; a new sum in it has default SumOptions

struct AllGather;
struct OwnSlice;
struct PsumScatter;
struct Psum;
struct Pvary;
struct Pmean;
struct AllToAll;
struct Ppermute;
struct Pbroadcast;
struct PsumTo;

// Any linear collective; transposes are values of this type.
using LinearCollective = std::variant<AllGather, OwnSlice, PsumScatter, Psum, Pvary, Pmean,
                                      AllToAll, Ppermute, Pbroadcast, PsumTo>;

// Every member gets all blocks, along `axis`: tiled, in place of the own block; untiled, n is
// inserted at `axis`. Any element type.
struct AllGather {
  static constexpr const char* kName = "all_gather";
  AxisNames axis_name;
  Index axis = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
  GatherTo to = GatherTo::kVarying;

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const AllGather&) const = default;
};

// The block at this member's rank of a value that all members share: what all_gather to kInvarying
// transposes to. Nothing moves. tiled: block `rank` of n; untiled: index `rank`, dropped.
struct OwnSlice {
  static constexpr const char* kName = "own_slice";
  AxisNames axis_name;
  Index axis = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const OwnSlice&) const = default;
};

// Member i gets block i of the sum over the group: tiled, 1 / n of dimension scatter_dimension;
// untiled, the dimension has extent n and is dropped.
struct PsumScatter {
  static constexpr const char* kName = "psum_scatter";
  AxisNames axis_name;
  Index scatter_dimension = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
  SumOptions sum = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const PsumScatter&) const = default;
};

// The sum over the group, on every member. bool sums as s32. Groups may differ in size.
struct Psum {
  static constexpr const char* kName = "psum";
  AxisNames axis_name;
  AxisIndexGroups axis_index_groups = {};
  SumOptions sum = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const Psum&) const = default;
};

// The identity (lax.pcast to varying): what psum transposes to in checked mode. mean: divided by n,
// which transposes pmean.
struct Pvary {
  static constexpr const char* kName = "pvary";
  AxisNames axis_name;
  AxisIndexGroups axis_index_groups = {};
  bool mean = false;

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const Pvary&) const = default;
};

// The sum divided by n; f32 for integers and bool.
struct Pmean {
  static constexpr const char* kName = "pmean";
  AxisNames axis_name;
  AxisIndexGroups axis_index_groups = {};
  SumOptions sum = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const Pmean&) const = default;
};

// The largest (min: smallest) value over the group, on every member; a NaN wins. Not
// differentiable.
struct Pmax {
  static constexpr const char* kName = "pmax";
  AxisNames axis_name;
  AxisIndexGroups axis_index_groups = {};
  bool min = false;

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  bool operator==(const Pmax&) const = default;
};

// The lowest rank that attains the largest (min: smallest) value, s32; NaN counts as the extremum.
// One mesh axis only. Not differentiable.
struct Pargmax {
  static constexpr const char* kName = "pargmax";
  AxisNames axis_name;
  bool min = false;

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  bool operator==(const Pargmax&) const = default;
};

// Member i gets slice i along split_axis of every member's array, along concat_axis. tiled: chunks
// of 1 / n are concatenated; untiled: split_axis has extent n and is dropped, and n is inserted at
// concat_axis of what is left.
struct AllToAll {
  static constexpr const char* kName = "all_to_all";
  AxisNames axis_name;
  Index split_axis = 0;
  Index concat_axis = 0;
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const AllToAll&) const = default;
};

// Member dst gets the array of src for each pair (src, dst); zeros where no pair ends. Indices are
// taken modulo n. Error: a source or a destination that is named twice; `permutation` set
// (pshuffle) and not all of 0 .. n - 1 named as both.
struct Ppermute {
  static constexpr const char* kName = "ppermute";
  AxisNames axis_name;
  std::vector<std::pair<Index, Index>> perm;
  bool permutation = false;

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const Ppermute&) const = default;
};

// Every member gets the array of member `source`.
struct Pbroadcast {
  static constexpr const char* kName = "pbroadcast";
  AxisNames axis_name;
  Index source = 0;
  AxisIndexGroups axis_index_groups = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const Pbroadcast&) const = default;
};

// Member `target` gets the sum over the group, the others zeros: what pbroadcast transposes to.
struct PsumTo {
  static constexpr const char* kName = "psum_to";
  AxisNames axis_name;
  Index target = 0;
  AxisIndexGroups axis_index_groups = {};
  SumOptions sum = {};

  std::vector<Index> result_shape(std::span<const Index> in, Index n) const;
  DType result_dtype(DType in) const;
  std::size_t sent_bytes(std::span<const Index> in, DType dtype, Index n) const;
  Array operator()(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  Pending start(Device& device, const Array& x, CallSite where = CallSite::here()) const;
  LinearCollective transpose(Typing typing = Typing::kChecked) const;
  bool operator==(const PsumTo&) const = default;
};

// Of whichever it is.
LinearCollective transpose(const LinearCollective& op, Typing typing = Typing::kChecked);
Array apply(const LinearCollective& op, Device& device, const Array& x,
            CallSite where = CallSite::here());
const AxisNames& axis_name(const LinearCollective& op);
// "all_gather(X, axis=0, tiled=true)": as in messages.
std::string to_string(const LinearCollective& op);

// lax.pshuffle: member i gets the array of perm[i] (the inverse of ppermute's convention). Error:
// not a permutation of 0 .. n - 1, which is checked when it runs.
Ppermute pshuffle_op(const AxisNames& axis_name, const std::vector<Index>& perm);
// lax.pswapaxes: swaps the group with dimension `axis`, which has extent n.
AllToAll pswapaxes_op(const AxisNames& axis_name, Index axis, const AxisIndexGroups& groups = {});

}  // namespace kref
