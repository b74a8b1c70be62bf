// SPDX-License-Identifier: Apache-2.0
// The worked problems of the book "How to Scale Your Model" as test vectors: what the book prints,
// what is right (sharding_semantics 7: our own arithmetic, its errata applied), what kref says.
#pragma once

#include <limits>
#include <vector>

#include "sharding/chip.h"

namespace kref {

// What became of the printed number.
enum class Printed {
  kAgrees,    // within 2.5 % of the right one
  kCoarse,    // rounded more than that, and meant so
  kErratum,   // wrong, or of an earlier edition
  kNoAnswer,  // the book has none
};

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct Worked {
  const char* id;  // as in section 7: several numbers of one problem share it
  const char* what;
  double book;  // as printed; kNoNumber
  double right;
  double ours;
  Printed printed = Printed::kAgrees;
  double tolerance = 5e-3;  // of ours against right: the digits in which that is given
};

// By chapter.
std::vector<Worked> roofline_problems();   // 7.1
std::vector<Worked> chip_problems();       // 7.2
std::vector<Worked> sharding_problems();   // 7.3
std::vector<Worked> size_problems();       // 7.4
std::vector<Worked> training_problems();   // 7.5, 7.6
std::vector<Worked> inference_problems();  // 7.7
std::vector<Worked> serving_problems();    // 7.8
std::vector<Worked> gpu_problems();        // 7.9

// A GPU as far as the book compares with it (5.4): operations, HBM, and link bytes both ways.
inline Chip gpu(double operations, double hbm, double links = 900e9) {
  Chip chip;
  chip.name = "gpu";
  chip.bf16_rate = operations;
  chip.hbm_rate = hbm;
  chip.link_rate = links / 2;
  chip.dcn_rate = links / 2;  // a switch: what one GPU sends
  return chip;
}

}  // namespace kref
