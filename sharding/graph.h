// SPDX-License-Identifier: Apache-2.0
// Graph: what a typed body computes, recorded: an operation a node, in the order in which they were
// called. Run by devices, extended by the reverse mode (pull_back.cc), printed for people.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sharding/value.h"

namespace kref::detail {

// One operation on values, as data. What it makes of types is decided where it is recorded.
class Primitive {
 public:
  Primitive() = default;
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;
  virtual ~Primitive() = default;

  // "psum", "add": what Graph::count counts.
  virtual std::string name() const = 0;
  // As it is printed: "psum(X)".
  virtual std::string text() const { return name(); }
  virtual Array run(Device& device, std::span<const Array> inputs, CallSite where) const = 0;

  // Cotangents of the inputs for that of the result, recorded behind it; an input may have none
  // (it is zero). Refused, by name, for operations that have no derivative.
  using Cotangents = std::vector<std::optional<Value>>;
  virtual Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value& result,
                               CallSite where) const;
};

struct Node {
  std::shared_ptr<const Primitive> op;  // none: an argument
  std::vector<Index> inputs;
  DType dtype = DType::kF32;
  std::vector<Index> shape;
  ValueState state;
  CallSite where;
};

// Owned by a shared_ptr. How states are treated: Typing::kUnchecked keeps none (all are invarying,
// and no cast is made).
class Graph : public std::enable_shared_from_this<Graph> {
 public:
  Graph(const Mesh& mesh, Typing typing, bool auto_pcast)
      : mesh_(mesh), typing_(typing), auto_pcast_(auto_pcast) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const Mesh& mesh() const { return mesh_; }
  Typing typing() const { return typing_; }
  bool checked() const { return typing_ == Typing::kChecked; }
  bool auto_pcast() const { return auto_pcast_; }

  // The next argument of the body.
  Value argument(DType dtype, const std::vector<Index>& shape, ValueState state);
  // Records an operation.
  Value add(std::shared_ptr<const Primitive> op, std::span<const Value> inputs, DType dtype,
            std::vector<Index> shape, ValueState state, CallSite where);
  // x after some casts, each a node; none in unchecked mode.
  Value cast(const Value& x, std::span<const CastStep> steps, CallSite where);

  Index size() const { return static_cast<Index>(nodes_.size()); }
  const Node& node(Index i) const { return nodes_[static_cast<std::size_t>(i)]; }

  // Which nodes these ones need, themselves included.
  std::vector<bool> needed(std::span<const Index> results) const;
  // A line for each node of `which`, as JAX prints a jaxpr.
  std::string text(const std::vector<bool>& which) const;
  Index count(const std::vector<bool>& which, std::string_view name) const;

 private:
  Mesh mesh_;
  Typing typing_;
  bool auto_pcast_;
  std::vector<Node> nodes_;
};

// What f gives; an Error that it throws also says where the operation was called.
template <class F>
auto at_line(CallSite where, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    const std::string place = to_string(where), message = e.what();
    if (place.empty() || message.find(" (called at ") != std::string::npos) throw;
    throw Error(cat(message, " (called at ", place, ')'));
  }
}

// Runs the nodes of `which` that `values` (an entry a node) lacks, in order; those in `keep` and
// what was there before stay in `values`, others are dropped as soon as nobody needs them.
void run_graph(const Graph& graph, const std::vector<bool>& which, const std::vector<bool>& keep,
               Device& device, std::vector<std::optional<Array>>& values);

// Records what gives the cotangents of `arguments` for those of `results` (an entry may be without
// one: zero). Every entry of the answer is set; cotangents are of the type that their argument's
// has. Error as Primitive::pull_back.
std::vector<Value> pull_back(Graph& graph, std::span<const Value> results,
                             std::span<const std::optional<Value>> cts,
                             std::span<const Value> arguments);

// The operands of an n-ary operation, cast to one varying set (axis_state.h, promote).
struct Promoted {
  std::vector<Value> operands;
  std::vector<ValueState> states;
};
Promoted promoted(std::string_view operation, std::span<const Value> operands, CallSite where);

// The nodes of some values.
std::vector<Index> nodes_of(std::span<const Value> values);

}  // namespace kref::detail
