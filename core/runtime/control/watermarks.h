#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "base/topology.h"
#include "negotiate/marks.h"
#include "runtime/control/gossip.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

// This member's mark and those of all others (marks.h): through flags in shared memory, and between
// hosts over links. On one host every member reads all flags. With several hosts the first member
// of each reads those of its host, tells them the other hosts, and publishes what it hears. A
// member that is not ready is woken by nobody's mark but a last word: it computes. One that has
// nothing in flight hears not even that, unless others depend on it (relays). Never waits.
class Watermarks {
 public:
  // What it takes of a window.
  static size_t WindowBytes(bool several_hosts);
  // `window`: null over links alone. `transport`: null on one host.
  static Status Make(Window* window, Transport* transport, uint32_t set, const Members& members,
                     const Topology& topology, Position self,
                     std::unique_ptr<Watermarks>* watermarks);
  ~Watermarks();

  // How large a member's payload may be, a multiple of negotiate::kPayloadUnit; equal on every
  // member.
  size_t most_payload() const { return negotiate::MostPayload(members_); }

  // A schedule begins, whose batches have so large payloads, or is left when all up to this one
  // have run.
  void Begin(std::vector<size_t> payloads);
  void Leave(uint64_t passed);
  const negotiate::Batches& batches() const { return batches_; }

  // Where this member's payload of a batch goes before it publishes that it is ready for it.
  std::byte* Room(uint64_t batch);
  // This member is ready for all batches up to this one.
  void Publish(uint64_t ready, int64_t now_us);
  // It says its last word.
  void End();
  const negotiate::Marks& own() const { return own_; }

  // Hears of the others. Whoever hears somebody's last word says its own.
  void Look(bool* moved);
  const negotiate::Marks& all() const { return all_; }
  // What a member has brought for the latest batch that all are ready for, before this one
  // publishes more.
  const std::byte* PayloadOf(Position member);

  // Whether marks reach some members by way of others: then these have to look now and then, also
  // while they have nothing to publish.
  bool relays() const { return gossip_ && (flags_.size() > 1 || gossip_->relays()); }

  // Who was the last to publish, and since when the others had; nobody where members do not share a
  // clock.
  struct Last {
    Position member;
    int64_t since_us = 0;
    int64_t published_us = 0;
  };
  Last last() const;

  // The member whose marks cannot be right; nobody while all is well.
  Position corrupt() const;
  bool idle() const { return gossip_ == nullptr || gossip_->idle(); }  // nothing waits to be sent

 private:
  struct Flags;

  Watermarks(Window* window, const Topology& topology, Position self);
  void Post(Position reader);
  void Read();
  negotiate::Marks ReadHost();
  negotiate::Marks ReadFirst();
  negotiate::Marks MarkOf(size_t place);
  negotiate::Marks Understood(uint64_t word, uint64_t most, Position writer);
  std::byte* Place(uint64_t batch);
  void BringPayloads(uint64_t batch);
  void PublishAll();

  Window* window_;
  // The members by host, in each by their place in the window; over links alone one by one.
  const std::vector<std::vector<Position>> hosts_;
  const std::vector<Position>* const local_;  // the own host among them
  const Position place_;                      // of this one in the window
  const size_t members_;
  std::vector<size_t> places_;  // by member: among the payloads of all, from the own host backwards
  std::vector<Flags*> flags_;   // by place in the window; none over links alone
  std::vector<std::byte> payloads_;  // as in Flags, over links alone
  std::unique_ptr<Gossip> gossip_;   // among hosts, on the first member of each

  negotiate::Batches batches_;
  bool follows_ = false;
  negotiate::Marks own_;
  negotiate::Marks told_;  // of this host, to the others
  negotiate::Marks all_;
  Position corrupt_;
};

}  // namespace hvd
