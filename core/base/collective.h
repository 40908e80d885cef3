#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "base/types.h"

namespace hvd {

// One tensor's part in a collective. In place when input == output.
struct Piece {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t bytes = 0;  // of `input`; a multiple of the element size
};

// The end of a collective on a device, which the host does not wait for. Until a stream waits for
// it the stream must not touch the tensors, nor may their memory be used for anything else. From
// any thread; no call waits.
class DeviceEnd {
 public:
  virtual ~DeviceEnd() = default;
  // What `stream`, of `device`, is given from now on comes after it. kTimeout: the stream records a
  // graph, which cannot wait.
  virtual Status HaveWait(int32_t device, void* stream) const = 0;
  // Whether it has come, or never will.
  virtual bool HasCome() const = 0;
  // The generation was lost before it came: there is no result.
  virtual bool lost() const = 0;
};

// When one tensor of a device may be touched: its input is written once `ready_event` has happened
// (null: it is). `stream` is that on which its program works. Both are the framework's.
struct DeviceOrder {
  void* stream = nullptr;
  void* ready_event = nullptr;
  // Where it lies, by this rank's own numbers: the tensors of one collective may lie on several
  // GPUs, which other ranks cannot know. The host's of a rank that has joined, which brings no
  // tensor of its own.
  int32_t device = kHostDevice;
};

// Frees memory of a device (the deleter of a shared_ptr), after what `stream` was given before, and
// after `end` (null: the stream waits for it already).
struct DeviceFree {
  std::function<void(void* memory, void* stream)> free;
  void* stream = nullptr;
  int32_t device = 0;
  bool rocm = false;  // a GPU of AMD's
  std::shared_ptr<const DeviceEnd> end;
  void operator()(std::byte* memory) const {
    if (end != nullptr) (void)end->HaveWait(device, stream);
    free(memory, stream);
  }
};

// What one member of an alltoall sends, all pieces together, as this rank knows it. What it sends
// to the others is one stream: the parts of the ranks after it, and from the first rank on again.
struct AlltoallSender {
  int64_t stream = 0;   // bytes
  int64_t before = 0;   // of these before the part of this rank
  int64_t largest = 0;  // part of any rank, itself included
};

// How the memory of one piece is shared among the ranks of the set, in their order: bytes.
struct Shares {
  std::vector<int64_t> to;    // what each rank gets of the input; alltoall, reducescatter
  std::vector<int64_t> from;  // what each rank brings to the output; allgather, alltoall
  bool operator==(const Shares& o) const { return to == o.to && from == o.from; }
};

// A whole collective as the backend sees it: several fused tensors, one kind, all of the host or
// all of GPUs. Ranks are positions in the process set.
struct CollectiveSpec {
  OpKind kind = OpKind::kAllreduce;
  uint64_t sequence = 0;  // number of this collective in its set; equal on every member
  Reduction reduction;    // allreduce, reducescatter
  Position root{0};       // broadcast
  // Allreduce: up to so many bytes everybody reads everybody's input whole, larger ones share the
  // work in phases. Equal on every member. Negative: the algorithm's own choice, which also bounds
  // it.
  int64_t direct_bytes = -1;
  int32_t device = kHostDevice;  // what chose the backend; of a GPU only that it is one
  std::vector<Piece> pieces;
  std::string title;  // of GPUs, for messages: "allreduce of 'a' and 2 more"
  std::vector<DeviceOrder>
      order;  // by piece; empty on the host, whose memory may be touched at once
  std::shared_ptr<const DeviceEnd>* end = nullptr;  // of a device: set by a machine that is done
  // By piece; empty where all ranks have all of it. Behind what an alltoall sends, an input may go
  // on with bytes that are not sent.
  std::vector<Shares> shares;
  std::vector<AlltoallSender> senders;  // alltoall: by rank
  // Allreduce: the inputs of all members, one after the other, each that of all pieces; empty where
  // they have yet to be exchanged.
  std::vector<std::byte> gathered;
};

enum class Step : uint8_t { kProgressed, kBlocked, kDone, kFailed };

// A collective in progress. The engine interleaves all started machines on one thread, so a step
// does a bounded piece of work (at most kStepBytes of memory traffic) and never waits: a machine
// that waited could deadlock two overlapping process sets.
class StepMachine {
 public:
  virtual ~StepMachine() = default;
  Step Advance() {
    const Step step = status_.ok() ? TakeStep() : Step::kFailed;
    return status_.ok() ? step : Step::kFailed;
  }
  // Why Advance() returned kFailed.
  virtual Status status() const { return status_; }
  // While it is blocked: when to advance it though nothing has woken the rank, on the clock of
  // NowMicros; -1 = never. For what can only be looked at again.
  virtual int64_t deadline_us() const { return -1; }

 protected:
  virtual Step TakeStep() = 0;

  Status status_;  // once it is an error, the machine has failed
};

constexpr size_t kStepBytes = 256 << 10;

// A machine whose first step says why it could not be started.
class FailedMachine : public StepMachine {
 public:
  explicit FailedMachine(Status status) { status_ = std::move(status); }

 private:
  Step TakeStep() override { return Step::kFailed; }
};

inline std::unique_ptr<StepMachine> MakeFailed(Status status) {
  return std::make_unique<FailedMachine>(std::move(status));
}

}  // namespace hvd
