// SPDX-License-Identifier: Apache-2.0
// The products round a ring, on one device and on a mesh.
#include "sharding/collective_matmul.h"

#include <vector>

#include "sharding/block_view.h"
#include "sharding/collective_calls.h"
#include "sharding/local_math.h"
#include "sharding/matmul_program.h"

namespace kref {
namespace {

// Which dimension of an array, as it is stored, goes round.
std::size_t travelling_dimension(const RingPlan& plan) {
  const MatmulShape& shape = plan.placement.shape;
  switch (plan.traveller) {
    case RingTraveller::kXContraction:
      return shape.trans_x ? 0 : 1;
    case RingTraveller::kYContraction:
      return shape.trans_y ? 1 : 0;
    case RingTraveller::kXRows:
      return shape.trans_x ? 1 : 0;
    case RingTraveller::kYColumns:
      return shape.trans_y ? 0 : 1;
    case RingTraveller::kZRows:
      return 0;
    case RingTraveller::kZColumns:
      break;
  }
  return 1;
}

// Elements begin .. end - 1 of dimension d.
template <class Void>
BasicArrayRef<Void> part(BasicArrayRef<Void> a, std::size_t d, Index begin, Index end) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  a.extents[d] = end - begin;
  if (a.data == nullptr) return a;
  a.data = static_cast<Byte*>(a.data) + begin * a.strides[d] * static_cast<Index>(size_of(a.dtype));
  return a;
}

// One of the streams that go round: elements begin .. end - 1 of each block, shifted by `shift`.
struct Lane {
  Index shift, begin, end;
};

std::vector<Lane> lanes(const RingPlan& plan, Index block) {
  const Index alone = plan.traveller == RingTraveller::kYContraction ? 1 : -1;
  if (plan.direction == RingDirection::kOne) return {{alone, 0, block}};
  std::vector<Lane> out;
  if (block / 2 > 0) out.push_back({1, 0, block / 2});
  out.push_back({-1, block / 2, block});
  return out;
}

// One device's loop.
class Ring {
 public:
  Ring(Device& device, const RingPlan& plan, const Array& x, const Array& y,
       const CollectiveMatmulOptions& options, CallSite where)
      : device_(device),
        plan_(plan),
        x_(x),
        y_(y),
        dot_{options.trans_x, options.trans_y, options.precision},
        where_(where),
        accumulator_(accumulator_of(x.dtype())),
        n_(device.axis_size(plan.axis_name)),
        rank_(device.axis_index(plan.axis_name)),
        dim_(travelling_dimension(plan)) {}

  // The operand's blocks go round.
  Array gather() {
    const MatmulShape& local = plan_.placement.local;
    z_ = Array::unwritten(accumulator_, std::vector<Index>{local.m, local.n});
    const bool is_x =
        plan_.traveller == RingTraveller::kXContraction || plan_.traveller == RingTraveller::kXRows;
    const Array& own = is_x ? x_ : y_;
    const Index block = own.extent(dim_);
    const std::vector<Lane> all = lanes(plan_, block);
    // shards[l] is lane l's part of block gathered_block(rank_, step, n_, shift).
    std::vector<Array> shards;
    for (const Lane& lane : all) {
      shards.push_back(dense(part(own.ref(), dim_, lane.begin, lane.end), own.owner()));
    }
    for (Index step = 0; step < n_; ++step) {
      std::vector<Pending> travelling;
      if (step + 1 < n_) travelling = send(all, shards);
      for (std::size_t l = 0; l < all.size(); ++l) {
        const Index first = gathered_block(rank_, step, n_, all[l].shift) * block;
        multiply(shards[l], first + all[l].begin, first + all[l].end, step == 0 && l == 0);
      }
      for (std::size_t l = 0; l < travelling.size(); ++l) shards[l] = travelling[l].done();
    }
    return z_;
  }

  // Partial sums go round.
  Array scatter() {
    const MatmulShape& local = plan_.placement.local;
    const Index block = (dim_ == 0 ? local.m : local.n) / n_;
    const std::vector<Lane> all = lanes(plan_, block);
    std::vector<Array> sums;
    for (const Lane& lane : all) sums.push_back(product(lane, 0, block));
    for (Index step = 1; step < n_; ++step) {
      std::vector<Pending> travelling = send(all, sums);
      // The products do not need what arrives: they are made while it travels.
      std::vector<Array> products;
      for (const Lane& lane : all) products.push_back(product(lane, step, block));
      for (std::size_t l = 0; l < all.size(); ++l) {
        sums[l] = binary(BinaryOp::kAdd, travelling[l].done(), products[l]);
      }
    }
    if (all.size() == 1) return sums[0];
    std::vector<Index> shape{local.m, local.n};
    shape[dim_] = block;
    Array out = Array::unwritten(accumulator_, shape);
    for (std::size_t l = 0; l < all.size(); ++l) {
      copy_elements(sums[l], part(out.mutable_ref(), dim_, all[l].begin, all[l].end));
    }
    return out;
  }

 private:
  std::vector<Pending> send(const std::vector<Lane>& all, const std::vector<Array>& arrays) {
    std::vector<Pending> out;
    for (std::size_t l = 0; l < all.size(); ++l) {
      out.push_back(
          ppermute_start(device_, arrays[l], plan_.axis_name, ring(n_, all[l].shift), where_));
    }
    return out;
  }

  // With elements begin .. end - 1 of the dimension that goes round, which `shard` holds. first: z_
  // is not yet written.
  void multiply(const Array& shard, Index begin, Index end, bool first) {
    const MutableArrayRef z = z_.mutable_ref();
    switch (plan_.traveller) {
      case RingTraveller::kXContraction:
        detail::dot_add(shard, part(y_.ref(), dot_.trans_y ? 1 : 0, begin, end), z, dot_, first);
        break;
      case RingTraveller::kYContraction:
        detail::dot_add(part(x_.ref(), dot_.trans_x ? 0 : 1, begin, end), shard, z, dot_, first);
        break;
      case RingTraveller::kXRows:
        detail::dot_add(shard, y_, part(z, 0, begin, end), dot_, true);
        break;
      default:
        detail::dot_add(x_, shard, part(z, 1, begin, end), dot_, true);
    }
  }

  // This device's product for its block of z at a step, as far as a lane carries it.
  Array product(const Lane& lane, Index step, Index block) {
    const Index first = scattered_block(rank_, step, n_, lane.shift) * block;
    const Index begin = first + lane.begin, end = first + lane.end;
    ArrayRef x = x_, y = y_;
    if (dim_ == 0) x = part(x, dot_.trans_x ? 1 : 0, begin, end);
    if (dim_ == 1) y = part(y, dot_.trans_y ? 0 : 1, begin, end);
    const MatmulShape& local = plan_.placement.local;
    std::vector<Index> shape{local.m, local.n};
    shape[dim_] = end - begin;
    Array out = Array::unwritten(accumulator_, shape);
    detail::dot_add(x, y, out.mutable_ref(), dot_, true);
    return out;
  }

  Device& device_;
  const RingPlan& plan_;
  const Array &x_, &y_;
  DotOptions dot_;
  CallSite where_;
  DType accumulator_;
  Index n_, rank_;
  std::size_t dim_;
  Array z_;
};

MatmulPlacement place(const Mesh& mesh, const MatmulSpecs& specs, const ArrayRef& x,
                      const ArrayRef& y, const CollectiveMatmulOptions& options) {
  const MatmulShape shape =
      detail::matmul_shape(x, y, options.trans_x, options.trans_y, "collective_matmul: ");
  return place_matmul(mesh, shape, specs.x, specs.y, specs.z);
}

}  // namespace

Index gathered_block(Index rank, Index step, Index n, Index shift) {
  return ((rank - shift * step) % n + n) % n;
}

Index scattered_block(Index rank, Index step, Index n, Index shift) {
  return ((rank + shift * (n - 1 - step)) % n + n) % n;
}

Array collective_matmul_block(Device& device, const RingPlan& plan, const Array& x, const Array& y,
                              const CollectiveMatmulOptions& options, CallSite where) {
  Array operands[] = {x, y, Array()};
  for (const detail::MatmulAction& action : detail::matmul_actions(plan.rest)) {
    if (std::holds_alternative<detail::LocalProduct>(action.what)) {
      Ring ring(device, plan, operands[0], operands[1], options, where);
      operands[2] = plan.form == MatmulForm::kAllGather ? ring.gather() : ring.scatter();
      operands[0] = operands[1] = Array();
    } else {
      detail::run_action(device, plan.rest, action, operands, {}, where);
    }
  }
  const DType type = detail::matmul_result_type(x.dtype(), options.out_dtype);
  return operands[2].dtype() == type ? operands[2] : converted(operands[2], type);
}

Array collective_matmul(const Mesh& mesh, const MatmulSpecs& specs, const ShardArgument& x,
                        const ShardArgument& y, const CollectiveMatmulOptions& options,
                        CallSite where) {
  const RingPlan plan = plan_ring(place(mesh, specs, x.view(), y.view(), options),
                                  options.axis_name, options.form, options.direction);
  const auto body = [&](Device& device, const Array& a, const Array& b) {
    return collective_matmul_block(device, plan, a, b, options, where);
  };
  const auto f =
      shard_map(mesh,
                {.in_specs = {specs.x, specs.y},
                 .out_specs = {Placement(specs.z.spec, {.unreduced = specs.z.unreduced})},
                 .names = {"x", "y"},
                 .launch = options.launch},
                body, where);
  return f(x, y);
}

std::pair<Array, Array> collective_matmul_vjp(const Mesh& mesh, const MatmulSpecs& specs,
                                              const ShardArgument& x, const ShardArgument& y,
                                              const ShardArgument& ct,
                                              const CollectiveMatmulOptions& options,
                                              CallSite where) {
  KREF_CHECK(specs.z.unreduced.empty(), "collective_matmul_vjp: out_specs.z ", to_string(specs.z),
             " keeps partial sums, expected a z that is summed");
  KREF_CHECK(!options.trans_x && !options.trans_y,
             "collective_matmul_vjp: expected x and y stored [M, K] and [K, N]");
  CollectiveMatmulOptions of_x = options, of_y = options;
  of_x.form = of_y.form = std::nullopt;
  of_x.trans_y = true;
  of_y.trans_x = true;
  // ct.x [M, K] = ct y^T and ct.y [K, N] = x^T ct: the operands stay as they are stored.
  Array ct_x = collective_matmul(mesh, {specs.z.spec, specs.y, {specs.x, {}}}, ct, y, of_x, where);
  Array ct_y = collective_matmul(mesh, {specs.x, specs.z.spec, {specs.y, {}}}, x, ct, of_y, where);
  return {std::move(ct_x), std::move(ct_y)};
}

}  // namespace kref
