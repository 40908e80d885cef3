#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/control/gate.h"

namespace hvd {

namespace {

constexpr int kFewMembers = 8;  // tell each other directly: so few may all be linked
constexpr size_t kMostHops = 31;
constexpr uint32_t kFirstChunk = 1;  // chunk 0 is the stream of control messages

enum Word : uint8_t { kMayRun = 0, kPoison = 1 };

// A frame from each member to the one `distance` places ahead, which says what it has heard of
// itself and of those right behind it: `count` in all. It is sent once the first `after` hops have
// been heard. After the last hop everybody has heard of everybody.
struct Hop {
  int distance;
  int count;
  int after;
};

std::vector<Hop> HopsAmong(int members) {
  std::vector<Hop> hops;
  const bool few = members <= kFewMembers;
  for (int distance = 1; distance < members; distance = few ? distance + 1 : 2 * distance) {
    const int count = few ? 1 : std::min(distance, members - distance);
    hops.push_back({distance, count, few ? 0 : static_cast<int>(hops.size())});
  }
  return hops;
}

// What travels for one gate. It stays until all of it has arrived: a peer's frames come also when
// the verdict is known without them.
struct Ballot {
  std::array<uint8_t, kMostHops> sent;  // words: where nothing else says that the batch may run
  std::array<uint8_t, kMostHops> heard;
  std::array<Transfer, kMostHops> sending;
  std::array<Transfer, kMostHops> receiving;
  // The payloads of this member, of the one behind it, and so on. A frame is a stretch of them, or,
  // if it poisons or there are none, a word.
  std::vector<std::byte> payloads;
};

class TransportGate : public Gate {
 public:
  TransportGate(Transport* transport, uint32_t set, Members members,
                const std::vector<int>& weights)
      : transport_(transport),
        set_(set),
        members_(std::move(members)),
        position_(members_.Find(transport->rank())),
        hops_(HopsAmong(members_.size())) {
    const int all = std::accumulate(weights.begin(), weights.end(), 0);
    const auto total = static_cast<size_t>(weights.empty() ? members_.size() : all);
    most_payload_ = MostPayload(total);
    if (most_payload_ > 0) Weigh(weights);
  }

  size_t most_payload() const override { return most_payload_; }
  void Expect(size_t payload_bytes) override { payload_bytes_ = payload_bytes; }

  void Vote(bool may_run, const std::byte* payload) override {
    Open();
    voted_ = true;
    poisoned_ |= !may_run;
    if (may_run && payload_bytes_ > 0) std::memcpy(ballot_->payloads.data(), payload, BytesTo(1));
    Pass();
  }
  bool voted() const override { return voted_; }

  Verdict Look(bool* moved) override {
    Open();
    Reap();
    Hear(moved);
    if (corrupt_.known()) return Verdict::kOpen;
    if (voted_) Pass();
    if (poisoned_) return Verdict::kPoisoned;
    return voted_ && heard_ == hops_.size() ? Verdict::kPassed : Verdict::kOpen;
  }

  const std::byte* PayloadOf(Position member) const override {
    const int behind = position_.value() - member.value();
    return ballot_->payloads.data() + BytesTo(behind < 0 ? behind + members_.size() : behind);
  }

  void Advance() override {
    under_way_.push_back(std::move(ballot_));
    ++number_;
    payload_bytes_ = sent_ = heard_ = 0;
    voted_ = poisoned_ = false;
  }

  uint64_t number() const override { return number_; }
  bool relays() const override { return members_.size() > kFewMembers; }
  Position corrupt() const override { return corrupt_; }

  bool idle() const override {
    const auto sent = [](const Ballot& ballot, size_t hops) {
      return std::all_of(ballot.sending.begin(), ballot.sending.begin() + hops,
                         [](const Transfer& transfer) { return transfer.done; });
    };
    return (ballot_ == nullptr || sent(*ballot_, sent_)) &&
           std::all_of(under_way_.begin(), under_way_.end(),
                       [&](const auto& ballot) { return sent(*ballot, hops_.size()); });
  }

 private:
  GlobalRank At(int ahead) const { return members_[PositionAt(ahead)]; }
  Position PositionAt(int ahead) const {
    return Position((position_.value() + ahead + members_.size()) % members_.size());
  }

  void Weigh(const std::vector<int>& weights) {
    before_.push_back(0);
    for (int behind = 0; behind < members_.size(); ++behind) {
      const int weight = weights.empty() ? 1 : weights[PositionAt(-behind).index()];
      before_.push_back(before_.back() + static_cast<size_t>(weight));
    }
  }

  // Of the payloads of this member and of those behind it, `count` in all.
  size_t BytesTo(int count) const {
    return payload_bytes_ == 0 ? 0 : before_[static_cast<size_t>(count)] * payload_bytes_;
  }

  // Posts what will be received, so that no frame holds up what comes behind it on its link.
  void Open() {
    if (ballot_ != nullptr) return;
    if (free_.empty()) free_.push_back(std::make_unique<Ballot>());
    ballot_ = std::move(free_.back());
    free_.pop_back();
    ballot_->sending = ballot_->receiving = {};
    ballot_->payloads.resize(BytesTo(members_.size()));
    for (size_t h = 0; h < hops_.size(); ++h) {
      std::byte* to = reinterpret_cast<std::byte*>(&ballot_->heard[h]);
      if (payload_bytes_ > 0) to = ballot_->payloads.data() + BytesTo(hops_[h].distance);
      transport_->Recv(At(-hops_[h].distance), TagOf(h), to, Expected(hops_[h]),
                       &ballot_->receiving[h]);
    }
  }

  size_t Expected(const Hop& hop) const {
    return payload_bytes_ == 0 ? 1 : BytesTo(hop.distance + hop.count) - BytesTo(hop.distance);
  }

  void Hear(bool* moved) {
    for (size_t h = heard_; h < hops_.size(); ++h) {
      if (!ballot_->receiving[h].done) continue;
      if (Poisons(h) && !std::exchange(poisoned_, true)) *moved = true;
      if (h != heard_) continue;
      ++heard_;
      *moved = true;
    }
  }

  bool Poisons(size_t h) {
    const size_t bytes = ballot_->receiving[h].bytes;
    if (payload_bytes_ > 0 && bytes == Expected(hops_[h])) return false;
    const std::byte* payloads = ballot_->payloads.data() + BytesTo(hops_[h].distance);
    const uint8_t word =
        payload_bytes_ > 0 ? std::to_integer<uint8_t>(*payloads) : ballot_->heard[h];
    const bool passes = payload_bytes_ == 0 && word == kMayRun;
    if (bytes != 1 || (word != kPoison && !passes)) corrupt_ = PositionAt(-hops_[h].distance);
    return word == kPoison;
  }

  // Sends on what is known. Poison needs not wait for more.
  void Pass() {
    for (; sent_ < hops_.size(); ++sent_) {
      const Hop& hop = hops_[sent_];
      if (!poisoned_ && static_cast<size_t>(hop.after) > heard_) return;
      uint8_t& word = ballot_->sent[sent_];
      word = poisoned_ ? kPoison : kMayRun;
      const bool carries = payload_bytes_ > 0 && !poisoned_;
      const void* data = carries ? static_cast<const void*>(ballot_->payloads.data()) : &word;
      transport_->Send(At(hop.distance), TagOf(sent_), data, carries ? BytesTo(hop.count) : 1,
                       &ballot_->sending[sent_]);
    }
  }

  void Reap() {
    while (!under_way_.empty() && Complete(*under_way_.front())) {
      free_.push_back(std::move(under_way_.front()));
      under_way_.pop_front();
    }
  }

  bool Complete(const Ballot& ballot) const {
    for (size_t h = 0; h < hops_.size(); ++h) {
      if (!ballot.sending[h].done || !ballot.receiving[h].done) return false;
    }
    return true;
  }

  FrameTag TagOf(size_t hop) const {
    return {set_, number_, kFirstChunk + static_cast<uint32_t>(hop)};
  }

  Transport* transport_;
  uint32_t set_;
  Members members_;
  Position position_;
  const std::vector<Hop> hops_;
  size_t most_payload_ = 0;
  std::vector<size_t> before_;  // what this member and those behind it weigh, by how many they are

  uint64_t number_ = 1;
  size_t payload_bytes_ = 0;
  std::unique_ptr<Ballot> ballot_;  // of this gate, once it is looked at
  size_t sent_ = 0;                 // hops
  size_t heard_ = 0;                // likewise, one after the other
  bool voted_ = false;
  bool poisoned_ = false;
  Position corrupt_;
  std::deque<std::unique_ptr<Ballot>> under_way_;  // of earlier gates
  std::vector<std::unique_ptr<Ballot>> free_;
};

}  // namespace

std::unique_ptr<Gate> MakeTransportGate(Transport* transport, uint32_t set, Members members,
                                        std::vector<int> weights) {
  return std::make_unique<TransportGate>(transport, set, std::move(members), weights);
}

}  // namespace hvd
