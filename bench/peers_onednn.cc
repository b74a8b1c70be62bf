// SPDX-License-Identifier: Apache-2.0
#include "bench/peers.h"

#ifdef KREF_HAVE_ONEDNN
#include <omp.h>

#include <cstdlib>
#include <dnnl.hpp>
#include <map>
#include <tuple>
#include <unordered_map>
#endif

namespace kref::bench::detail {

#ifdef KREF_HAVE_ONEDNN
namespace {

// Says which instructions the environment holds oneDNN to, where it does (onednn@AVX512_CORE).
std::string name() {
  const char* isa = std::getenv("ONEDNN_MAX_CPU_ISA");
  return isa == nullptr || *isa == '\0' ? "onednn" : std::string("onednn@") + isa;
}

// oneDNN's matmul primitive of one shape, plain row-major in and out.
class Matmul {
 public:
  Matmul(dnnl::memory::data_type in, dnnl::memory::data_type out, Index m, Index n, Index k)
      : a_({m, k}, in, dnnl::memory::format_tag::ab),
        b_({k, n}, in, dnnl::memory::format_tag::ab),
        c_({m, n}, out, dnnl::memory::format_tag::ab),
        primitive_(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_, b_, c_), engine())) {}

  void run(const void* a, const void* b, void* c) {
    // oneDNN takes inputs by mutable pointer and does not write to them.
    dnnl::memory ma(a_, engine(), const_cast<void*>(a)), mb(b_, engine(), const_cast<void*>(b)),
        mc(c_, engine(), c);
    static dnnl::stream stream(engine());
    primitive_.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
    stream.wait();
  }

 private:
  static dnnl::engine& engine() {
    static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
  }
  dnnl::memory::desc a_, b_, c_;
  dnnl::matmul primitive_;
};

// The primitive bakes the thread count in, hence one for each.
template <class T, class C>
void matmul(dnnl::memory::data_type in, dnnl::memory::data_type out, const Product<T, C>& p,
            int threads) {
  omp_set_num_threads(threads);
  static std::map<std::tuple<Index, Index, Index, int>, Matmul> cache;
  auto it = cache.find({p.m, p.n, p.k, threads});
  if (it == cache.end()) {
    it = cache.try_emplace({p.m, p.n, p.k, threads}, in, out, p.m, p.n, p.k).first;
  }
  it->second.run(p.a, p.b, p.c);
}

}  // namespace
#endif

void add_onednn([[maybe_unused]] std::vector<Peer<float, float>>& out) {
#ifdef KREF_HAVE_ONEDNN
  out.push_back({name(), [](const Product<float, float>& p, int threads) {
                   omp_set_num_threads(threads);
                   dnnl_sgemm('N', 'N', p.m, p.n, p.k, 1.0f, p.a, p.k, p.b, p.n, 0.0f, p.c, p.n);
                 }});
#endif
}

void add_onednn([[maybe_unused]] std::vector<Peer<bf16, float>>& out) {
#ifdef KREF_HAVE_ONEDNN
  out.push_back({name(), [](const Product<bf16, float>& p, int threads) {
                   using Type = dnnl::memory::data_type;
                   matmul(Type::bf16, Type::f32, p, threads);
                 }});
#endif
}

void add_onednn([[maybe_unused]] std::vector<Peer<std::int8_t, std::int32_t>>& out) {
#ifdef KREF_HAVE_ONEDNN
  out.push_back({name() + " s8s8s32",
                 [](const Product<std::int8_t, std::int32_t>& p, int threads) {
                   omp_set_num_threads(threads);
                   const std::int32_t zero = 0;
                   dnnl_gemm_s8s8s32('N', 'N', 'F', p.m, p.n, p.k, 1.0f, p.a, p.k, 0, p.b, p.n, 0,
                                     0.0f, p.c, p.n, &zero);
                 },
                 false});
#endif
}

}  // namespace kref::bench::detail
