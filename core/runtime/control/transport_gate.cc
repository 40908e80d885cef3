#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "runtime/control/gate.h"

namespace hvd {

namespace {

constexpr int kMostRounds = 31;
constexpr uint32_t kFirstChunk = 1;  // chunk 0 is the stream of control messages

// What travels for one gate. It stays until all of it has arrived: a peer's frames come also when
// the verdict is known without them.
struct Ballot {
  std::array<uint8_t, kMostRounds> sent;
  std::array<uint8_t, kMostRounds> heard;
  std::array<Transfer, kMostRounds> sending;
  std::array<Transfer, kMostRounds> receiving;
};

enum Word : uint8_t { kMayRun = 0, kPoison = 1 };

// In round k a member sends to the one 2^k places ahead what it has heard so far, so after the last
// round it has heard of everybody.
class TransportGate : public Gate {
 public:
  TransportGate(Transport* transport, uint32_t set, Members members)
      : transport_(transport),
        set_(set),
        members_(std::move(members)),
        position_(members_.Find(transport->rank())) {
    while ((1 << rounds_) < members_.size()) ++rounds_;
  }

  void Vote(bool may_run) override {
    Open();
    voted_ = true;
    poisoned_ |= !may_run;
    Pass();
  }
  bool voted() const override { return voted_; }

  Verdict Look(bool* moved) override {
    Open();
    Reap();
    Hear(moved);
    if (voted_) Pass();
    if (poisoned_) return Verdict::kPoisoned;
    return voted_ && heard_ == rounds_ ? Verdict::kPassed : Verdict::kOpen;
  }

  void Advance() override {
    under_way_.push_back(std::move(ballot_));
    ++number_;
    sent_ = heard_ = 0;
    voted_ = poisoned_ = false;
  }

  uint64_t number() const override { return number_; }
  // The others of at most three are all one or two places away.
  bool relays() const override { return members_.size() > 3; }
  Position corrupt() const override { return corrupt_; }

  bool idle() const override {
    const auto sent = [this](const Ballot& ballot, int rounds) {
      return std::all_of(ballot.sending.begin(), ballot.sending.begin() + rounds,
                         [](const Transfer& transfer) { return transfer.done; });
    };
    return (ballot_ == nullptr || sent(*ballot_, sent_)) &&
           std::all_of(under_way_.begin(), under_way_.end(),
                       [&](const auto& ballot) { return sent(*ballot, rounds_); });
  }

 private:
  Position At(int place) const { return Position((place + members_.size()) % members_.size()); }

  // Posts what will be received, so that no frame holds up what comes behind it on its link.
  void Open() {
    if (ballot_ != nullptr) return;
    if (free_.empty()) free_.push_back(std::make_unique<Ballot>());
    ballot_ = std::move(free_.back());
    free_.pop_back();
    *ballot_ = {};
    for (int k = 0; k < rounds_; ++k) {
      const Position peer = At(position_.value() - (1 << k));
      transport_->Recv(members_[peer], TagOf(k), &ballot_->heard[Index(k)], 1,
                       &ballot_->receiving[Index(k)]);
    }
  }

  void Hear(bool* moved) {
    for (int k = heard_; k < rounds_; ++k) {
      if (!ballot_->receiving[Index(k)].done) continue;
      const uint8_t word = ballot_->heard[Index(k)];
      if (ballot_->receiving[Index(k)].bytes != 1 || word > kPoison) {
        corrupt_ = At(position_.value() - (1 << k));
      }
      if (word == kPoison && !std::exchange(poisoned_, true)) *moved = true;
      if (k != heard_) continue;
      ++heard_;
      *moved = true;
    }
  }

  // Sends on what is known. Poison needs not wait for more.
  void Pass() {
    for (; sent_ < rounds_ && (poisoned_ || sent_ <= heard_); ++sent_) {
      uint8_t& word = ballot_->sent[Index(sent_)];
      word = poisoned_ ? kPoison : kMayRun;
      const Position peer = At(position_.value() + (1 << sent_));
      transport_->Send(members_[peer], TagOf(sent_), &word, 1, &ballot_->sending[Index(sent_)]);
    }
  }

  void Reap() {
    while (!under_way_.empty() && Complete(*under_way_.front())) {
      free_.push_back(std::move(under_way_.front()));
      under_way_.pop_front();
    }
  }

  bool Complete(const Ballot& ballot) const {
    for (int k = 0; k < rounds_; ++k) {
      if (!ballot.sending[Index(k)].done || !ballot.receiving[Index(k)].done) return false;
    }
    return true;
  }

  FrameTag TagOf(int round) const {
    return {set_, number_, kFirstChunk + static_cast<uint32_t>(round)};
  }
  static size_t Index(int round) { return static_cast<size_t>(round); }

  Transport* transport_;
  uint32_t set_;
  Members members_;
  Position position_;
  int rounds_ = 0;

  uint64_t number_ = 1;
  std::unique_ptr<Ballot> ballot_;  // of this gate, once it is looked at
  int sent_ = 0;                    // rounds
  int heard_ = 0;                   // likewise, one after the other
  bool voted_ = false;
  bool poisoned_ = false;
  Position corrupt_;
  std::deque<std::unique_ptr<Ballot>> under_way_;  // of earlier gates
  std::vector<std::unique_ptr<Ballot>> free_;
};

}  // namespace

std::unique_ptr<Gate> MakeTransportGate(Transport* transport, uint32_t set, Members members) {
  return std::make_unique<TransportGate>(transport, set, std::move(members));
}

}  // namespace hvd
