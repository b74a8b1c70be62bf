// SPDX-License-Identifier: Apache-2.0
#include "sharding/chip.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "dsl/check.h"
#include "dsl/tpu_memory.h"
#include "sharding/spelling.h"

namespace kref {
namespace {

constexpr double kVmemOverHbm = 22;

// Clocks as the book has them for v5e and v5p (sharding_semantics 5.3), those of the others from
// the vendor's pages; they bear on no worked problem. VMEM: dsl/tpu_memory.h.
std::vector<Chip> make_chips() {
  using enum Chip::Wrap;
  std::vector<Chip> all = {
      {"v3",
       {32, 32},
       {4, 2},
       kFullAxis,
       32e9,
       9.0e11,
       1.4e14,
       1.4e14,
       1e11,
       1.6e10,
       6.25e9,
       0,
       0,
       0.94e9,
       2,
       128},
      {"v4p",
       {16, 16, 16},
       {2, 2, 1},
       kCubes,
       32e9,
       1.2e12,
       2.75e14,
       2.75e14,
       4.5e10,
       1.6e10,
       6.25e9,
       0,
       0,
       1.05e9,
       2,
       128},
      {"v5p",
       {16, 20, 28},
       {2, 2, 1},
       kCubes,
       96e9,
       2.8e12,
       4.59e14,
       9.18e14,
       9e10,
       1.6e10,
       6.25e9,
       0,
       0,
       1.75e9,
       2,
       128},
      {"v5e",
       {16, 16},
       {4, 2},
       kFullAxis,
       16e9,
       8.1e11,
       1.97e14,
       3.94e14,
       4.5e10,
       1.6e10,
       3.125e9,
       0,
       0,
       1.5e9,
       1,
       128},
      {"v6e",
       {16, 16},
       {4, 2},
       kFullAxis,
       32e9,
       1.6e12,
       9.20e14,
       1.84e15,
       9e10,
       3.2e10,
       12.5e9,
       0,
       0,
       1.75e9,
       1,
       256},
  };
  for (Chip& chip : all) {
    const std::string_view name = chip.name == "v4p" ? "v4" : std::string_view(chip.name);
    const TpuMemory* memory = find_tpu_memory(name);
    KREF_DCHECK(memory != nullptr);
    chip.vmem_bytes = static_cast<double>(memory->vmem_mib << 20);
    chip.vmem_rate = kVmemOverHbm * chip.hbm_rate;
  }
  return all;
}

constexpr ChipAlternate kAlternates[] = {
    {"v5e-240", "v5e:hbm=8.2e11", "the critical batch of 240; the decode tables"},
    {"v5e-2e14", "v5e:bf16=2e14", "a quiz"},
    {"v4p-1.23", "v4p:hbm=1.23e12", "loading 200e9 parameters in 10 ms"},
    {"v5p-4.6", "v5p:bf16=4.6e14", "the roofline of a collective"},
    {"v5p-4.5", "v5p:bf16=4.5e14", "a quiz"},
    {"v5p-2.5", "v5p:hbm=2.5e12", "one text"},
    {"v6e-9.1", "v6e:bf16=9.1e14", "the first roofline"},
    {"v5e-pcie", "v5e:pcie=1.5e10", "the quizzes on host memory"},
    {"v6e-pcie", "v6e:pcie=1.5e10", "the quizzes on host memory"},
};

struct Field {
  std::string_view key;
  double Chip::*member;
};
constexpr Field kFields[] = {
    {"bf16", &Chip::bf16_rate},      {"int8", &Chip::int8_rate}, {"hbm", &Chip::hbm_rate},
    {"hbm_bytes", &Chip::hbm_bytes}, {"link", &Chip::link_rate}, {"pcie", &Chip::pcie_rate},
    {"dcn", &Chip::dcn_rate},        {"vmem", &Chip::vmem_rate}, {"clock", &Chip::clock},
};

// Of any field, in its unit: beyond them a time or a ratio of rates is no finite number.
constexpr double kSlowest = 1, kFastest = 1e24;

void change(Chip& chip, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const Field& f) { return f.key == key; });
  std::string known;
  for (const Field& f : kFields) known += detail::cat(known.empty() ? "" : " ", std::string(f.key));
  KREF_CHECK(equals != std::string_view::npos && field != std::end(kFields), "chip ", chip.name,
             ": '", abridged(text), "' changes nothing, expected KEY=VALUE with one of ", known);
  const std::string value(text.substr(equals + 1));
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  KREF_CHECK(!value.empty() && *end == '\0' && std::isfinite(number) && number > 0, "chip ",
             chip.name, ": ", std::string(key), " is '", abridged(value),
             "', expected a positive number");
  KREF_CHECK(number >= kSlowest && number <= kFastest, "chip ", chip.name, ": ", std::string(key),
             " is '", abridged(value), "', expected a number from 1 to 1e24");
  chip.*(field->member) = number;
  if (key == "hbm") chip.vmem_rate = kVmemOverHbm * number;
}

}  // namespace

std::span<const Chip> chips() {
  static const std::vector<Chip> all = make_chips();
  return all;
}

std::span<const ChipAlternate> chip_alternates() { return kAlternates; }

Chip find_chip(std::string_view text) {
  std::string_view spelled = text;
  for (const ChipAlternate& alternate : kAlternates) {
    if (text == alternate.name) spelled = alternate.chip;
  }
  const std::size_t colon = spelled.find(':');
  const std::string_view base = spelled.substr(0, colon);
  const auto found = std::find_if(chips().begin(), chips().end(),
                                  [&](const Chip& chip) { return chip.name == base; });
  std::string known;
  for (const Chip& chip : chips()) known += chip.name + ' ';
  for (const ChipAlternate& alternate : kAlternates) known += std::string(alternate.name) + ' ';
  KREF_CHECK(found != chips().end(), "unknown chip '", abridged(text), "'; known: ", known,
             "and, with other numbers, as in v5e:hbm=8.2e11");
  Chip chip = *found;
  if (colon == std::string_view::npos) return chip;
  std::string_view rest = spelled.substr(colon + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    change(chip, rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  chip.name = std::string(text);
  return chip;
}

double operation_rate(const Chip& chip, DType type, int passes) {
  KREF_DCHECK(passes > 0);
  switch (type) {
    case DType::kI8:
    case DType::kU8:
      return chip.int8_rate;
    case DType::kF32:
      return chip.bf16_rate / passes;
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return chip.bf16_rate;
    default:
      throw Error(detail::cat("chip ", chip.name, ": no unit multiplies ", name_of(type),
                              ", expected F32, F16, BF16, F8_E4M3, F8_E5M2, I8 or U8"));
  }
}

double vector_rate(const Chip& chip) {
  constexpr double kLanes = 8 * 128, kUnits = 4;
  return kLanes * kUnits * chip.clock * static_cast<double>(chip.tensor_cores);
}

double link_intensity(const Chip& chip) { return chip.bf16_rate / chip.axis_rate(); }
double hbm_intensity(const Chip& chip) { return chip.bf16_rate / chip.hbm_rate; }
double hbm_to_link(const Chip& chip) { return chip.hbm_rate / chip.axis_rate(); }
double dcn_intensity(const Chip& chip) { return chip.bf16_rate / chip.dcn_rate; }

}  // namespace kref
