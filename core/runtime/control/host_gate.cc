#include <utility>
#include <vector>

#include "runtime/control/gate.h"

namespace hvd {

namespace {

constexpr Position kFirst{0};  // of the host

// Twice the number of a gate, and one more for poison: a member's latest vote; and what all hosts
// have come to, which the first member of a host tells the others.
struct Ballot {
  alignas(64) Flag vote;
  alignas(64) Flag verdict;
};
static_assert(sizeof(Ballot) <= kWindowGateBytes);

// What both kinds of members have in common.
class HostGate : public Gate {
 public:
  HostGate(Window* window, SegmentId id, std::vector<Position> local)
      : window_(window), local_(std::move(local)) {
    for (Position m(0); m.value() < window->size(); m = Next(m)) {
      ballots_.push_back(reinterpret_cast<Ballot*>(window->Span(m, id)));
    }
  }

  bool voted() const override { return voted_; }
  void Advance() override {
    ++number_;
    voted_ = poisoned_ = false;
  }
  uint64_t number() const override { return number_; }
  Position corrupt() const override { return corrupt_; }
  bool idle() const override { return true; }

 protected:
  Ballot& of(Position member) const { return *ballots_[member.index()]; }
  uint64_t passes() const { return 2 * number_; }
  uint64_t poisons() const { return 2 * number_ + 1; }

  Verdict Broken(Position member) {
    corrupt_ = local_[member.index()];
    return Verdict::kOpen;
  }

  Window* window_;
  const std::vector<Position> local_;  // in the set, by their place in the window
  std::vector<Ballot*> ballots_;
  uint64_t number_ = 1;
  bool voted_ = false;
  bool poisoned_ = false;
  Position corrupt_;
};

class GateOfOther : public HostGate {
 public:
  using HostGate::HostGate;

  // The first member is left alone while it computes: when it votes it looks at the others' votes.
  void Vote(bool may_run) override {
    voted_ = true;
    poisoned_ |= !may_run;
    Flag& mine = of(window_->position()).vote;
    if (!may_run) return window_->Post(mine, poisons(), kFirst);
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
  GateOfFirst(Window* window, SegmentId id, std::vector<Position> local,
              std::unique_ptr<Gate> hosts, std::vector<Position> firsts)
      : HostGate(window, id, std::move(local)),
        hosts_(std::move(hosts)),
        firsts_(std::move(firsts)) {}

  void Vote(bool may_run) override {
    voted_ = true;
    if (!may_run) return Poison();
    window_->Post(of(kFirst).vote, passes(), kFirst);
  }

  Verdict Look(bool* moved) override {
    if (poisoned_) return Verdict::kPoisoned;
    if (Window::Try(of(kFirst).verdict) == passes()) return Verdict::kPassed;
    switch (OfHost()) {
      case Verdict::kPoisoned:
        return Poisoned(moved);
      case Verdict::kPassed:
        if (!hosts_->voted()) hosts_->Vote(true);
        break;
      case Verdict::kOpen:
        break;
    }
    const Verdict verdict = hosts_->Look(moved);
    if (verdict == Verdict::kPoisoned) return Poisoned(moved);
    if (verdict == Verdict::kPassed) window_->Post(of(kFirst).verdict, passes());
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

  Verdict Poisoned(bool* moved) {
    *moved = true;
    Poison();
    return Verdict::kPoisoned;
  }

  void Poison() {
    poisoned_ = true;
    if (!hosts_->voted()) hosts_->Vote(false);
    window_->Post(of(kFirst).verdict, poisons());
  }

  std::unique_ptr<Gate> hosts_;  // of the first members of all hosts
  const std::vector<Position> firsts_;
  Position first_open_ = Next(kFirst);  // the others before it have voted that the batch may run
};

}  // namespace

Status MakeHostGate(Window* window, Transport* transport, uint32_t set, const Members& members,
                    const Topology& topology, std::unique_ptr<Gate>* gate) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(Ballot), &id));
  const Position self = members.Find(transport->rank());
  std::vector<Position> local = topology.OnHost(topology.HostOf(self));
  if (window->position() != kFirst) {
    *gate = std::make_unique<GateOfOther>(window, id, std::move(local));
    return Status::Ok();
  }
  std::vector<Position> firsts;
  std::vector<int> ranks;
  for (int host = 0; host < topology.hosts(); ++host) {
    firsts.push_back(topology.OnHost(host).front());
    ranks.push_back(members[firsts.back()].value());
  }
  *gate = std::make_unique<GateOfFirst>(window, id, std::move(local),
                                        MakeTransportGate(transport, set, Members(ranks)),
                                        std::move(firsts));
  return Status::Ok();
}

}  // namespace hvd
