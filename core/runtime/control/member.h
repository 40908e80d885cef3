#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/event_sink.h"
#include "negotiate/epoch.h"
#include "negotiate/message.h"
#include "negotiate/response_cache.h"
#include "runtime/operation/counters.h"
#include "runtime/operation/queue.h"

namespace hvd {

// An operation that all members are ready for, with what was decided of it (see Decision).
struct Decided {
  HandlePtr handle;
  uint32_t id = negotiate::kNoId;
  std::vector<int64_t> sizes = {};
  std::string error = {};
  uint8_t notice = 0;
  bool partial = false;
};

using Epoch = negotiate::Epoch<HandlePtr>;

// This rank's side of one set's negotiation: what it has announced and not yet heard of.
class Member {
 public:
  // The sequencer may give as many ids as there can be.
  Member(uint32_t set, Members members, Position position, Queue* queue, Counters* counters,
         EventSink* events)
      : set_(set),
        members_(std::move(members)),
        position_(position),
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

  // From here on the set follows this schedule, with what this rank has announced and not heard of.
  // Its batches are numbered from the one behind `base` on.
  Status Follow(negotiate::Schedule schedule, uint64_t base);
  // Not null while it does.
  const Epoch* epoch() const { return epoch_ ? &*epoch_ : nullptr; }
  // The next batch of it, which all members are ready for.
  std::vector<Decided> TakeBatch();
  // Likewise its operations alone, behind others.
  void TakeBatch(std::vector<HandlePtr>* operations);
  // Whether this rank cannot follow it any more: it has submitted something else, or joined.
  bool departs() const { return departs_; }
  // Whether this rank's program waits for an operation.
  bool waits() const { return urged_ != nullptr && !urged_->decided; }
  // Announces whatever has not run.
  void Leave();
  // No id means anything any more; announces again what no response has named.
  void Forget();

  // What this rank has announced under this id, for messages.
  negotiate::Request RequestOf(uint32_t id) const { return cache_.At(id); }
  uint64_t epochs() const { return epochs_; }  // see AnnounceMessage

 private:
  void Announce(const HandlePtr& handle);
  void Say(uint32_t id, const Handle& handle);
  void Place(const HandlePtr& handle);
  std::optional<size_t> PlaceOf(const Handle& handle) const;
  uint32_t IdOf(const negotiate::Request& request) const;
  std::vector<HandlePtr> Undecided();
  void Restart();
  void AnnounceAgain();
  Status CheckSchedule(const negotiate::Schedule& schedule) const;
  HandlePtr Claim(const negotiate::Decision& decision);
  void ForgetId(const Handle& handle);
  Status MatchOne(negotiate::Decision decision, std::vector<Decided>* decided);
  Status MatchRun(const negotiate::Decision& run, std::vector<Decided>* decided);
  Status CheckNew(const negotiate::Request& request, uint64_t ordinal) const;
  Status CheckMeant(const negotiate::Decision& decision, const Handle& handle) const;
  Status TakePart(const negotiate::Decision& decision, HandlePtr* handle) const;

  uint32_t set_;
  Members members_;
  Position position_;
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

  uint64_t epochs_ = 0;
  std::optional<Epoch> epoch_;
  std::vector<negotiate::Request> requests_;  // by place of the schedule
  bool departs_ = false;
  HandlePtr urged_;  // what the program waits for, the latest
};

}  // namespace hvd
