// SPDX-License-Identifier: Apache-2.0
#include "sharding/custom_vjp.h"

#include <doctest/doctest.h>

#include "sharding/vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Doubles = std::vector<double>;

ShardMapOptions options(const Placement& in, const Placement& out) {
  return {.in_specs = {in}, .out_specs = {out}};
}

TEST_CASE("behaviour 42: the cotangent of a custom_vjp must vary as its argument does") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto fwd = [](const Value& v) { return std::pair(psum(v, "x"), 0); };
  const auto wrong = custom_vjp(fwd, [](int, const Value& ct) { return psum(ct, "x"); });
  const auto right = custom_vjp(fwd, [](int, const Value& ct) { return pvary(ct, "x"); });
  const auto bad = [wrong](Tracer&, const Value& v) { return wrong(v); };
  const std::string text =
      refusal([&] { vjp(shard_map(mesh, options(P{"x"}, P()), bad), iota({4})); });
  CHECK(text.find("for argument 0") != std::string::npos);
  CHECK(text.find("f32[2]{V:x}") != std::string::npos);
  CHECK(text.find("hint: give pcast(..., x, to='varying')") != std::string::npos);
  const auto good = [right](Tracer&, const Value& v) { return right(v); };
  const auto [y, back] = vjp(shard_map(mesh, options(P{"x"}, P()), good), iota({4}));
  CHECK(values(y) == Doubles{2, 4});
  CHECK(values(back(iota({2}, 1))[0]) == Doubles{1, 2, 1, 2});
}

TEST_CASE(
    "cases L055 and L056: a cotangent of the wrong shape names the argument and both shapes") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto fwd = [](const Value& a, const Value& s) { return std::pair(a * s, std::pair(a, s)); };
  using Saved = std::pair<Value, Value>;
  const auto broadcast = custom_vjp(fwd, [](const Saved& saved, const Value& ct) {
    return std::pair(ct * saved.second, ct * saved.first);
  });
  const auto bad = [broadcast](Tracer&, const Value& a, const Value& s) { return broadcast(a, s); };
  const ShardMapOptions specs{.in_specs = {P(), P()}, .out_specs = {P()}};
  const std::string text =
      refusal([&] { vjp(shard_map(mesh, specs, bad), full({2}, 1), full({}, 1)); });
  CHECK(text.find("for argument 1") != std::string::npos);
  CHECK(text.find("shape [2]") != std::string::npos);
  CHECK(text.find("the argument, []") != std::string::npos);
  const auto halved = custom_vjp(fwd, [](const Saved& saved, const Value& ct) {
    return std::pair(convert(ct * saved.second, DType::kBF16), sum(ct * saved.first));
  });
  const auto narrow = [halved](Tracer&, const Value& a, const Value& s) { return halved(a, s); };
  const std::string types =
      refusal([&] { vjp(shard_map(mesh, specs, narrow), full({2}, 1), full({}, 1)); });
  CHECK(types.find("for argument 0 bwd gave a cotangent of type BF16") != std::string::npos);
  CHECK(types.find("the type of the argument, F32") != std::string::npos);
  const auto reduced_back = custom_vjp(fwd, [](const Saved& saved, const Value& ct) {
    return std::pair(ct * saved.second, sum(ct * saved.first));
  });
  const auto good = [reduced_back](Tracer&, const Value& a, const Value& s) {
    return reduced_back(a, s);
  };
  const auto [y, back] = vjp(shard_map(mesh, specs, good), full({2}, 1), full({}, 1));
  CHECK(back(full({2}, 1))[1].at(0) == 2);
  // Without any rule of its own the broadcast is reduced back too.
  const auto plain = [](Tracer&, const Value& a, const Value& s) { return a * s; };
  CHECK(
      vjp(shard_map(mesh, specs, plain), full({2}, 1), full({}, 1)).second(full({2}, 1))[1].at(0) ==
      2);
}

TEST_CASE("a kernel of one's own in a typed body, with its derivative") {
  const Mesh mesh = Mesh::parse("x=2");
  const auto square = [](const Value& v) {
    const std::vector<Index> shape(v.shape().begin(), v.shape().end());
    const auto run = [](Device&, std::span<const Array> in) {
      Array out = Array::unwritten(DType::kF32, in[0].shape());
      for (Index i = 0; i < out.size(); ++i) {
        out.mutable_elements<float>()[static_cast<std::size_t>(i)] =
            static_cast<float>(in[0].at(i) * in[0].at(i));
      }
      return out;
    };
    return std::pair(device_call("square", {v}, v.dtype(), shape, run), v);
  };
  const auto f = custom_vjp(square, [](const Value& v, const Value& ct) { return 2 * (ct * v); });
  const auto body = [f](Tracer&, const Value& v) { return psum(f(v), "x"); };
  const auto [y, back] = vjp(shard_map(mesh, options(P{"x"}, P()), body), iota({4}, 1));
  CHECK(values(y) == Doubles{1 + 9, 4 + 16});
  CHECK(values(back(iota({2}, 1))[0]) == Doubles{2, 8, 6, 16});
  const auto bare = [](Tracer&, const Value& v) {
    const auto same = [](Device&, std::span<const Array> in) { return in[0]; };
    return device_call("mine", {v}, v.dtype(), {2}, same);
  };
  CHECK(refusal([&] {
          vjp(shard_map(mesh, options(P{"x"}, P{"x"}), bare), iota({4}));
        }).find("mine has no derivative") == 0);
}

TEST_CASE("on devices custom_vjp pairs two functions of arrays; Megatron's pair is exact") {
  const Mesh mesh = Mesh::parse("m=4");
  // y = psum(f(x) w) with w split: x's cotangent is the sum over the devices.
  const auto fwd = [](Device& device, const Array& x) {
    return std::pair(MegatronF{"m"}.fwd(device, x), x);
  };
  const auto bwd = [](Device& device, const Array& saved, const Array& ct) {
    return std::pair(MegatronF{"m"}.bwd(device, ct), saved);
  };
  const auto f = custom_vjp(fwd, bwd);
  const auto body = [f](Device& device, const Array& x, const Array& ct) {
    const Array y = f(device, x);
    const auto [dx, saved] = f.bwd(device, f.fwd(device, x).second, ct);
    return std::tuple(y, dx, MegatronG{"m"}.fwd(device, ct), MegatronG{"m"}.bwd(device, saved));
  };
  const auto g =
      shard_map(mesh, {.in_specs = {P(), P{"m"}}, .out_specs = {P(), P(), P(), P()}}, body);
  const auto [y, dx, sum, same] = g(iota({2}, 7), iota({8}));
  CHECK(values(y) == Doubles{7, 8});
  CHECK(values(dx) == Doubles{0 + 2 + 4 + 6, 1 + 3 + 5 + 7});
  CHECK(values(sum) == values(dx));
  CHECK(values(same) == Doubles{7, 8});
}

}  // namespace
}  // namespace kref
