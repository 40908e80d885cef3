#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "base/event_sink.h"
#include "negotiate/message.h"
#include "negotiate/response_cache.h"
#include "runtime/operation/counters.h"
#include "runtime/operation/queue.h"

namespace hvd {

// An operation that all members are ready for, with what the sequencer said of it.
struct Decided {
  HandlePtr handle;
  negotiate::Decision decision;
};

// This rank's side of one set's negotiation: what it has announced and not yet heard of.
class Member {
 public:
  // The sequencer may give as many ids as there can be.
  Member(uint32_t set, Members members, Queue* queue, Counters* counters, EventSink* events)
      : set_(set),
        members_(std::move(members)),
        cache_(negotiate::ResponseCache::kMostIds),
        queue_(queue),
        counters_(counters),
        events_(events) {}

  void Add(const HandlePtr& handle);
  void Urge(const HandlePtr& handle);

  // What is to be sent now. False: nothing.
  bool TakeMessage(negotiate::AnnounceMessage* message);

  // Matches a response with what was announced. An error means that the stream is corrupt.
  Status Match(negotiate::Response response, std::vector<Decided>* decided);

 private:
  HandlePtr Claim(const negotiate::Decision& decision);
  void ForgetId(const Handle& handle);
  Status MatchOne(negotiate::Decision decision, std::vector<Decided>* decided);
  Status CheckNew(const negotiate::Request& request, uint64_t ordinal) const;
  Status CheckMeant(const negotiate::Decision& decision, const Handle& handle) const;
  Status TakePart(const negotiate::Decision& decision, HandlePtr* handle) const;

  uint32_t set_;
  Members members_;
  negotiate::ResponseCache cache_;
  Queue* queue_;
  Counters* counters_;
  EventSink* events_;

  negotiate::AnnounceMessage message_;  // collected since the last TakeMessage
  uint64_t announced_ = 0;
  uint64_t urgent_ = 0;
  uint64_t urgent_sent_ = 0;
  uint64_t responses_ = 0;
  std::vector<HandlePtr> by_id_;  // announced by cached id: no more than the cache has
  std::unordered_map<uint64_t, HandlePtr> unnamed_;  // by ordinal; operations in flight
  HandlePtr join_;                                   // this rank has joined until it completes
};

}  // namespace hvd
