// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>

#include "tests/fuzz/targets.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kref::fuzz::safetensors(data, size);
  return 0;
}

// Mutations of the header would nearly all end at its length: three times out of four the length is
// set to what lies before the last brace.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (size <= 8 || seed % 4 == 0) return size;
  const std::uint8_t* const begin = data + 8;
  const std::uint8_t* const end = data + size;
  const std::uint8_t* const brace =
      std::find(std::make_reverse_iterator(end), std::make_reverse_iterator(begin), '}').base();
  const auto length = static_cast<std::uint64_t>(brace - begin);
  std::memcpy(data, &length, sizeof(length));
  return size;
}
