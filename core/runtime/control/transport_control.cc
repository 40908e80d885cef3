#include "runtime/control/control.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "runtime/control/stream.h"

namespace hvd {

namespace {

constexpr size_t kFrameBytes = 64 << 10;
constexpr Position kSequencer(0);

// The stream to one peer: frames that are on their way keep their bytes here.
class Outgoing {
 public:
  void Send(Transport* transport, GlobalRank peer, uint32_t set, const std::string& stream) {
    for (size_t at = 0; at < stream.size(); at += kFrameBytes) {
      frames_.emplace_back();
      Frame& frame = frames_.back();
      frame.bytes = stream.substr(at, kFrameBytes);
      transport->Send(peer, {set, ++sent_, 0}, frame.bytes.data(), frame.bytes.size(),
                      &frame.transfer);
    }
  }

  bool Reap() {
    const size_t before = frames_.size();
    while (!frames_.empty() && frames_.front().transfer.done) frames_.pop_front();
    return frames_.size() != before;
  }

  bool idle() const { return frames_.empty(); }

 private:
  struct Frame {
    std::string bytes;
    Transfer transfer;
  };
  std::deque<Frame> frames_;  // a deque does not move its elements
  uint64_t sent_ = 0;
};

// The stream from one peer: one receive is always posted.
class Incoming {
 public:
  void Post(Transport* transport, GlobalRank peer, uint32_t set) {
    transfer_ = {};
    buffer_.resize(kFrameBytes);
    transport->Recv(peer, {set, ++received_, 0}, buffer_.data(), buffer_.size(), &transfer_);
  }

  bool Collect() {
    if (!transfer_.done) return false;
    std::memcpy(assembler_.Extend(transfer_.bytes), buffer_.data(), transfer_.bytes);
    return true;
  }

  MessageAssembler::Next Take(std::string* message) { return assembler_.Take(message); }

 private:
  std::vector<char> buffer_;
  Transfer transfer_;
  MessageAssembler assembler_;
  uint64_t received_ = 0;
};

class TransportControl : public Control {
 public:
  TransportControl(Transport* transport, uint32_t set, Members members)
      : transport_(transport),
        set_(set),
        members_(std::move(members)),
        out_(members_.ranks().size()),
        in_(members_.ranks().size()) {
    const bool sequences = members_.Find(transport->rank()) == kSequencer;
    first_ = sequences ? Next(kSequencer) : kSequencer;
    last_ = sequences ? Position(members_.size()) : Next(kSequencer);
    for (Position m = first_; m < last_; m = Next(m))
      in_[m.index()].Post(transport_, members_[m], set_);
  }

  void Announce(const std::string& message) override { SendAll(message); }
  void Publish(const std::string& message) override { SendAll(message); }
  bool TakeResponse(std::string* message) override { return Take(kSequencer, message); }
  bool TakeAnnouncement(Position member, std::string* message) override {
    return Take(member, message);
  }

  Position corrupt() const override { return corrupt_; }
  void Progress(bool* moved) override {
    for (Position m = first_; m < last_; m = Next(m)) {
      *moved |= out_[m.index()].Reap();
      if (!in_[m.index()].Collect()) continue;
      *moved = true;
      in_[m.index()].Post(transport_, members_[m], set_);
    }
  }

  bool idle() const override {
    return std::all_of(out_.begin(), out_.end(), [](const Outgoing& out) { return out.idle(); });
  }

 private:
  // To every peer of the star: the sequencer's peers are the members, a member's only peer is the
  // sequencer.
  void SendAll(const std::string& message) {
    std::string stream;
    AppendMessage(message, &stream);
    for (Position m = first_; m < last_; m = Next(m))
      out_[m.index()].Send(transport_, members_[m], set_, stream);
  }

  bool Take(Position member, std::string* message) {
    const MessageAssembler::Next next = in_[member.index()].Take(message);
    if (next == MessageAssembler::Next::kCorrupt) corrupt_ = member;
    return next == MessageAssembler::Next::kMessage;
  }

  Transport* transport_;
  uint32_t set_;
  Members members_;
  std::vector<Outgoing> out_;  // by position in the set
  std::vector<Incoming> in_;
  Position first_;  // peers of the star: positions [first_, last_)
  Position last_;
  Position corrupt_;
};

}  // namespace

std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set, Members members) {
  return std::make_unique<TransportControl>(transport, set, std::move(members));
}

}  // namespace hvd
