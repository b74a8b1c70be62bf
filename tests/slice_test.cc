// SPDX-License-Identifier: Apache-2.0
// Chips by name, slices and where they wrap, meshes on their links.
#include "sharding/slice.h"

#include <doctest/doctest.h>

#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("chips have the numbers of the book's table") {
  REQUIRE(chips().size() == 5);
  const Chip v5e = find_chip("v5e");
  CHECK(v5e.bf16_rate == 1.97e14);
  CHECK(v5e.int8_rate == 3.94e14);
  CHECK(v5e.hbm_rate == 8.1e11);
  CHECK(v5e.link_rate == 4.5e10);
  CHECK(v5e.axis_rate() == 9e10);
  CHECK(v5e.link_axes() == 2);
  const struct {
    const char* name;
    double alpha, hbm, beta;  // the last three rows of the table
  } rows[] = {{"v3", 700, 156, 4.5},
              {"v4p", 3056, 229, 13.3},
              {"v5p", 2550, 164, 15.6},
              {"v5e", 2189, 243, 9.0},
              {"v6e", 5111, 575, 8.9}};
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const Chip chip = find_chip(row.name);
    CHECK(link_intensity(chip) == doctest::Approx(row.alpha).epsilon(1e-3));
    CHECK(hbm_intensity(chip) == doctest::Approx(row.hbm).epsilon(4e-3));
    CHECK(hbm_to_link(chip) == doctest::Approx(row.beta).epsilon(6e-3));
  }
}

TEST_CASE("a chip may have other numbers, and the book's alternates have names") {
  const Chip chip = find_chip("v5e:hbm=8.2e11,bf16=1.9e14");
  CHECK(chip.hbm_rate == 8.2e11);
  CHECK(chip.vmem_rate == 22 * 8.2e11);
  CHECK(chip.bf16_rate == 1.9e14);
  CHECK(chip.link_rate == 4.5e10);
  CHECK(chip.name == "v5e:hbm=8.2e11,bf16=1.9e14");
  CHECK(find_chip("v5e-240").hbm_rate == 8.2e11);
  for (const ChipAlternate& alternate : chip_alternates()) {
    CHECK(find_chip(alternate.name).name == alternate.name);
  }
  const auto says = [](const char* text, const char* message) {
    const std::string found = refusal([&] { find_chip(text); });
    CAPTURE(found);
    CHECK(found.find(message) != std::string::npos);
  };
  says("v9", "unknown chip 'v9'; known: v3 v4p v5p v5e v6e v5e-240");
  says("", "unknown chip ''");
  says("v5e:", "changes nothing, expected KEY=VALUE with one of bf16 int8 hbm");
  says("v5e:hbn=1", "'hbn=1' changes nothing");
  says("v5e:hbm=fast", "hbm is 'fast', expected a positive number");
  says("v5e:hbm=0", "expected a positive number");
  says("v5e:hbm=inf", "expected a positive number");
  says("v5e:hbm=1e-320", "hbm is '1e-320', expected a number from 1 to 1e24");
  says("v5e:link=1e308", "link is '1e308', expected a number from 1 to 1e24");
  says("v5e:hbm=1e12,", "changes nothing");
}

TEST_CASE("VMEM is what grids are held to") {
  for (const Chip& chip : chips()) CHECK(chip.vmem_rate == 22 * chip.hbm_rate);
  constexpr double kMiB = 1 << 20;
  CHECK(find_chip("v3").vmem_bytes == 16 * kMiB);
  CHECK(find_chip("v4p").vmem_bytes == 16 * kMiB);
  CHECK(find_chip("v5p").vmem_bytes == 64 * kMiB);
  CHECK(find_chip("v5e").vmem_bytes == 128 * kMiB);
  CHECK(find_chip("v6e").vmem_bytes == 128 * kMiB);
}

TEST_CASE("operation rates by element type") {
  const Chip v5e = find_chip("v5e");
  CHECK(operation_rate(v5e, DType::kBF16) == 1.97e14);
  CHECK(operation_rate(v5e, DType::kI8) == 3.94e14);
  CHECK(operation_rate(v5e, DType::kF32) == 1.97e14);
  CHECK(operation_rate(v5e, DType::kF32, 6) == 1.97e14 / 6);
  CHECK(refusal([&] { operation_rate(v5e, DType::kF64); }).find("no unit multiplies F64") !=
        std::string::npos);
}

TEST_CASE("slices wrap where their chips' do") {
  const struct {
    const char *chip, *shape, *text;
  } rows[] = {
      {"v5e", "4x4", "v5e 4x4, no axis wraps"},
      {"v5e", "8x16", "v5e 8x16, axis 1 wraps"},
      {"v5e", "16x16", "v5e 16x16, all axes wrap"},
      {"v5e", "16", "v5e 16x1, axis 0 wraps"},
      {"v6e", "16x8", "v6e 16x8, axis 0 wraps"},
      {"v3", "32x16", "v3 32x16, axis 0 wraps"},
      {"v5p", "4x4x4", "v5p 4x4x4, all axes wrap"},
      {"v5p", "8x4x4", "v5p 8x4x4, all axes wrap"},
      {"v5p", "2x2x4", "v5p 2x2x4, no axis wraps"},
      {"v4p", "4x4", "v4p 4x4x1, no axis wraps"},
      {"v5p", "28x20x16", "v5p 28x20x16, all axes wrap"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.shape);
    CHECK(to_string(parse_slice(find_chip(row.chip), row.shape)) == row.text);
  }
  const auto says = [](const char* chip, const char* shape, const char* message) {
    const std::string found = refusal([&] { parse_slice(find_chip(chip), shape); });
    CAPTURE(found);
    CHECK(found.find(message) != std::string::npos);
  };
  says("v5e", "4x4x4", "has 3 axes, expected 1 to 2");
  says("v5e", "32x8", "larger than a pod of v5e, 16x16");
  says("v5e", "0x4", "extent 0, expected at least 1");
  says("v5e", "4x", "expected chips along each axis, as in 4x4x4");
  says("v5e", "4,4", "expected chips along each axis");
  says("v5e", "", "expected chips along each axis");
  says("v5e", "99999999999x1", "expected chips along each axis");
}

TEST_CASE("the most cubic slice") {
  CHECK(to_string(cubic_slice(find_chip("v5p"), 64)) == "v5p 4x4x4, all axes wrap");
  CHECK(to_string(cubic_slice(find_chip("v5p"), 128)) == "v5p 4x4x8, all axes wrap");
  CHECK(to_string(cubic_slice(find_chip("v5p"), 8)) == "v5p 2x2x2, no axis wraps");
  CHECK(to_string(cubic_slice(find_chip("v5e"), 64)) == "v5e 4x16, axis 1 wraps");
  CHECK(to_string(cubic_slice(find_chip("v5e"), 1)) == "v5e 1x1, no axis wraps");
  CHECK(refusal([] { cubic_slice(find_chip("v5e"), 512); }).find("no slice of v5e has 512 chips") !=
        std::string::npos);
}

std::string laid(const char* chip, const char* mesh, const char* slice) {
  const Chip c = find_chip(chip);
  return to_string(lay_out(c, Mesh::parse(mesh),
                           slice == nullptr ? std::optional<Slice>() : parse_slice(c, slice)));
}

TEST_CASE("an axis of a mesh gets whole axes of the slice where it can") {
  CHECK(laid("v5p", "X=16,Y=4", "4x4x4") ==
        "X=16 over a ring of 4 and a ring of 4; Y=4 over a ring of 4");
  CHECK(laid("v5p", "Y=4,X=16", "4x4x4") ==
        "Y=4 over a ring of 4; X=16 over a ring of 4 and a ring of 4");
  CHECK(laid("v5e", "X=8,Y=16", "16x8") == "X=8 over a line of 8; Y=16 over a ring of 16");
  CHECK(laid("v5e", "X=2,Y=4", nullptr) == "X=2 over a line of 2; Y=4 over a line of 4");
  CHECK(laid("v5e", "Y=16", "4x4") == "Y=16 over a line of 4 and a line of 4");
  CHECK(laid("v5p", "X=64", nullptr) == "X=64 over a ring of 4 and a ring of 4 and a ring of 4");
  CHECK(laid("v5e", "X=1", nullptr) == "X=1 over nothing");
  // An axis that is cut: its major part goes round by every so many-th chip.
  CHECK(laid("v5e", "X=4,Y=4", "16") ==
        "X=4 over a ring of 4 (every 4th chip); Y=4 over a line of 4");
  CHECK(laid("v5p", "X=8,Y=8", "4x4x4") ==
        "X=8 over a ring of 4 and a ring of 2 (every 2nd chip); Y=8 over a line of 2 and a ring of "
        "4");
}

TEST_CASE("meshes that do not fit, and axes between slices") {
  const Chip v5e = find_chip("v5e");
  const Slice slice = parse_slice(v5e, "4x4");
  CHECK(refusal([&] { lay_out(v5e, Mesh::parse("X=8"), slice); }) ==
        "mesh X=8 needs 8 chips a slice, slice 4x4 has 16");
  const Chip v5p = find_chip("v5p");
  const Slice odd = parse_slice(v5p, "2x2x3");
  lay_out(v5p, Mesh::parse("X=6,Y=2"), odd);
  CHECK(refusal([&] { lay_out(v5e, Mesh::parse("X=1000,Y=1000")); }).find("no slice of v5e") !=
        std::string::npos);
  CHECK(refusal([&] {
          lay_out(v5e, Mesh::parse("X=4"), {}, {"Q"});
        }).find("'Q' is not in the mesh") != std::string::npos);
  const MeshLinks links = lay_out(v5e, Mesh::parse("P=4,X=4,Y=4"), slice, {"P"});
  CHECK(to_string(links) == "P=4 over the network; X=4 over a line of 4; Y=4 over a line of 4");
  CHECK(links.of({"P", "Y"}).size() == 2);
  CHECK(links.of({"P"})[0].network);
}

}  // namespace
}  // namespace kref
