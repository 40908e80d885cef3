// Messages of a rank that means harm, or whose memory is corrupt, to a rank that sends and
// receives: taken within the memory of its receives and the bounds of what is kept, or refused by
// an error that names the sender.

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/peer/messages.h"
#include "target.h"

namespace hvd {
namespace {

using namespace fuzz;
using peer::Frame;
using peer::FrameKind;

constexpr size_t kInlineBytes = 1 << 10;
constexpr size_t kUnaskedBytes = 64 << 10;
constexpr size_t kSizes[] = {0, 1, 8, 1000, kInlineBytes, 5000, kUnaskedBytes, 70000};
constexpr size_t kMostSteps = 100;
constexpr int64_t kTags = 3;
constexpr size_t kBesidePayloads = 4 << 10;  // bytes that a step may take

size_t AnySize(Input* input) { return kSizes[input->Below(std::size(kSizes))]; }

class FromOneRank : public peer::Channel {
 public:
  size_t inline_bytes() const override { return kInlineBytes; }
  size_t unasked_bytes() const override { return kUnaskedBytes; }
  void Send(GlobalRank, const Frame& frame, const std::byte* inlined) override {
    REQUIRE(frame.inlined <= kInlineBytes);
    Touch(inlined, frame.inlined);
    if (Announces(frame.kind)) sent = frame.number;
  }
  void SendPayload(GlobalRank, uint64_t, const std::byte* data, size_t bytes,
                   Transfer* transfer) override {
    Touch(data, bytes);
    transfer->done = true;
  }
  void ReceivePayload(GlobalRank, uint64_t, std::byte* data, size_t bytes,
                      Transfer* transfer) override {
    arriving.push_back({data, bytes, transfer});
  }
  bool Take(GlobalRank, Frame* frame, const std::byte** inlined, bool* moved) override {
    static const std::byte payload[kInlineBytes] = {};
    if (frames.empty()) return false;
    *moved = true;
    *frame = frames.front();
    *inlined = payload;
    return frames.pop_front(), true;
  }
  void Progress(bool*) override {}
  bool idle() const override { return true; }
  const Status& broken() const override { return broken_; }

  void Arrive() {
    if (arriving.empty()) return;
    const Payload payload = arriving.front();
    arriving.pop_front();
    if (payload.bytes > 0) std::memset(payload.data, 7, payload.bytes);
    payload.transfer->bytes = payload.bytes;
    payload.transfer->done = true;
  }

  struct Payload {
    std::byte* data;
    size_t bytes;
    Transfer* transfer;
  };
  std::deque<Frame> frames;
  std::deque<Payload> arriving;
  uint64_t sent = 0;

 private:
  // What is sent must be memory that may be read.
  static void Touch(const std::byte* data, size_t bytes) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < bytes; ++i) sum = sum + static_cast<uint8_t>(data[i]);
  }
  const Status broken_;
};

class Rank {
 public:
  explicit Rank(Input* input) : input_(input) {
    auto channel = std::make_unique<FromOneRank>();
    channel_ = channel.get();
    peer::Channels channels;
    channels.links = std::move(channel);
    messages_ =
        std::make_unique<peer::Messages>(GlobalRank(0), 2, std::move(channels), &queue_, nullptr);
    Start({false, GlobalRank(1), kTags}, 0, 0);  // for ever: without it nobody listens
  }
  ~Rank() { messages_->Abandon(); }
  size_t submitted() const { return submitted_; }  // bytes

  bool Step() {
    switch (input_->Below(8)) {
      case 0:
      case 1:
        Submit();
        break;
      case 2:
        channel_->Arrive();
        break;
      case 3:
        if (input_->Below(8) == 0) messages_->Forget(1);
        break;
      default:
        channel_->frames.push_back(AnyFrame());
    }
    bool moved = false;
    const Status status = messages_->Progress(&moved);
    if (status.ok()) return true;
    REQUIRE_THAT(status.code() == Code::kAborted, status.message());
    REQUIRE_THAT(Contains(status.message(), "rank 1 has sent"), status.message());
    return false;
  }

 private:
  void Submit() {
    const bool sends = input_->Below(2) == 0;
    const int rank = static_cast<int>(input_->Below(3)) - (sends ? 0 : 1);
    const PeerOperation operation{sends, GlobalRank(std::min(rank, 1)), AnyTag()};
    const auto set = static_cast<uint32_t>(input_->Below(2));
    Start(operation, set, AnySize(input_));
  }

  void Start(const PeerOperation& operation, uint32_t set, size_t size) {
    Entry entry;
    entry.peer = operation;
    entry.process_set = set;
    std::vector<std::byte>& memory = memory_.emplace_back(size);
    submitted_ += size;
    const auto bytes = static_cast<int64_t>(size);
    entry.request.tensors.push_back({DataType::kUint8, {bytes}});
    entry.buffers.push_back(TensorBuffer::InPlace(memory.data(), bytes));
    const auto handle = std::make_shared<Handle>(std::move(entry));
    REQUIRE(Output::Allocate(DataType::kInt64, {1}, &handle->outputs.emplace_back()).ok());
    REQUIRE(queue_.Push(handle).ok());
    messages_->Add(handle);
  }

  int64_t AnyTag() { return static_cast<int64_t>(input_->Below(kTags)); }

  // Mostly one that could be.
  Frame AnyFrame() {
    Frame frame;
    const uint8_t how = input_->Byte();
    frame.kind = static_cast<FrameKind>(1 + input_->Below(peer::kFrameKinds));
    frame.set = static_cast<uint32_t>(input_->Below(2));
    frame.tag = input_->Below(4) == 0 ? kFirstTag - 1 : AnyTag();
    frame.bytes = (how & 1) != 0 ? AnySize(input_) : input_->Number();
    frame.number = (how & 2) != 0 ? received_ + 1 : input_->Number();
    if (!Announces(frame.kind) && (how & 4) != 0) frame.number = channel_->sent;
    if (frame.kind == FrameKind::kWhole && (how & 64) == 0) {
      frame.bytes = std::min<uint64_t>(frame.bytes, kInlineBytes);
      frame.inlined = static_cast<uint32_t>(frame.bytes);
    }
    if ((how & 8) == 0) frame.inlined = static_cast<uint32_t>(input_->Below(256) * 4);
    if ((how & 16) == 0) frame.matched = input_->Number();
    if ((how & 32) == 0) frame.freed = input_->Number();
    if ((how & 128) == 0) frame.notes = static_cast<uint32_t>(input_->Number());
    if (Announces(frame.kind)) received_ = frame.number;
    return frame;
  }

  Input* const input_;
  Queue queue_;
  std::deque<std::vector<std::byte>> memory_;
  FromOneRank* channel_ = nullptr;
  std::unique_ptr<peer::Messages> messages_;
  uint64_t received_ = 0;
  size_t submitted_ = 0;
};

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::fuzz::Memory::Restart();
  const size_t before = hvd::fuzz::Memory::Live();
  hvd::fuzz::Input input(data, size);
  hvd::Rank rank(&input);
  size_t steps = 0;
  while (steps++ < hvd::kMostSteps && !input.empty() && rank.Step()) {
  }
  // A message of this rank to itself may be kept as well.
  const size_t bound =
      2 * hvd::peer::kMostUnaskedBytes + rank.submitted() + steps * hvd::kBesidePayloads;
  REQUIRE(hvd::fuzz::Memory::Peak() - before < bound);
  return 0;
}
