// SPDX-License-Identifier: Apache-2.0
// Transport: what lies between the collectives and whatever runs the devices. Today devices are
// threads of one process (rendezvous.h); ranks of a distributed engine can take their place by
// implementing these two classes, and no collective is to know.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dsl/array.h"
#include "sharding/call_site.h"
#include "sharding/replica_groups.h"

namespace kref {

// What one device brings to an exchange. The members of a group must agree in everything but
// `data`, `target` and `where`.
struct Offer {
  std::string operation;      // "psum"
  AxisNames axes;             // as the caller named them
  ReplicaGroup group;         // of this device
  std::string options;        // whatever else must agree, as printed: "axis=0, tiled=true"
  DType dtype = DType::kF32;  // of the operand
  std::vector<Index> shape;   // of the operand
  CallSite where;             // the caller's line
  Array data;                 // what the others may read; held until all are done with it
  void* target = nullptr;     // memory of this device that the others may write, or none
  std::size_t target_bytes = 0;
};

// One exchange, as one device sees it. The calls come in the order match, any number of view and
// put, wait, all on the device's own thread. Each may throw the Error that ends the launch. An
// exchange that is destroyed before wait() was left behind, which ends the launch with an Error
// that says so, unless an exception carries it away that ends the launch by itself. Nobody writes
// to the target of an exchange that is destroyed.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Blocks until every member has posted its offer. Error that lists what each device brought when
  // they do not agree, when one of them ended without coming, at the time limit.
  virtual void match() = 0;

  // Bytes begin .. begin + bytes - 1 of what member `rank` offered, row-major: in place where that
  // is possible, else copied to `scratch`, which holds as many bytes; without scratch (null) then
  // nullptr.
  virtual const std::byte* view(Index rank, std::size_t begin, std::size_t bytes,
                                std::byte* scratch) = 0;

  // Writes to the target of member `rank`. Members must write disjoint bytes.
  virtual void put(Index rank, std::size_t begin, std::size_t bytes, const std::byte* from) = 0;

  // The memory itself of put()'s target where it can be reached, else nullptr: then put() serves.
  virtual std::byte* target(Index rank) = 0;

  // Memory of so many bytes that all members of the exchange have in common: each of them gets the
  // same, writes what no other member writes, and may read all of it after wait(End::kAll), as long
  // as it holds it. After match; all members ask for as many bytes. Only where the transport
  // has_common().
  virtual std::shared_ptr<void> common(std::size_t bytes) = 0;

  // Ends this device's part. all: blocks until every member has come here, so that the target holds
  // what the others wrote. Not all: returns at once, for exchanges that only read, since an offer's
  // data is held for the others.
  enum class End { kAll, kOwn };
  virtual void wait(End end) = 0;
};

// One device's way to the others.
class Transport {
 public:
  virtual ~Transport() = default;

  // Tells the group what this device brings; does not block. The k-th offer of a device to the
  // group of these axes meets the k-th of every other member. A group of one meets itself.
  virtual std::unique_ptr<Exchange> post(Offer offer) = 0;

  // Whether devices have memory in common: a result that is the same on all of them is then made
  // once.
  virtual bool has_common() const = 0;
};

}  // namespace kref
