// SPDX-License-Identifier: Apache-2.0
// Chip: what one TPU can do in a second, as the book "How to Scale Your Model" tabulates it
// (sharding_semantics 5.1 to 5.3). Every prediction is made of these numbers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/ref.h"

namespace kref {

// Rates are per second and chip, sizes in bytes; a chip is all its TensorCores together.
struct Chip {
  std::string name;         // "v5e"; with what was changed: "v5e:hbm=8.2e11"
  std::vector<Index> pod;   // chips of the largest slice along each of its axes
  std::vector<Index> host;  // chips of one host
  // Along which axes of a slice the last chip has a link to the first.
  enum class Wrap {
    kFullAxis,  // 2D: an axis of the full 16 (32 on v3)
    kCubes,     // 3D: all axes, when each is a multiple of 4; else none
  } wrap = Wrap::kFullAxis;

  double hbm_bytes = 0;
  double hbm_rate = 0;     // bytes
  double bf16_rate = 0;    // floating-point operations
  double int8_rate = 0;    // operations on 8-bit integers
  double link_rate = 0;    // bytes, one link, one way
  double pcie_rate = 0;    // bytes
  double dcn_rate = 0;     // bytes that leave over the data-center network
  double vmem_bytes = 0;   // of one TensorCore
  double vmem_rate = 0;    // bytes: 22 times HBM
  double clock = 0;        // cycles
  Index tensor_cores = 1;  // in one chip
  Index mxu = 128;         // rows and columns of its systolic array: what sizes are padded to

  Index link_axes() const { return static_cast<Index>(pod.size()); }
  // One axis of links, both ways: the book's W.
  double axis_rate() const { return 2 * link_rate; }
};

// v3, v4p, v5p, v5e, v6e.
std::span<const Chip> chips();

// "v5e", the name of an alternate, or a chip with other numbers: "v5e:hbm=8.2e11,bf16=1.9e14", keys
// bf16 int8 hbm hbm_bytes link pcie dcn vmem clock. Error, with the known ones, for anything else,
// and for a rate that is not a positive number.
Chip find_chip(std::string_view text);

// A number the book uses in some places in place of that of its table.
struct ChipAlternate {
  const char* name;   // "v5e-240"
  const char* chip;   // as find_chip reads it: "v5e:hbm=8.2e11"
  const char* where;  // which of the book's numbers it gives
};
std::span<const ChipAlternate> chip_alternates();

// Operations a second on elements of a type: 8-bit integers have a rate of their own, 16-bit and
// 8-bit floats that of bf16. An f32 product is `passes` products of bf16 (1 at the TPU's default
// precision, 3 and 6 at the higher ones). Error for types that no MXU multiplies.
double operation_rate(const Chip& chip, DType type, int passes = 1);

// Operations a second of the vector units: 8 x 128 lanes of four each (sharding_semantics 5.3).
double vector_rate(const Chip& chip);

// Operations a second over bytes a second: what a byte has to be used for.
// alpha = C / W of one axis of links (bf16): 2550 on v5p.
double link_intensity(const Chip& chip);
// C / HBM bandwidth: 240 on v5e at 8.2e11.
double hbm_intensity(const Chip& chip);
// beta: HBM bandwidth over that of one axis of links.
double hbm_to_link(const Chip& chip);
// C / W of the data-center network: 73,440 on v5p.
double dcn_intensity(const Chip& chip);

}  // namespace kref
