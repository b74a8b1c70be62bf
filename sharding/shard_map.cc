// SPDX-License-Identifier: Apache-2.0
#include "sharding/shard_map.h"

#include <algorithm>
#include <mutex>

#include "dsl/full_checks.h"
#include "dsl/work_meter.h"
#include "sharding/block_view.h"

namespace kref {

Array ShardArgument::block(const Placement& spec, const Mesh& mesh, Index device) const {
  if (sharded_ != nullptr) return sharded_->block(device);
  return dense(block_view(view_, spec, mesh, device), owner_);
}

ArrayRef ShardArgument::block_type(const Placement& spec, const Mesh& mesh) const {
  return sharded_ != nullptr ? sharded_->block(0).ref() : block_view(view_, spec, mesh, 0);
}

namespace detail {
namespace {

std::string result_name(std::size_t i) { return cat("result ", i); }

// Refuses a spec that no array on this mesh could have, before there is one: a shape that fits as
// many dimensions as the spec has.
void check_spec_alone(const Placement& spec, const Mesh& mesh, const std::string& operand) {
  std::vector<Index> shape;
  for (std::size_t d = 0; d < spec.spec.entries.size(); ++d) {
    Index extent = 1;
    for (const std::string& axis : spec.spec[d]) extent *= mesh.find(axis) ? mesh.size(axis) : 1;
    shape.push_back(extent);
  }
  check_placement(spec, shape, mesh, operand);
}

void check_count(const Specs& specs, Index expected, const char* what, const char* field) {
  const auto given = static_cast<Index>(specs.each.size());
  KREF_CHECK(specs.shared || expected == kAnyCount || given == expected, "shard_map: the body has ",
             expected, ' ', what, ", but ", field, " has ", given,
             given == 1 ? " entry" : " entries");
}

// An argument that lives on a mesh must live there as the spec says: nothing is moved unasked.
void check_lives(const Sharded& x, const Placement& spec, const Mesh& mesh,
                 const std::string& operand) {
  KREF_CHECK(x.mesh() == mesh, operand, ": ", x.type(), " lives on the mesh ", to_string(x.mesh()),
             ", but the shard_map runs on ", to_string(mesh));
  KREF_CHECK(x.placement() == spec, operand, ": ", x.type(), " lives as ", to_string(x.placement()),
             ", but in_specs say ", to_string(spec), "; reshard it first");
}

void check_rank(const Array& block, const Placement& spec, std::size_t i) {
  KREF_CHECK(spec.spec.entries.size() <= block.rank(), result_name(i), ": out_specs ",
             to_string(spec), " which has length ", spec.spec.entries.size(),
             ", but the body returned ", to_string(block.ref()), ", which has rank ", block.rank(),
             block.rank() == 0 ? "; a scalar takes P()" : "");
}

// The global array that blocks of a shape make side by side.
std::vector<Index> global_shape(std::span<const Index> local, const Placement& spec,
                                const Mesh& mesh, std::size_t i) {
  std::vector<Index> out;
  for (std::size_t d = 0; d < local.size(); ++d) {
    const Index factors[] = {local[d], block_count(spec.spec[d], mesh)};
    out.push_back(checked_product(result_name(i).c_str(), factors, 2));
  }
  return out;
}

// One result while the devices bring their blocks.
class Assembly {
 public:
  // Copies a device's block to its place. The first device that comes decides the shape.
  void take(Array block, const Placement& spec, const Device& device, std::size_t i) {
    const bool writer = first_replica(spec, device.mesh(), device.index()) == device.index();
    {
      const std::lock_guard lock(mutex_);
      if (!made_) {
        make(block, spec, device, i, writer);
      } else {
        KREF_CHECK(block.dtype() == dtype_ && std::ranges::equal(block.shape(), local_),
                   result_name(i), ": ", to_string(block.ref()), " here, but ", name_of(dtype_),
                   shape_string(local_), " on device ", device.mesh().device_name(first_),
                   "; every device returns the same shape and type");
      }
    }
    if (!writer || done_) return;
    copy_elements(block, block_view(target_, spec, device.mesh(), device.index()));
  }
  Array release() { return std::move(global_); }

 private:
  void make(Array& block, const Placement& spec, const Device& device, std::size_t i, bool writer) {
    const Mesh& mesh = device.mesh();
    local_.assign(block.shape().begin(), block.shape().end());
    dtype_ = block.dtype();
    first_ = device.index();
    check_rank(block, spec, i);
    std::vector<Index> shape;
    for (const std::string& axis : spec.unreduced) shape.push_back(mesh.size(axis));
    const std::vector<Index> whole = global_shape(local_, spec, mesh, i);
    shape.insert(shape.end(), whole.begin(), whole.end());
    check_assembled(block.ref(), spec, result_name(i));
    // A block that is the whole result and that nobody else holds needs no copy.
    done_ = writer && std::ranges::equal(shape, local_) && block.owner().use_count() == 1;
    if (done_) {
      global_ = std::move(block);
    } else {
      global_ = Array::unwritten(dtype_, shape);
      target_ = global_.mutable_ref();
    }
    made_ = true;  // last: where this one fails, the next device tries and fails as well
  }

  std::mutex mutex_;
  bool made_ = false, done_ = false;
  std::vector<Index> local_;
  DType dtype_ = DType::kF32;
  Index first_ = 0;
  Array global_;
  MutableArrayRef target_;
};

}  // namespace

void check_assembled(const ArrayRef& block, const Placement& spec, const std::string& name) {
  KREF_CHECK(block.rank + spec.unreduced.size() <= kMaxRank, name, ": ", to_string(block),
             " on each device and ", spec.unreduced.size(), " leading for the unreduced axes of ",
             to_string(spec), " make rank ", block.rank + spec.unreduced.size(),
             ", expected at most ", kMaxRank);
}

ShardMapCore::ShardMapCore(const Mesh& mesh, ShardMapOptions options, Index arity, Index results,
                           std::vector<ParameterRule> rules, CallSite where)
    : mesh_(mesh),
      options_(std::move(options)),
      arity_(arity),
      results_(results),
      rules_(std::move(rules)),
      where_(where) {
  check_runnable(mesh_);
  check_count(options_.in_specs, arity_, "arguments", "in_specs");
  check_count(options_.out_specs, results_, "results", "out_specs");
  for (std::size_t i = 0; i < options_.in_specs.each.size(); ++i) {
    check_spec_alone(options_.in_specs.each[i], mesh_, argument_name(i));
  }
  for (std::size_t i = 0; i < options_.out_specs.each.size(); ++i) {
    check_spec_alone(options_.out_specs.each[i], mesh_, result_name(i));
  }
}

std::string ShardMapCore::argument_name(std::size_t i) const {
  if (i < options_.names.size() && !options_.names[i].empty()) return options_.names[i];
  return cat("argument ", i);
}

void ShardMapCore::check_argument_count(std::size_t given, const char* call) const {
  KREF_CHECK(arity_ == kAnyCount || static_cast<Index>(given) == arity_, call, " with ", given,
             " arguments, but the body takes ", arity_);
  KREF_CHECK(options_.in_specs.shared || given == options_.in_specs.each.size(), call, " with ",
             given, " arguments, but in_specs has ", options_.in_specs.each.size(), " entries");
}

void ShardMapCore::check_arguments(std::span<const ShardArgument> arguments) const {
  check_argument_count(arguments.size(), "shard_map: called");
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ArrayRef& whole = arguments[i].view();
    const Placement& spec = options_.in_specs[i];
    const Sharded* sharded = arguments[i].sharded();
    if (sharded != nullptr) check_lives(*sharded, spec, mesh_, argument_name(i));
    const std::size_t leading = sharded != nullptr ? 0 : spec.unreduced.size();
    for (std::size_t u = 0; u < leading; ++u) {
      KREF_CHECK(u < whole.rank && whole.extents[u] == mesh_.size(spec.unreduced[u]),
                 argument_name(i), ": ", to_string(whole), " has no leading dimension of ",
                 mesh_.size(spec.unreduced[u]), " for the unreduced axis '", spec.unreduced[u],
                 "' of ", to_string(spec));
    }
    check_placement(spec, whole.shape().subspan(leading), mesh_, argument_name(i));
    if (i >= rules_.size() || !rules_[i].dtype) continue;
    KREF_CHECK(whole.dtype == *rules_[i].dtype && whole.rank - leading == rules_[i].rank,
               argument_name(i), " is ", to_string(whole), ", but the body takes ",
               name_of(*rules_[i].dtype), " of rank ", rules_[i].rank);
  }
}

std::size_t ShardMapCore::result_count() const {
  if (results_ != kAnyCount) return static_cast<std::size_t>(results_);
  KREF_CHECK(!options_.out_specs.shared,
             "shard_map: the body returns any number of results, expected a list of out_specs");
  return options_.out_specs.each.size();
}

void ShardMapCore::launch_all(std::span<const ShardArgument> arguments, const ShardBody& body,
                              const Deliver& deliver) const {
  check_arguments(arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].sharded() == nullptr) check_has_memory(arguments[i].view(), argument_name(i));
  }
  const std::size_t count = result_count();
  const auto each = [&](Device& device) {
    std::vector<Array> locals, results;
    locals.reserve(arguments.size());
    results.reserve(count);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      locals.push_back(arguments[i].block(options_.in_specs[i], mesh_, device.index()));
    }
    body(device, locals, results);
    KREF_CHECK(results.size() == count, "shard_map: the body returned ", results.size(),
               " results, but out_specs has ", count, " entries");
    for (std::size_t i = 0; i < count; ++i) {
      check_has_memory(results[i], result_name(i));
      deliver(device, i, std::move(results[i]));
    }
  };
  launch(mesh_, each, options_.launch, where_);
}

std::vector<Array> ShardMapCore::run(std::span<const ShardArgument> arguments,
                                     const ShardBody& body) const {
  std::vector<Array> out;
  if ((options_.check_replicas || full_checks()) && !shapes_only()) {
    const std::vector<Sharded> sharded = run_sharded(arguments, body);
    for (std::size_t i = 0; i < sharded.size(); ++i) {
      kref::check_replicas(sharded[i], result_name(i));
      check_assembled(sharded[i].block(0), options_.out_specs[i], result_name(i));
      out.push_back(unshard_terms(sharded[i]));
    }
    return out;
  }
  std::vector<Assembly> assemblies(result_count());
  launch_all(arguments, body, [&](Device& device, std::size_t i, Array block) {
    assemblies[i].take(std::move(block), options_.out_specs[i], device, i);
  });
  out.reserve(assemblies.size());
  for (Assembly& assembly : assemblies) out.push_back(assembly.release());
  return out;
}

std::vector<Sharded> ShardMapCore::run_sharded(std::span<const ShardArgument> arguments,
                                               const ShardBody& body) const {
  std::vector<std::vector<Array>> blocks(result_count());
  for (auto& each : blocks) each.resize(static_cast<std::size_t>(mesh_.device_count()));
  launch_all(arguments, body, [&](Device& device, std::size_t i, Array block) {
    check_rank(block, options_.out_specs[i], i);
    blocks[i][static_cast<std::size_t>(device.index())] = kept_alive(std::move(block));
  });
  std::vector<Sharded> out;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Placement& spec = options_.out_specs[i];
    out.emplace_back(mesh_, global_shape(blocks[i][0].shape(), spec, mesh_, i), spec,
                     std::move(blocks[i]), result_name(i));
  }
  return out;
}

}  // namespace detail
}  // namespace kref
