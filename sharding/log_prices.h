// SPDX-License-Identifier: Apache-2.0
// The price of each event of a log on a chip and its links. Internal to sharding/.
#pragma once

#include <vector>

#include "sharding/run_log.h"
#include "sharding/virtual_clock.h"

namespace kref::detail {

// `links` and `options` outlive it.
class LogPrices {
 public:
  LogPrices(const MeshLinks& links, const ClockOptions& options)
      : links_(links), options_(options) {}

  Roofline price(const LogEvent::Work& work) const;
  LinkTime price(const LoggedTransfer& transfer, const std::vector<LinkAxis>& axes) const;
  // The links of its group.
  std::vector<LinkAxis> links_of(const LoggedTransfer& transfer) const;
  // What so many bytes of a type count.
  double bytes(double of, DType type) const;

 private:
  DType counted(DType type) const;
  Roofline roofline(const ProductWork& work) const;
  Roofline roofline(const AttentionWork& work) const;
  Roofline roofline(const GridWork& work) const;
  static Roofline roofline(const Roofline& given) { return given; }

  const MeshLinks& links_;
  const ClockOptions& options_;
};

}  // namespace kref::detail
