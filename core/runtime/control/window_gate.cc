#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "runtime/control/gate.h"

namespace hvd {

namespace {

// A member's latest vote: twice the number of its gate, and one more if it poisons it. Beside it
// when it voted, on the clock that the members of a host share, and what the vote carries: by the
// parity of the gate, for nobody is two gates ahead.
struct Ballot {
  alignas(64) Flag vote;
  std::atomic<int64_t> voted_us[2];
  alignas(64) std::byte payload[2][Gate::kMostPayload];
};

class WindowGate : public Gate {
 public:
  WindowGate(Window* window, SegmentId id) : window_(window) {
    for (Position m(0); m.value() < window->size(); m = Next(m)) {
      ballots_.push_back(reinterpret_cast<Ballot*>(window->Span(m, id)));
    }
  }

  size_t most_payload() const override { return MostPayload(ballots_.size()); }
  void Expect(size_t payload_bytes) override { payload_bytes_ = payload_bytes; }

  // Whoever has voted waits for this vote, and looks at the others' votes before it sleeps. A
  // member that has not is left alone, unless the batch will never run.
  void Vote(bool may_run, const std::byte* payload) override {
    Ballot& ballot = *ballots_[window_->position().index()];
    if (may_run && payload_bytes_ > 0)
      std::memcpy(ballot.payload[number_ % 2], payload, payload_bytes_);
    Flag& mine = ballot.vote;
    const uint64_t vote = 2 * number_ + (may_run ? 0 : 1);
    ballot.voted_us[number_ % 2].store(NowMicros(), std::memory_order_relaxed);
    voted_ = true;
    poisoned_ |= !may_run;
    if (!may_run) return window_->Post(mine, vote);
    window_->Post(mine, vote, window_->position());
    for (Position m(0); m.value() < window_->size(); m = Next(m)) {
      if (m != window_->position() && VoteOf(m) >= 2 * number_) window_->Post(mine, vote, m);
    }
  }
  bool voted() const override { return voted_; }

  Verdict Look(bool* moved) override {
    if (poisoned_) return Verdict::kPoisoned;
    // Poison counts wherever it is, so all that are not known to have voted are looked at.
    bool all = voted_;
    for (Position m = first_open_; m.value() < window_->size(); m = Next(m)) {
      const uint64_t vote = VoteOf(m);
      if (!Possible(vote)) return Broken(m);
      if (vote == 2 * number_ + 1) {
        poisoned_ = *moved = true;
        return Verdict::kPoisoned;
      }
      if (vote < 2 * number_) {
        all = false;
      } else if (m == first_open_) {
        first_open_ = Next(m);
      }
    }
    return all ? Verdict::kPassed : Verdict::kOpen;
  }

  const std::byte* PayloadOf(Position member) const override {
    return ballots_[member.index()]->payload[number_ % 2];
  }

  void Advance() override {
    ++number_;
    payload_bytes_ = 0;
    first_open_ = Position(0);
    voted_ = poisoned_ = false;
  }

  uint64_t number() const override { return number_; }

  Last last() const override {
    Last last;
    for (Position m(0); m.value() < window_->size(); m = Next(m)) {
      const int64_t voted = TimeOf(m);
      if (!last.member.known() || voted > last.voted_us) {
        last = {m, std::max(last.since_us, last.voted_us), voted};
      } else {
        last.since_us = std::max(last.since_us, voted);
      }
    }
    return last;
  }

  Position corrupt() const override { return corrupt_; }
  bool idle() const override { return true; }

 private:
  uint64_t VoteOf(Position member) const { return Window::Try(ballots_[member.index()]->vote); }

  int64_t TimeOf(Position member) const {
    return ballots_[member.index()]->voted_us[number_ % 2].load(std::memory_order_relaxed);
  }

  // A member is at the next gate at most, and only if this one has voted, that it may run.
  bool Possible(uint64_t vote) const { return vote / 2 <= number_ + (voted_ ? 1 : 0); }

  Verdict Broken(Position member) {
    corrupt_ = member;
    return Verdict::kOpen;
  }

  Window* window_;
  std::vector<Ballot*> ballots_;
  uint64_t number_ = 1;
  size_t payload_bytes_ = 0;
  Position first_open_{0};  // those before it have voted that the batch may run
  bool voted_ = false;
  bool poisoned_ = false;
  Position corrupt_;
};

}  // namespace

size_t WindowGateBytes() { return sizeof(Ballot); }

Status MakeWindowGate(Window* window, std::unique_ptr<Gate>* gate) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(Ballot), &id));
  *gate = std::make_unique<WindowGate>(window, id);
  return Status::Ok();
}

}  // namespace hvd
