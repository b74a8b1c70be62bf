// SPDX-License-Identifier: Apache-2.0
// What a launch that fails says: first what is wrong, then what every device was doing.
#include <algorithm>

#include "sharding/rendezvous.h"

namespace kref::detail {
namespace {

std::string at(const CallSite& where) {
  const std::string place = to_string(where);
  return place.empty() ? place : " at " + place;
}

std::string type_of(const Offer& offer) {
  return type_string(offer.dtype, offer.shape, {}, Mesh());
}

// The first thing in which an offer differs from the others', as a sentence; empty: none.
std::string difference(const Offer& offer, const Offer& other) {
  const auto differs = [](const char* what, const std::string& found, const std::string& expected) {
    return cat("the ", what, " is ", found.empty() ? "none" : found, ", expected ",
               expected.empty() ? "none" : expected);
  };
  if (offer.operation != other.operation) {
    return differs("operation", offer.operation, other.operation);
  }
  if (offer.axes != other.axes) {
    return differs("axis name", to_string(offer.axes), to_string(other.axes));
  }
  if (offer.dtype != other.dtype || offer.shape != other.shape) {
    return differs("operand", type_of(offer), type_of(other));
  }
  if (offer.options != other.options) return differs("option", offer.options, other.options);
  return {};
}

// The first member that has not come to where the party waits.
Index missing(const Party& party) {
  std::size_t rank = 0;
  while (party.slot->came(party.phase, rank)) ++rank;
  return party.slot->members[rank];
}

const Offer& waited_for(const Party& party) {
  const auto own = std::ranges::find(party.slot->members, party.index);
  return party.slot->offers[static_cast<std::size_t>(own - party.slot->members.begin())];
}

// "psum over X at layer.cc:12", "the end of psum over X at layer.cc:12".
std::string waiting_place(const Party& party) {
  return cat(party.phase == Phase::kMatch ? "" : "the end of ", brief(waited_for(party)));
}

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

std::string brief(const Offer& offer) {
  return cat(offer.operation, " over ", to_string(offer.axes), at(offer.where));
}

std::string describe(const Offer& offer) {
  std::string out = cat(offer.operation, " over ", to_string(offer.axes), ", ", type_of(offer));
  if (!offer.options.empty()) out += ", " + offer.options;
  return out + at(offer.where);
}

std::string Rendezvous::line(const Party& party, const Slot* mismatched) const {
  if (mismatched != nullptr) {
    const auto own = std::ranges::find(mismatched->members, party.index);
    if (own != mismatched->members.end()) {
      const auto rank = static_cast<std::size_t>(own - mismatched->members.begin());
      return "brings " + describe(mismatched->offers[rank]);
    }
  }
  switch (party.state) {
    case Party::State::kReturned:
      return "returned";
    case Party::State::kStopped:
      return "was stopped";
    case Party::State::kThrew: {
      const std::string what = what_of(party.error);
      return "threw: " + what.substr(0, what.find('\n'));
    }
    case Party::State::kRunning:
      if (!party.left.empty()) return cat("left ", party.left, " behind");
      if (!party.open.empty()) {
        return cat("computes, with ", describe(party.open.back()->offer()), " under way");
      }
      return "computes";
    case Party::State::kWaiting:
      break;
  }
  std::string out = cat("waits ", party.phase == Phase::kMatch ? "in " : "at the end of ",
                        describe(waited_for(party)), ", for ");
  int more = -1;
  for (std::size_t k = 0; k < party.slot->members.size(); ++k) {
    if (party.slot->came(party.phase, k)) continue;
    if (++more == 0) out += name(party.slot->members[k]);
  }
  return more > 0 ? cat(out, " and ", more, " more") : out;
}

std::string Rendezvous::message() const {
  std::string out = first_line_;
  for (const auto& each : parties_) out += cat("\n  ", name(each->index), ": ", each->line);
  return out;
}

// Names a device that differs from most others, or the higher rank of two.
std::string Rendezvous::disagreement(const Slot& slot) const {
  const std::vector<Offer>& offers = slot.offers;
  const auto agree = [&](std::size_t a, std::size_t b) {
    return difference(offers[a], offers[b]).empty();
  };
  std::size_t odd = 0;
  while (odd < offers.size() && agree(odd, 0)) ++odd;
  if (odd == offers.size()) return {};
  std::size_t usual = 0, most = 0;
  for (std::size_t a = 0; a < offers.size(); ++a) {
    if (a > 0 && agree(a, a - 1)) continue;
    std::size_t count = 0;
    for (std::size_t b = 0; b < offers.size(); ++b) count += agree(a, b) ? 1 : 0;
    if (count > most) usual = a, most = count;
  }
  if (usual != 0) odd = 0;
  const Offer& a = offers[odd];
  const Offer& b = offers[usual];
  return cat(name(slot.members[odd]), ": ", brief(a), " does not fit ", brief(b), " on ",
             name(slot.members[usual]), ": ", difference(a, b));
}

std::string Rendezvous::body_message(const Party& party, const std::string& what) const {
  const std::string subject = name(party.index);
  // Those of kref name the device themselves.
  return what.find(subject) < what.find('\n') ? what : cat(subject, ": ", what);
}

std::string Rendezvous::gone(const Party& waiting, Index device) const {
  return cat(name(device), ": returned, but ", name(waiting.index), " waits for it in ",
             waiting_place(waiting));
}

std::string Rendezvous::left_behind(const Party& party, const std::string& what) const {
  return cat(name(party.index), ": left ", what, " behind: its result was never taken");
}

// Whoever is late may wait for somebody who is: the one at the end of that chain does not wait.
std::string Rendezvous::too_late(const Party& party) const {
  const Party* waiting = &party;
  const Party* late = parties_[static_cast<std::size_t>(missing(party))].get();
  while (late->state == Party::State::kWaiting) {
    waiting = late;
    late = parties_[static_cast<std::size_t>(missing(*late))].get();
  }
  return cat(name(late->index), ": did not come to ", waiting_place(*waiting), " within ",
             time_limit_.count(), " ms; ", name(waiting->index), " waits there");
}

// Does `from` wait for `to`, directly or through others?
bool Rendezvous::reaches(Party& from, const Party& to) {
  std::vector<Party*> rest{&from};
  while (!rest.empty()) {
    Party& next = *rest.back();
    rest.pop_back();
    if (&next == &to) return true;
    if (next.state != Party::State::kWaiting || next.mark == marks_) continue;
    next.mark = marks_;
    for (std::size_t k = 0; k < next.slot->members.size(); ++k) {
      if (!next.slot->came(next.phase, k)) rest.push_back(&this->party(next.slot->members[k]));
    }
  }
  return false;
}

// Called when `party` begins to wait: if it now waits for itself, it closed the circle.
std::string Rendezvous::standstill(const Party& party) {
  ++marks_;
  for (std::size_t k = 0; k < party.slot->members.size(); ++k) {
    if (party.slot->came(party.phase, k)) continue;
    Party& other = this->party(party.slot->members[k]);
    if (other.state != Party::State::kWaiting || !reaches(other, party)) continue;
    return cat(name(party.index), ": ", waiting_place(party), " waits for ", name(other.index),
               ", which waits in ", waiting_place(other), ": neither can go on");
  }
  return {};
}

}  // namespace kref::detail
