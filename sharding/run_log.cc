// SPDX-License-Identifier: Apache-2.0
#include "sharding/run_log.h"

#include <cstdio>

#include "dsl/check.h"
#include "sharding/device.h"

namespace kref {
namespace {

std::string sizes(DType type, Index rows, Index columns) {
  return detail::cat(name_of(type), '[', rows, ',', columns, ']');
}

// Passes everything on.
class LoggedExchange : public Exchange {
 public:
  LoggedExchange(std::unique_ptr<Exchange> exchange, DeviceLog& log, std::size_t start)
      : exchange_(std::move(exchange)), log_(log), start_(start) {}

  void match() override { exchange_->match(); }
  const std::byte* view(Index rank, std::size_t begin, std::size_t bytes,
                        std::byte* scratch) override {
    return exchange_->view(rank, begin, bytes, scratch);
  }
  void put(Index rank, std::size_t begin, std::size_t bytes, const std::byte* from) override {
    exchange_->put(rank, begin, bytes, from);
  }
  std::byte* target(Index rank) override { return exchange_->target(rank); }
  std::shared_ptr<void> common(std::size_t bytes) override { return exchange_->common(bytes); }
  void wait(End end) override {
    exchange_->wait(end);
    log_.await(start_);
  }

 private:
  const std::unique_ptr<Exchange> exchange_;
  DeviceLog& log_;
  const std::size_t start_;
};

}  // namespace

void DeviceLog::product(const ProductWork& w) {
  std::string what = sizes(w.x, w.m, w.k) + " x " + sizes(w.y, w.k, w.n);
  if (w.batch > 1) what = detail::cat(w.batch, " of ", what);
  if (w.adds) what += ", added";
  events_.push_back({.what = std::move(what), .work = w});
}

void DeviceLog::attention(const AttentionWork& w) {
  char keys[32];  // an average: perhaps no whole number
  std::snprintf(keys, sizeof keys, "%.6g", w.keys);
  events_.push_back(
      {.what = detail::cat(w.backward ? "gradients of " : "", "attention of ", w.batch, " x ",
                           w.heads, " heads, ", w.queries, " rows, ", keys, " keys"),
       .work = w});
}

void DeviceLog::charge(std::string what, LogEvent::Work work) {
  events_.push_back({.what = std::move(what), .work = std::move(work)});
}

std::size_t DeviceLog::start(std::string what, LoggedTransfer transfer) {
  transfer.number = numbers_[transfer.members]++;
  events_.push_back({.what = std::move(what), .started = std::move(transfer)});
  return events_.size() - 1;
}

void DeviceLog::await(std::size_t start) {
  events_.push_back({.what = events_[start].what, .awaited = start});
}

void RunLog::open(const Mesh& on) {
  KREF_CHECK(devices.empty() || mesh == on, "log of a run on the mesh ", to_string(mesh),
             ", but this launch is on ", to_string(on), "; expected a log of its own");
  KREF_CHECK(complete, "log of a launch on the mesh ", to_string(mesh),
             " that ended with an Error; expected a log of its own");
  mesh = on;
  complete = false;
  devices.resize(static_cast<std::size_t>(on.device_count()));
}

void charge(Device& device, std::string what, LogEvent::Work work) {
  if (device.log() != nullptr) device.log()->charge(std::move(what), std::move(work));
}

std::unique_ptr<Exchange> detail::logged(std::unique_ptr<Exchange> exchange, DeviceLog& log,
                                         std::size_t start) {
  return std::make_unique<LoggedExchange>(std::move(exchange), log, start);
}

}  // namespace kref
