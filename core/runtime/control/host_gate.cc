#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/control/gate.h"

namespace hvd {

namespace {

constexpr Position kFirst{0};  // of the host

// Twice the number of a gate, and one more for poison: a member's latest vote; and what all hosts
// have come to, which the first member of a host tells the others. With each goes what it carries,
// by the parity of the gate, for nobody is two gates ahead.
struct Ballot {
  alignas(64) Flag vote;
  alignas(64) Flag verdict;
  alignas(64) std::byte payload[2][Gate::kMostPayload];
  alignas(64) std::byte everybodys[2][Gate::kMostPayloads];  // one host after the other
};

// What both kinds of members have in common.
class HostGate : public Gate {
 public:
  HostGate(Window* window, SegmentId id, const Topology& topology, Position self)
      : window_(window),
        local_(topology.OnHost(topology.HostOf(self))),
        most_payload_(MostPayload(static_cast<size_t>(topology.size()))) {
    for (Position m(0); m.value() < window->size(); m = Next(m)) {
      ballots_.push_back(reinterpret_cast<Ballot*>(window->Span(m, id)));
    }
    if (most_payload_ > 0) Place(topology);
  }

  size_t most_payload() const override { return most_payload_; }
  void Expect(size_t payload_bytes) override { payload_bytes_ = payload_bytes; }
  const std::byte* PayloadOf(Position member) const override {
    return of(kFirst).everybodys[number_ % 2] + places_[member.index()] * payload_bytes_;
  }

  bool voted() const override { return voted_; }
  void Advance() override {
    ++number_;
    payload_bytes_ = 0;
    voted_ = poisoned_ = false;
  }
  uint64_t number() const override { return number_; }
  Position corrupt() const override { return corrupt_; }
  bool idle() const override { return true; }

 protected:
  Ballot& of(Position member) const { return *ballots_[member.index()]; }
  uint64_t passes() const { return 2 * number_; }
  uint64_t poisons() const { return 2 * number_ + 1; }

  std::byte* CarriedBy(Position member) const { return of(member).payload[number_ % 2]; }
  void Carry(const std::byte* payload) {
    if (payload_bytes_ > 0) std::memcpy(CarriedBy(window_->position()), payload, payload_bytes_);
  }

  Verdict Broken(Position member) {
    corrupt_ = local_[member.index()];
    return Verdict::kOpen;
  }

  Window* window_;
  const std::vector<Position> local_;  // in the set, by their place in the window
  const size_t most_payload_;
  std::vector<Ballot*> ballots_;
  std::vector<size_t> places_;  // by member: among the payloads of everybody
  uint64_t number_ = 1;
  size_t payload_bytes_ = 0;
  bool voted_ = false;
  bool poisoned_ = false;
  Position corrupt_;

 private:
  void Place(const Topology& topology) {
    places_.resize(static_cast<size_t>(topology.size()));
    size_t place = 0;
    for (int host = 0; host < topology.hosts(); ++host) {
      for (const Position member : topology.OnHost(host)) places_[member.index()] = place++;
    }
  }
};

class GateOfOther : public HostGate {
 public:
  using HostGate::HostGate;

  // The first member is left alone while it computes: when it votes it looks at the others' votes.
  void Vote(bool may_run, const std::byte* payload) override {
    voted_ = true;
    poisoned_ |= !may_run;
    Flag& mine = of(window_->position()).vote;
    if (!may_run) return window_->Post(mine, poisons(), kFirst);
    Carry(payload);
    window_->Post(mine, passes(), window_->position());
    if (Window::Try(of(kFirst).vote) >= passes()) window_->Post(mine, passes(), kFirst);
  }

  Verdict Look(bool* moved) override {
    if (poisoned_) return Verdict::kPoisoned;
    const uint64_t verdict = Window::Try(of(kFirst).verdict);
    if (verdict < passes()) return Verdict::kOpen;
    if (verdict == poisons()) {
      poisoned_ = *moved = true;
      return Verdict::kPoisoned;
    }
    // The gate behind this one may be poisoned already, without a vote of this member.
    const bool passed = voted_ && (verdict == passes() || verdict == poisons() + 2);
    return passed ? Verdict::kPassed : Broken(kFirst);
  }
};

class GateOfFirst : public HostGate {
 public:
  GateOfFirst(Window* window, SegmentId id, const Topology& topology, Position self,
              std::unique_ptr<Gate> hosts, std::vector<Position> firsts, std::vector<int> members)
      : HostGate(window, id, topology, self),
        hosts_(std::move(hosts)),
        firsts_(std::move(firsts)),
        members_(std::move(members)) {}

  void Expect(size_t payload_bytes) override {
    HostGate::Expect(payload_bytes);
    hosts_->Expect(payload_bytes);
  }

  void Vote(bool may_run, const std::byte* payload) override {
    voted_ = true;
    if (!may_run) return Poison();
    Carry(payload);
    window_->Post(of(kFirst).vote, passes(), kFirst);
  }

  Verdict Look(bool* moved) override {
    if (poisoned_) return Verdict::kPoisoned;
    if (Window::Try(of(kFirst).verdict) == passes()) return Verdict::kPassed;
    switch (OfHost()) {
      case Verdict::kPoisoned:
        return Poisoned(moved);
      case Verdict::kPassed:
        if (!hosts_->voted()) VoteForHost();
        break;
      case Verdict::kOpen:
        break;
    }
    const Verdict verdict = hosts_->Look(moved);
    if (verdict == Verdict::kPoisoned) return Poisoned(moved);
    if (verdict == Verdict::kPassed) Pass();
    return verdict;
  }

  void Advance() override {
    hosts_->Advance();
    first_open_ = Next(kFirst);
    HostGate::Advance();
  }

  // Other hosts may hear of a poisoned vote by way of this member.
  bool relays() const override { return window_->size() > 1 || hosts_->relays(); }
  Position corrupt() const override {
    const Position host = hosts_->corrupt();
    return host.known() ? firsts_[host.index()] : HostGate::corrupt();
  }
  bool idle() const override { return hosts_->idle(); }

 private:
  // Of the votes of this host. Poison counts wherever it is, so all that are not known to have
  // voted are looked at.
  Verdict OfHost() {
    bool all = voted_;
    for (Position m = first_open_; m.value() < window_->size(); m = Next(m)) {
      const uint64_t vote = Window::Try(of(m).vote);
      if (vote == poisons()) return Verdict::kPoisoned;
      // A member is at the next gate at most, and only once it has been told of this one.
      if (vote > poisons()) return Broken(m);
      if (vote < passes()) {
        all = false;
      } else if (m == first_open_) {
        first_open_ = Next(m);
      }
    }
    return all ? Verdict::kPassed : Verdict::kOpen;
  }

  // What this host's members have voted with, in the order of their local ranks.
  void VoteForHost() {
    carried_.clear();
    for (Position m(0); payload_bytes_ > 0 && m.value() < window_->size(); m = Next(m))
      carried_.insert(carried_.end(), CarriedBy(m), CarriedBy(m) + payload_bytes_);
    hosts_->Vote(true, carried_.data());
  }

  void Pass() {
    std::byte* to = of(kFirst).everybodys[number_ % 2];
    for (size_t host = 0; payload_bytes_ > 0 && host < members_.size(); ++host) {
      const size_t bytes = static_cast<size_t>(members_[host]) * payload_bytes_;
      std::memcpy(to, hosts_->PayloadOf(Position(static_cast<int>(host))), bytes);
      to += bytes;
    }
    window_->Post(of(kFirst).verdict, passes());
  }

  Verdict Poisoned(bool* moved) {
    *moved = true;
    Poison();
    return Verdict::kPoisoned;
  }

  void Poison() {
    poisoned_ = true;
    if (!hosts_->voted()) hosts_->Vote(false, nullptr);
    window_->Post(of(kFirst).verdict, poisons());
  }

  std::unique_ptr<Gate> hosts_;         // of the first members of all hosts
  const std::vector<Position> firsts_;  // by host
  const std::vector<int> members_;      // how many a host has
  std::vector<std::byte> carried_;
  Position first_open_ = Next(kFirst);  // the others before it have voted that the batch may run
};

}  // namespace

size_t HostGateBytes() { return sizeof(Ballot); }

Status MakeHostGate(Window* window, Transport* transport, uint32_t set, const Members& members,
                    const Topology& topology, std::unique_ptr<Gate>* gate) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(Ballot), &id));
  const Position self = members.Find(transport->rank());
  if (window->position() != kFirst) {
    *gate = std::make_unique<GateOfOther>(window, id, topology, self);
    return Status::Ok();
  }
  std::vector<Position> firsts;
  std::vector<int> ranks, sizes;
  for (int host = 0; host < topology.hosts(); ++host) {
    firsts.push_back(topology.OnHost(host).front());
    ranks.push_back(members[firsts.back()].value());
    sizes.push_back(static_cast<int>(topology.OnHost(host).size()));
  }
  auto hosts = MakeTransportGate(transport, set, Members(ranks), sizes);
  *gate = std::make_unique<GateOfFirst>(window, id, topology, self, std::move(hosts),
                                        std::move(firsts), std::move(sizes));
  return Status::Ok();
}

}  // namespace hvd
