#pragma once

// One rank of a process set, to which a test sends what it likes.

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "backend/host/host_backend.h"
#include "check.h"
#include "runtime/progress/process_set.h"
#include "runtime/requests.h"
#include "transport/inproc/fabric.h"

namespace hvd::test {

using Sizes = std::vector<int64_t>;

// Messages that a test puts there.
class ForgedControl : public Control {
 public:
  void Announce(const std::string&) override {}
  void Publish(const std::string&) override {}
  bool Take(Position neighbour, std::string* message) override {
    if (messages.empty() || (neighbour != kRoot && neighbour != kSender)) return false;
    *message = std::move(messages.front());
    messages.pop_front();
    return true;
  }
  void Progress(bool*) override {}
  Position corrupt() const override { return stream_is_corrupt ? kSender : Position(); }
  bool idle() const override { return true; }

  static constexpr Position kRoot{0};
  static constexpr Position kSender{2};  // announces
  std::deque<std::string> messages;
  bool stream_is_corrupt = false;
};

// One rank of a set, of ranks 3, 5 and 7 as a rule, with an allgather of 4 rows named "w" in
// flight.
class Victim {
 public:
  explicit Victim(int rank, OpKind kind = OpKind::kAllgather, const Members& members = {3, 5, 7})
      : rank_(rank), fabric_(16) {
    transport_ = fabric_.MakeTransport(0, GlobalRank(rank), waker_, false);
    ProcessSetOptions options;
    options.members = members;
    options.rank = GlobalRank(rank);
    options.sequencer.cache_capacity = 16;
    ProcessSetWires wires;
    auto control = std::make_unique<ForgedControl>();
    control_ = control.get();
    wires.topology = Topology::OneHost(options.members.size(), false);
    wires.control = std::move(control);
    const Position position = members.Find(GlobalRank(rank));
    wires.backends.push_back(MakeTransportBackend(transport_.get(), 0, options.members, position));
    set_ = std::make_unique<ProcessSet>(options, std::move(wires), waker_, &queue_, &counters_,
                                        nullptr);
    Entry entry;
    entry.request = RequestOf(kind, {4}, kind == OpKind::kAlltoall ? Shape{1, 2, 1} : Shape{});
    entry.buffers.push_back({reinterpret_cast<const std::byte*>(data_.data()), 16, nullptr, 0});
    auto handle = std::make_shared<Handle>(std::move(entry));
    ASSERT_OK(queue_.Push(handle));
    set_->Add(handle);
    handle_ = handle;
  }
  bool done() const { return handle_->done; }
  ~Victim() { transport_->Close(0); }

  Status Hear(const std::string& message) {
    control_->messages.push_back(message);
    return Tick();
  }
  Status HearCorruptStream() {
    control_->stream_is_corrupt = true;
    return Tick();
  }
  // An unnamed operation; a broadcast has a root that is no member, so no rank can run it.
  void Submit(OpKind kind) {
    Entry entry;
    entry.request = RequestOf(kind, {4});
    entry.request.name.clear();
    if (kind == OpKind::kBroadcast) entry.request.root = GlobalRank(4);
    entry.buffers.push_back({reinterpret_cast<const std::byte*>(data_.data()), 16, nullptr, 0});
    auto handle = std::make_shared<Handle>(std::move(entry));
    ASSERT_OK(queue_.Push(handle));
    set_->Add(handle);
  }
  void Join() {
    Entry entry;
    entry.request.kind = OpKind::kJoin;
    auto handle = std::make_shared<Handle>(std::move(entry));
    ASSERT_OK(queue_.Push(handle));
    set_->Add(handle);
  }
  std::optional<GlobalRank> culprit() const { return set_->culprit(); }

  // Rank `sender` says before the first alltoall what it sends to this one.
  Status HearCounts(int sender, const Sizes& numbers) {
    std::vector<std::byte> part(kCountBytes);
    std::memcpy(part.data(), numbers.data(), numbers.size() * sizeof(int64_t));
    const auto transport = fabric_.MakeTransport(0, GlobalRank(sender), waker_, false);
    Transfer transfer;
    transport->Send(GlobalRank(rank_), {0, 1, 0}, part.data(), part.size(), &transfer);
    bool moved = true;
    (void)transport->Progress(&moved);
    Status status;
    for (int i = 0; i < 20 && status.ok(); ++i) status = Tick();
    transport->Close(0);
    return status;
  }

 private:
  static constexpr size_t kCountBytes = 1024;  // of one part, among three ranks

  Status Tick() {
    bool moved = false;
    HVD_RETURN_IF_ERROR(set_->Tick(1000, &moved));
    return transport_->Progress(&moved);
  }

  const int rank_;
  inproc::Fabric fabric_;
  Waker waker_;
  std::unique_ptr<Transport> transport_;
  Queue queue_;
  Counters counters_;
  std::vector<float> data_ = std::vector<float>(4, 1.0f);
  HandlePtr handle_;
  ForgedControl* control_ = nullptr;
  std::unique_ptr<ProcessSet> set_;
};

}  // namespace hvd::test
