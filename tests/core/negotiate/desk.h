#pragma once

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "negotiate/coordinator.h"
#include "requests.h"

namespace hvd::negotiate {

// The root of a star of ranks 0 .. n-1 (or given ones), announced to by hand.
struct Desk {
  explicit Desk(int ranks, SequencerOptions options = {})
      : root(WithRanks(ranks, std::move(options))) {}

  // The times are the desk's own: tests must not depend on how the defaults are tuned.
  static SequencerOptions WithRanks(int ranks, SequencerOptions options) {
    options.silence = 300;
    options.urgent_silence = 30;
    options.age = 2000;
    if (options.members.size() == 0) options.members = Members::Everybody(ranks);
    return options;
  }

  Status Say(int member, std::vector<Announcement> announcements, uint64_t urgent = 0,
             Micros now = 0) {
    return root.Announce(static_cast<size_t>(member), Message(std::move(announcements), urgent),
                         now);
  }

  Status Join(int member, std::vector<Announcement> announcements = {}, Micros now = 0) {
    AnnounceMessage message = Message(std::move(announcements));
    message.joins = true;
    return root.Announce(static_cast<size_t>(member), std::move(message), now);
  }

  // What is published by `now`; by default long after everything. Without runs.
  std::vector<Response> Take(Micros now = 1 << 30) {
    std::vector<Response> responses;
    while (auto response = root.Next(now)) {
      response->decisions = EachOf(*response);
      responses.push_back(std::move(*response));
    }
    return responses;
  }

  // The only decision of the only response; an odd one otherwise.
  Decision TakeOne(Micros now = 1 << 30) {
    const std::vector<Response> responses = Take(now);
    if (responses.size() == 1 && responses[0].decisions.size() == 1)
      return responses[0].decisions[0];
    Decision none;
    none.error = std::to_string(responses.size()) + " responses instead of one with one decision";
    return none;
  }

  Coordinator root;
};

}  // namespace hvd::negotiate
