// SPDX-License-Identifier: Apache-2.0
// What the fuzzers do with their input. The fuzz programs call one each; fuzz_corpus_test calls
// them on the corpus in every test run. Input is either read or refused with Error: anything else
// ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kref::fuzz {

// Ends the program when something is not as it must be for every input.
inline void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

void npy(const std::uint8_t* data, std::size_t size);
void npz(const std::uint8_t* data, std::size_t size);
void safetensors(const std::uint8_t* data, std::size_t size);
void json(const std::uint8_t* data, std::size_t size);
// Lines KEY=VALUE: the metadata of a matmul run with x [4, 8] and y [8, 4].
void metadata(const std::uint8_t* data, std::size_t size);
// Four lines: a mesh, the specs of x and y, that of z, for the same product.
void specs(const std::uint8_t* data, std::size_t size);

}  // namespace kref::fuzz
