// Responses of a sequencer that means harm, or whose memory is corrupt, on a rank with operations
// in flight, or one that has joined: carried out, or refused by an error that names the sequencer's
// rank. What is run of them touches no memory but the operations' own (the sanitizers watch).

#include <cstring>
#include <deque>
#include <memory>

#include "backend/host/host_backend.h"
#include "random_messages.h"
#include "runtime/operation/entry.h"
#include "runtime/progress/process_set.h"
#include "target.h"
#include "utf8.h"

namespace hvd {
namespace {

using namespace fuzz;
using negotiate::Decision;
using negotiate::Request;
using negotiate::Response;

constexpr int64_t kMostBytes =
    1 << 16;  // of what a response asks for; more is a matter of memory only
constexpr int kMembers = 3;

// Takes everything and brings nothing: no operation of others gets any further.
class SilentTransport : public Transport {
 public:
  GlobalRank rank() const override { return GlobalRank(5); }
  int size() const override { return 8; }
  void Send(GlobalRank, const FrameTag&, const void* data, size_t bytes,
            Transfer* transfer) override {
    // What is sent must be memory that may be read.
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < bytes; ++i) sum = sum + static_cast<const uint8_t*>(data)[i];
    transfer->done = true;
  }
  void Recv(GlobalRank, const FrameTag&, void*, size_t, Transfer*) override {}
  void Forget(uint32_t) override {}
  Status Progress(bool* moved) override { return *moved = false, Status::Ok(); }
  GlobalRank lost_peer() const override { return {}; }
  GlobalRank TakeEnded() override { return {}; }
  int poll_fd() const override { return -1; }
  void Close(int64_t) override {}
};

class Messages : public Control {
 public:
  void Announce(const std::string&) override {}
  void Publish(const std::string&) override {}
  bool Take(Position, std::string* message) override {
    if (waiting.empty()) return false;
    *message = std::move(waiting.front());
    return waiting.pop_front(), true;
  }
  void Progress(bool*) override {}
  Position corrupt() const override { return {}; }
  bool idle() const override { return true; }

  std::deque<std::string> waiting;
};

class Rank {
 public:
  explicit Rank(Input* input) : input_(input) {
    ProcessSetOptions options;
    options.members = {3, 5, 7};
    options.rank = GlobalRank(5);
    options.sequencer.cache_capacity = 16;
    ProcessSetWires wires;
    auto control = std::make_unique<Messages>();
    control_ = control.get();
    wires.topology = Topology::OneHost(options.members.size(), false);
    wires.control = std::move(control);
    wires.backends.push_back(MakeTransportBackend(&transport_, 0, options.members, Position(1)));
    set_ = std::make_unique<ProcessSet>(options, std::move(wires), waker_, &queue_, &counters_,
                                        nullptr);
  }

  bool Step() {
    const uint8_t what = input_->Byte();
    if ((what & 3) == 0) return Submit(), true;
    return Hear(what);
  }

 private:
  static bool IsSmall(const Request& request) {
    int64_t all = 0;
    for (const negotiate::TensorMeta& tensor : request.tensors) {
      const int64_t bytes = negotiate::BytesOf(tensor);
      if (bytes < 0 || bytes > kMostBytes) return false;
      all += bytes;
    }
    return all <= kMostBytes;
  }

  void Submit() {
    Entry entry;
    entry.request = AnyRequest(input_);
    Request& request = entry.request;
    if (input_->Below(8) == 0) {
      request = {};
      request.kind = OpKind::kJoin;
    }
    if (!IsSmall(request)) return;
    if (request.kind == OpKind::kAlltoall) {
      request.splits = {static_cast<int64_t>(input_->Below(4)),
                        static_cast<int64_t>(input_->Below(4)), 0};
    }
    const auto memory = std::make_shared<std::vector<std::vector<std::byte>>>();
    for (const negotiate::TensorMeta& tensor : request.tensors) {
      const int64_t bytes = negotiate::BytesOf(tensor);
      std::vector<std::byte>& own = memory->emplace_back(static_cast<size_t>(bytes));
      entry.buffers.push_back({own.data(), bytes, nullptr, 0});
    }
    if (!CheckEntry(entry, kMembers).ok()) return;
    memory_.push_back(memory);
    const auto handle = std::make_shared<Handle>(std::move(entry));
    if (!queue_.Push(handle).ok()) return;
    submitted_.push_back(handle);
    set_->Add(handle);
  }

  bool Hear(uint8_t what) {
    Policy policy{128 << 20, -1};
    if ((what & 4) != 0) policy = {input_->Signed(), input_->Signed()};
    std::string bytes;
    if ((what & 3) == 1 || (what & 3) == 2) {
      Response response = (what & 3) == 1 ? AnyResponse(input_) : Fitting();
      if ((what & 8) == 0) response.number = number_ + 1;
      response.policy = policy;
      negotiate::Encode(response, &bytes);
    } else {
      bytes = input_->Text(300);
    }
    if (!IsAffordable(bytes)) return true;
    ++number_;
    control_->waiting.push_back(bytes);
    return Tick();
  }

  // A response about what this rank has in flight, or has joined.
  Response Fitting() {
    Response response;
    response.number = number_ + 1;
    Decision& decision = response.decisions.emplace_back();
    if (!submitted_.empty()) {
      const HandlePtr& handle = submitted_[input_->Below(submitted_.size())];
      decision.ordinal = handle->ordinal;
      if (handle->ordinal == 0) decision.name = handle->entry.request.name;
      const Request& request = handle->entry.request;
      const size_t own = request.kind == OpKind::kAllgather ? request.tensors.size() * kMembers : 0;
      for (size_t i = 0; i < own; ++i)
        decision.sizes.push_back(static_cast<int64_t>(input_->Number() >> 1));
    }
    if (decision.ordinal == 0 && decision.name.empty()) decision.name = "w";
    decision.partial = input_->Below(2) != 0;
    if (decision.partial) decision.request = AnyRequest(input_);
    if (input_->Below(3) == 0) decision.id = static_cast<uint32_t>(input_->Below(3));
    if (input_->Below(8) == 0) response.last_joined = GlobalRank(3);
    return response;
  }

  static bool IsAffordable(const std::string& bytes) {
    Response response;
    if (!negotiate::Decode(bytes, &response).ok()) return true;
    for (const Decision& decision : response.decisions) {
      if (decision.request && !IsSmall(*decision.request)) return false;
    }
    return true;
  }

  bool Tick() {
    bool moved = true;
    Status status;
    for (int ticks = 0; moved && status.ok() && ticks < 50; ++ticks) {
      moved = false;
      status = set_->Tick(1000, &moved);
    }
    if (status.ok()) return true;
    if (status.code() == Code::kUnavailable) return false;  // no memory for what the others send
    REQUIRE_THAT(status.code() == Code::kAborted, status.message());
    REQUIRE_THAT(Contains(status.message(), "rank 3 sent") && set_->culprit() == GlobalRank(3),
                 status.message());
    REQUIRE_THAT(IsHarmless(status.message()) && status.message().size() < 2048, status.message());
    return false;
  }

  Input* input_;
  SilentTransport transport_;
  Waker waker_;
  Queue queue_;
  Counters counters_;
  std::vector<std::shared_ptr<std::vector<std::vector<std::byte>>>> memory_;
  std::vector<HandlePtr> submitted_;
  Messages* control_ = nullptr;
  std::unique_ptr<ProcessSet> set_;
  uint64_t number_ = 0;
};

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::fuzz::Input input(data, size);
  hvd::Rank rank(&input);
  for (int steps = 0; steps < 12 && !input.empty() && rank.Step(); ++steps) {
  }
  return 0;
}
