#include "runtime/control_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "runtime/message_stream.h"

namespace hvd {

namespace {

constexpr size_t kFrameBytes = 64 << 10;

// The stream to one peer: frames that are on their way keep their bytes here.
class Outgoing {
 public:
  void Send(Transport* transport, int peer, uint32_t set, const std::string& stream) {
    for (size_t at = 0; at < stream.size(); at += kFrameBytes) {
      frames_.emplace_back();
      Frame& frame = frames_.back();
      frame.bytes = stream.substr(at, kFrameBytes);
      transport->Send(peer, {set, ++sent_, 0}, frame.bytes.data(), frame.bytes.size(), &frame.transfer);
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
  void Post(Transport* transport, int peer, uint32_t set) {
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
  TransportControl(Transport* transport, uint32_t set, std::vector<int> members)
      : transport_(transport),
        set_(set),
        members_(std::move(members)),
        out_(members_.size()),
        in_(members_.size()) {
    const auto me = std::find(members_.begin(), members_.end(), transport->rank()) - members_.begin();
    first_ = me == 0 ? 1 : 0;
    last_ = me == 0 ? static_cast<int>(members_.size()) : 1;
    for (int m = first_; m < last_; ++m) in_[m].Post(transport_, members_[m], set_);
  }

  void Announce(const std::string& message) override { SendAll(message); }
  void Publish(const std::string& message) override { SendAll(message); }
  bool TakeResponse(std::string* message) override { return Take(0, message); }
  bool TakeAnnouncement(int member, std::string* message) override { return Take(member, message); }

  int corrupt() const override { return corrupt_; }
  void Progress(bool* moved) override {
    for (int m = first_; m < last_; ++m) {
      *moved |= out_[m].Reap();
      if (!in_[m].Collect()) continue;
      *moved = true;
      in_[m].Post(transport_, members_[m], set_);
    }
  }

  bool idle() const override {
    return std::all_of(out_.begin(), out_.end(), [](const Outgoing& out) { return out.idle(); });
  }

 private:
  // To every peer of the star: the sequencer's peers are the members, a member's only peer is the sequencer.
  void SendAll(const std::string& message) {
    std::string stream;
    AppendMessage(message, &stream);
    for (int m = first_; m < last_; ++m) out_[m].Send(transport_, members_[m], set_, stream);
  }

  bool Take(int member, std::string* message) {
    const MessageAssembler::Next next = in_[member].Take(message);
    if (next == MessageAssembler::Next::kCorrupt) corrupt_ = member;
    return next == MessageAssembler::Next::kMessage;
  }

  Transport* transport_;
  uint32_t set_;
  std::vector<int> members_;
  std::vector<Outgoing> out_;  // by position in the set
  std::vector<Incoming> in_;
  int first_;  // peers of the star: positions [first_, last_)
  int last_;
  int corrupt_ = -1;
};

}  // namespace

std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set, std::vector<int> members) {
  return std::make_unique<TransportControl>(transport, set, std::move(members));
}

}  // namespace hvd
