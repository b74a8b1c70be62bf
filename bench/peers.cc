// SPDX-License-Identifier: Apache-2.0
// OpenBLAS and BLIS export the same names, so they are loaded each into a scope of its own instead
// of being linked.
#include "bench/peers.h"

#include <dlfcn.h>

#include "kernels/tile_ops.h"

namespace kref::bench {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111;  // CBLAS enumerators
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);

struct Blas {
  Sgemm sgemm = nullptr;
  std::function<void(int)> set_threads;
};

template <class F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

// The first of `sonames` that can be loaded; empty when there is none.
Blas load(std::initializer_list<const char*> sonames, const char* set_threads, bool wide_argument) {
  for (const char* soname : sonames) {
    void* library = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == nullptr) continue;
    Blas blas;
    blas.sgemm = symbol<Sgemm>(library, "cblas_sgemm");
    if (wide_argument) {
      const auto set = symbol<void (*)(std::int64_t)>(library, set_threads);
      if (set != nullptr) blas.set_threads = set;
    } else {
      const auto set = symbol<void (*)(int)>(library, set_threads);
      if (set != nullptr) blas.set_threads = set;
    }
    if (blas.sgemm != nullptr && blas.set_threads) return blas;
  }
  return {};
}

const Blas& openblas() {
  static const Blas blas = load({"libopenblas.so.0"}, "openblas_set_num_threads", false);
  return blas;
}

const Blas& blis() {
  static const Blas blas = load({"libblis.so.4", "libblis.so"}, "bli_thread_set_num_threads", true);
  return blas;
}

void sgemm(const Blas& blas, const Product<float, float>& p, int threads) {
  blas.set_threads(threads);
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  blas.sgemm(kRowMajor, kNoTrans, kNoTrans, m, n, k, 1.0f, p.a, k, p.b, n, 0.0f, p.c, n);
}

// Widens on `threads` threads, as a user of OpenBLAS without a bf16 product would.
void widen(const bf16* from, float* to, Index count, int threads) {
  const Index chunk = cdiv(count, threads);
#pragma omp parallel for num_threads(threads)
  for (int t = 0; t < threads; ++t) {
    const Index begin = std::min(count, t * chunk), end = std::min(count, begin + chunk);
    cast(Ref<const bf16, 2>(from + begin, {1, end - begin}),
         Ref<float, 2>(to + begin, {1, end - begin}));
  }
}

}  // namespace

std::vector<Peer<float, float>> f32_peers() {
  std::vector<Peer<float, float>> out;
  for (const auto& [name, blas] :
       {std::pair{"openblas", &openblas()}, std::pair{"blis", &blis()}}) {
    if (blas->sgemm == nullptr) continue;
    const Blas* library = blas;
    out.push_back({name, [library](const Product<float, float>& p, int threads) {
                     sgemm(*library, p, threads);
                   }});
  }
  detail::add_onednn(out);
  return out;
}

std::vector<Peer<bf16, float>> bf16_peers() {
  std::vector<Peer<bf16, float>> out;
  if (openblas().sgemm != nullptr) {
    out.push_back({"widen+openblas", [](const Product<bf16, float>& p, int threads) {
                     static std::vector<float> a, b;
                     a.resize(static_cast<std::size_t>(p.m * p.k));
                     b.resize(static_cast<std::size_t>(p.k * p.n));
                     widen(p.a, a.data(), p.m * p.k, threads);
                     widen(p.b, b.data(), p.k * p.n, threads);
                     sgemm(openblas(), {a.data(), b.data(), p.c, p.m, p.n, p.k}, threads);
                   }});
  }
  detail::add_onednn(out);
  return out;
}

std::vector<Peer<std::int8_t, std::int32_t>> int8_peers() {
  std::vector<Peer<std::int8_t, std::int32_t>> out;
  detail::add_onednn(out);
  return out;
}

}  // namespace kref::bench
