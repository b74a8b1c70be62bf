// SPDX-License-Identifier: Apache-2.0
// What shard_map reads from the type of a body: how many arguments it takes, which element types
// and ranks it asks for, how many results it gives.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dsl/array.h"
#include "sharding/device.h"

namespace kref::detail {

// Is there no body: a pointer or a std::function that is null.
template <class F>
bool missing(const F&) {
  return false;
}
template <class F>
bool missing(F* f) {
  return f == nullptr;
}
template <class F>
bool missing(const std::function<F>& f) {
  return f == nullptr;
}

// What one parameter of a body asks of its array; nothing set: any.
struct ParameterRule {
  std::optional<DType> dtype = {};
  std::size_t rank = 0;  // counts where dtype is set
};

// How a device's array is handed to a parameter of type T.
template <class T>
struct Parameter;
template <>
struct Parameter<Array> {
  static ParameterRule rule() { return {}; }
  static const Array& get(const Array& local) { return local; }
};
template <>
struct Parameter<ArrayRef> {
  static ParameterRule rule() { return {}; }
  static ArrayRef get(const Array& local) { return local.ref(); }
};
template <class T, std::size_t R>
struct Parameter<Ref<T, R>> {
  static_assert(std::is_const_v<T>, "shard_map: a body reads its arguments: Ref<const T, R>");
  static ParameterRule rule() { return {dtype_of<T>, R}; }
  static Ref<T, R> get(const Array& local) { return local.ref().ref<T, R>(); }
};

// What a body may return: how many arrays that is (kAnyCount: known when it returned), how they are
// taken apart, and as what the caller of shard_map gets the global ones.
inline constexpr Index kAnyCount = -1;
template <class T>
struct Results;
template <>
struct Results<void> {
  static constexpr Index kCount = 0;
  using Global = void;
  static void join(std::vector<Array>&&) {}
};
template <>
struct Results<Array> {
  static constexpr Index kCount = 1;
  using Global = Array;
  static void split(Array&& result, std::vector<Array>& out) { out.push_back(std::move(result)); }
  static Array join(std::vector<Array>&& all) { return std::move(all[0]); }
};
template <class T, std::size_t R>
struct Results<Tensor<T, R>> {
  static constexpr Index kCount = 1;
  using Global = Array;
  static void split(Tensor<T, R>&& result, std::vector<Array>& out) {
    out.push_back(Array(std::move(result)));
  }
  static Array join(std::vector<Array>&& all) { return std::move(all[0]); }
};
template <>
struct Results<std::vector<Array>> {
  static constexpr Index kCount = kAnyCount;
  using Global = std::vector<Array>;
  static void split(std::vector<Array>&& result, std::vector<Array>& out) {
    out = std::move(result);
  }
  static std::vector<Array> join(std::vector<Array>&& all) { return std::move(all); }
};
template <std::size_t N>
struct Results<std::array<Array, N>> {
  static constexpr Index kCount = static_cast<Index>(N);
  using Global = std::array<Array, N>;
  static void split(std::array<Array, N>&& result, std::vector<Array>& out) {
    for (Array& one : result) out.push_back(std::move(one));
  }
  static Global join(std::vector<Array>&& all) {
    Global out;
    for (std::size_t i = 0; i < N; ++i) out[i] = std::move(all[i]);
    return out;
  }
};
template <class... T>
struct Results<std::tuple<T...>> {
  static constexpr Index kCount = static_cast<Index>(sizeof...(T));
  using Global = std::tuple<typename Results<T>::Global...>;
  static void split(std::tuple<T...>&& result, std::vector<Array>& out) {
    std::apply([&](T&... one) { (Results<T>::split(std::move(one), out), ...); }, result);
  }
  static Global join(std::vector<Array>&& all) {
    return join(std::move(all), std::index_sequence_for<T...>());
  }
  template <std::size_t... I>
  static Global join(std::vector<Array>&& all, std::index_sequence<I...>) {
    return Global(std::move(all[I])...);
  }
};
template <class A, class B>
struct Results<std::pair<A, B>> {
  static constexpr Index kCount = 2;
  using Global = std::pair<typename Results<A>::Global, typename Results<B>::Global>;
  static void split(std::pair<A, B>&& result, std::vector<Array>& out) {
    Results<A>::split(std::move(result.first), out);
    Results<B>::split(std::move(result.second), out);
  }
  static Global join(std::vector<Array>&& all) { return {std::move(all[0]), std::move(all[1])}; }
};

// The signature of a body: a function or an object with one const operator(), which all devices
// call at the same time. First is Device, or Tracer for the bodies that are typed.
template <class F>
struct BodyTraits : BodyTraits<decltype(&F::operator())> {};
template <class First_, class R, class... A>
struct BodyTraits<R (*)(First_&, A...)> {
  using First = First_;
  using Result = std::decay_t<R>;
  using Arguments = std::tuple<std::decay_t<A>...>;
};
template <class C, class First_, class R, class... A>
struct BodyTraits<R (C::*)(First_&, A...) const> : BodyTraits<R (*)(First_&, A...)> {};
template <class C, class First_, class R, class... A>
struct BodyTraits<R (C::*)(First_&, A...) const noexcept> : BodyTraits<R (*)(First_&, A...)> {};
template <class First_, class R, class... A>
struct BodyTraits<R (*)(First_&, A...) noexcept> : BodyTraits<R (*)(First_&, A...)> {};

// The rules of all parameters, and the call itself.
template <class Arguments>
struct Signature;
template <class... A>
struct Signature<std::tuple<A...>> {
  static constexpr std::size_t kArity = sizeof...(A);
  static constexpr Index kFixed = static_cast<Index>(kArity);
  static std::vector<ParameterRule> rules() { return {Parameter<A>::rule()...}; }
  template <class F>
  static decltype(auto) call(const F& body, Device& device, std::span<const Array> locals) {
    return call(body, device, locals, std::index_sequence_for<A...>());
  }

 private:
  template <class F, std::size_t... I>
  static decltype(auto) call(const F& body, Device& device,
                             [[maybe_unused]] std::span<const Array> locals,
                             std::index_sequence<I...>) {
    return body(device, Parameter<A>::get(locals[I])...);
  }
};
// Any number of arguments: [](Device&, std::span<const Array>).
template <>
struct Signature<std::tuple<std::span<const Array>>> {
  static constexpr Index kFixed = kAnyCount;
  static std::vector<ParameterRule> rules() { return {}; }
  template <class F>
  static decltype(auto) call(const F& body, Device& device, std::span<const Array> locals) {
    return body(device, locals);
  }
};

}  // namespace kref::detail
