// SPDX-License-Identifier: Apache-2.0
// The same collectives with MPI, one rank a process, for bench/table.py:
// `mpirun -n N mpi_collectives COLLECTIVE BYTES SECONDS ROUNDS` prints calls a second, one line a
// round of at least that long. Buffers are made once, as users of MPI do. Not here: pargmax, for
// which MPI wants pairs of a value and a place, and ragged_all_to_all.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/collective_cases.h"

namespace {

// Small integers, exact in every sum, as in bench_collectives.cc.
float value(long device, long i) { return static_cast<float>((i * 7 + device * 13) % 101); }

struct Buffers {
  int rank = 0, n = 1, elements = 0;  // of the larger side
  std::vector<float> in, out;
};

// Runs it once; nothing of that name: false.
bool run(const std::string& name, Buffers& b) {
  const int share = b.elements / b.n;
  const int next = (b.rank + 1) % b.n, before = (b.rank + b.n - 1) % b.n;
  float *in = b.in.data(), *out = b.out.data();
  if (name == "all_gather")
    return MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD) == 0;
  if (name == "psum" || name == "rendezvous")
    return MPI_Allreduce(in, out, b.elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == 0;
  if (name == "pmax" || name == "pmin") {
    const MPI_Op op = name == "pmax" ? MPI_MAX : MPI_MIN;
    return MPI_Allreduce(in, out, b.elements, MPI_FLOAT, op, MPI_COMM_WORLD) == 0;
  }
  if (name == "pmean") {
    if (MPI_Allreduce(in, out, b.elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != 0) return false;
    for (float& v : b.out) v /= static_cast<float>(b.n);
    return true;
  }
  if (name == "psum_scatter")
    return MPI_Reduce_scatter_block(in, out, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == 0;
  if (name == "all_to_all" || name == "pswapaxes")
    return MPI_Alltoall(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD) == 0;
  if (name == "pbroadcast") {
    // In place: the source's buffer is both, which saves it a copy.
    return MPI_Bcast(b.rank == 0 ? in : out, b.elements, MPI_FLOAT, 0, MPI_COMM_WORLD) == 0;
  }
  if (name == "ppermute") {
    return MPI_Sendrecv(in, b.elements, MPI_FLOAT, next, 0, out, b.elements, MPI_FLOAT, before, 0,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE) == 0;
  }
  return false;
}

// The last element of a result.
bool right(const std::string& name, const Buffers& b) {
  const long last = b.elements - 1, share = b.elements / b.n;
  const auto is = [&](long i, float expected) {
    return b.out[static_cast<std::size_t>(i)] == expected;
  };
  const auto folded = [&](long i, const auto& fold) {
    float out = value(0, i);
    for (int d = 1; d < b.n; ++d) out = fold(out, value(d, i));
    return out;
  };
  const auto sum = [](float x, float y) { return x + y; };
  if (name == "psum" || name == "rendezvous") return is(last, folded(last, sum));
  if (name == "pmean") return is(last, folded(last, sum) / static_cast<float>(b.n));
  if (name == "pmax")
    return is(last, folded(last, [](float x, float y) { return std::max(x, y); }));
  if (name == "pmin")
    return is(last, folded(last, [](float x, float y) { return std::min(x, y); }));
  if (name == "psum_scatter") return is(share - 1, folded((b.rank + 1) * share - 1, sum));
  if (name == "all_gather") return is(last, value(b.n - 1, share - 1));
  if (name == "all_to_all" || name == "pswapaxes")
    return is(last, value(b.n - 1, (b.rank + 1) * share - 1));
  if (name == "ppermute") return is(last, value((b.rank + b.n - 1) % b.n, last));
  // The source has its result in its operand.
  if (name == "pbroadcast")
    return (b.rank == 0 ? b.in : b.out)[static_cast<std::size_t>(last)] == value(0, last);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) return 2;
  const std::string name = argv[1];
  const long bytes = std::atol(argv[2]);
  const double seconds = std::atof(argv[3]);
  const int rounds = std::atoi(argv[4]);
  Buffers b;
  MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &b.n);
  b.elements = static_cast<int>(bytes / 4);
  b.in.resize(static_cast<std::size_t>(b.elements));
  b.out.resize(b.in.size());
  for (std::size_t i = 0; i < b.in.size(); ++i) b.in[i] = value(b.rank, static_cast<long>(i));
  if (!run(name, b) || !right(name, b)) {
    std::fprintf(stderr, "%s: wrong or unknown\n", name.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const long repeat = kref::bench::repetitions(bytes);
  for (int round = 0; round < rounds; ++round) {
    double elapsed = 0;
    long calls = 0;
    while (elapsed < seconds) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (long k = 0; k < repeat; ++k) run(name, b);
      MPI_Barrier(MPI_COMM_WORLD);
      double mine = MPI_Wtime() - begin;
      // All ranks go round equally often.
      MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      elapsed += mine;
      calls += repeat;
    }
    if (b.rank == 0) std::printf("%.6g\n", static_cast<double>(calls) / elapsed);
  }
  MPI_Finalize();
}
