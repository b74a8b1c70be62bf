// SPDX-License-Identifier: Apache-2.0
// Random programs of exchanges, of which one device changes one step: each of them ends at once and
// with an Error, and those that nobody changed do not.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/drill.h"

namespace kref {
namespace {

enum class Kind { kRead, kWrite, kStart, kTake, kCount };
enum class Change {
  kNone,
  kThrow,
  kThrowForeign,
  kReturn,
  kSkip,
  kOperation,
  kShape,
  kThrowInside,
  kLeave,
  kSwap,  // with the next step, which may be as good
  kCount
};

struct Instruction {
  Kind kind = Kind::kRead;
  AxisNames axes;
};

struct Mutant {
  Change change = Change::kNone;
  Index device = 0;
  std::size_t step = 0;
};

// What a device does; the same on all of them but for the mutant.
void run(Device& device, std::vector<Instruction> program, const Mutant& mutant) {
  const bool mine = device.index() == mutant.device;
  if (mine && mutant.change == Change::kSwap && mutant.step + 1 < program.size()) {
    std::swap(program[mutant.step], program[mutant.step + 1]);
  }
  std::vector<std::unique_ptr<Exchange>> started;
  for (std::size_t k = 0; k < program.size(); ++k) {
    const Change change = mine && k == mutant.step ? mutant.change : Change::kNone;
    if (change == Change::kThrow) throw Error("mutant");
    if (change == Change::kThrowForeign) throw 7;
    if (change == Change::kReturn) break;
    if (change == Change::kSkip) continue;
    const Instruction& step = program[k];
    if (step.kind == Kind::kTake) {
      if (started.empty()) continue;
      started.front()->match();
      started.front()->wait(Exchange::End::kOwn);
      started.erase(started.begin());
      continue;
    }
    Offer offer = offer_of(device, change == Change::kOperation ? "pmax" : "psum", step.axes,
                           {change == Change::kShape ? 2 : 1});
    const std::size_t n = offer.group.members.size();
    const auto rank = static_cast<std::size_t>(offer.group.rank);
    offer.data = Array(DType::kI32, offer.shape);
    offer.options = step.kind == Kind::kWrite ? "write" : "read";
    std::vector<std::int32_t> target(n, -1);
    if (step.kind == Kind::kWrite) {
      offer.target = target.data();
      offer.target_bytes = 4 * n;
    }
    auto exchange = device.transport().post(std::move(offer));
    if (change == Change::kLeave) continue;
    if (step.kind == Kind::kStart) {
      started.push_back(std::move(exchange));
      continue;
    }
    exchange->match();
    if (change == Change::kThrowInside) throw Error("mutant");
    const auto value = static_cast<std::int32_t>(device.index());
    for (Index r = 0; r < static_cast<Index>(n); ++r) {
      std::int32_t scratch;
      exchange->view(r, 0, 4, reinterpret_cast<std::byte*>(&scratch));
      if (step.kind == Kind::kWrite) {
        exchange->put(r, 4 * rank, 4, reinterpret_cast<const std::byte*>(&value));
      }
    }
    exchange->wait(step.kind == Kind::kWrite ? Exchange::End::kAll : Exchange::End::kOwn);
    if (step.kind == Kind::kWrite && std::ranges::count(target, -1) != 0) throw Error("unwritten");
  }
  for (const auto& exchange : started) {
    exchange->match();
    exchange->wait(Exchange::End::kOwn);
  }
}

TEST_CASE("each mutant of a random program ends with an Error, and at once") {
  constexpr int kPrograms = 400;
  const std::vector<Mesh> meshes{Mesh::parse("X=2,Y=2"), Mesh::parse("X=3,Y=2"),
                                 Mesh::parse("X=2,Y=4")};
  const AxisNames names[] = {"X", "Y", axes("X", "Y"), axes("Y", "X")};
  std::mt19937 random(1);
  const auto draw = [&](auto count) { return random() % static_cast<unsigned>(count); };
  std::vector<int> failed(static_cast<std::size_t>(Change::kCount)), seen = failed;
  int slow = 0;
  for (int round = 0; round < kPrograms; ++round) {
    const Mesh& mesh = meshes[draw(meshes.size())];
    std::vector<Instruction> program(3 + draw(8));
    for (Instruction& step : program) {
      step.kind = static_cast<Kind>(draw(Kind::kCount));
      step.axes = names[draw(4)];
    }
    Mutant mutant;
    mutant.change = static_cast<Change>(draw(Change::kCount));
    mutant.device = draw(mesh.device_count());
    mutant.step = draw(program.size());
    // A change of a take, or inside a start, is none.
    const Kind kind = program[mutant.step].kind;
    const bool simple = mutant.change == Change::kThrow || mutant.change == Change::kThrowForeign;
    if (!simple &&
        (kind == Kind::kTake || (mutant.change == Change::kThrowInside && kind == Kind::kStart))) {
      mutant.change = Change::kNone;
    }
    const auto which = static_cast<std::size_t>(mutant.change);
    const auto start = std::chrono::steady_clock::now();
    bool fails = true;
    try {
      launch(mesh, [&](Device& device) { run(device, program, mutant); },
             {.delay_seed = round % 2 == 0 ? std::optional<std::uint64_t>(round) : std::nullopt});
      fails = false;
    } catch (const Error& error) {
      const std::string what = error.what();
      CHECK(std::ranges::count(what, '\n') == mesh.device_count());
      if (mutant.change == Change::kThrow) CHECK(what.find(": mutant\n") != std::string::npos);
    } catch (const int&) {
      CHECK(mutant.change == Change::kThrowForeign);
    }
    slow += std::chrono::steady_clock::now() - start > std::chrono::seconds(2) ? 1 : 0;
    ++seen[which];
    failed[which] += fails ? 1 : 0;
    if (round % 20 == 0) check_usable(mesh);
  }
  CHECK(slow == 0);
  for (std::size_t k = 0; k < seen.size(); ++k) {
    const auto change = static_cast<Change>(k);
    CAPTURE(k);
    CHECK(seen[k] > 10);
    if (change != Change::kSwap) CHECK(failed[k] == (change == Change::kNone ? 0 : seen[k]));
  }
}

}  // namespace
}  // namespace kref
