#include <algorithm>
#include <cstring>
#include <set>

#include "nccl/abi.h"
#include "nccl/collective.h"

namespace fake_gpu {
namespace {

// A send or a receive of a group, and how far it is.
class Transfer {
 public:
  Transfer(const Seating& seating, const Call& call)
      : seating_(seating), call_(call), bytes_(call.what.count * BytesOf(call.what.dtype)) {}

  int peer() const { return call_.what.root; }
  bool IsSend() const { return call_.what.kind == Kind::kSend; }
  // A send is done once the peer has all of it: with calls in an order in which NCCL may wait for
  // ever, so does the fake.
  bool IsDone() const { return at_ == bytes_ && (bytes_ == 0 || !IsSend() || IsRead()); }

  // Moves one chunk if the peer is as far. kInvalidUsage where it sends something else.
  int Advance(bool* moved, std::string* why) { return IsSend() ? Send(moved) : Recv(moved, why); }

 private:
  bool IsRead() const {
    const Mailbox* box = seating_.exchange->Box(seating_.rank, peer());
    return box->read.load(std::memory_order_acquire) == box->written.load();
  }

  int Send(bool* moved) {
    if (at_ == bytes_ || !IsRead()) return kSuccess;
    Mailbox* box = seating_.exchange->Box(seating_.rank, peer());
    const uint64_t written = box->written.load(std::memory_order_relaxed);
    box->message = call_.what;
    box->bytes = std::min(bytes_ - at_, kMessageBytes);
    std::memcpy(box->data, call_.send + at_, box->bytes);
    at_ += box->bytes;
    box->written.store(written + 1, std::memory_order_release);
    *moved = true;
    return kSuccess;
  }

  int Recv(bool* moved, std::string* why) {
    Mailbox* box = seating_.exchange->Box(peer(), seating_.rank);
    const uint64_t read = box->read.load(std::memory_order_relaxed);
    if (box->written.load(std::memory_order_acquire) == read) return kSuccess;
    const Operation& message = box->message;
    if (message.count * BytesOf(message.dtype) != bytes_) {
      *why = "rank " + std::to_string(seating_.rank) + " calls " + Describe(call_.what) +
             ", rank " + std::to_string(peer()) + " calls " + Describe(message);
      return kInvalidUsage;
    }
    std::memcpy(call_.recv + at_, box->data, box->bytes);
    at_ += box->bytes;
    box->read.store(read + 1, std::memory_order_release);
    *moved = true;
    return kSuccess;
  }

  const Seating& seating_;
  const Call& call_;
  const size_t bytes_;
  size_t at_ = 0;
};

// Of several transfers to or from one peer only the first moves, so that they stay in order.
int Pass(std::vector<Transfer>* transfers, bool* moved, bool* done, std::string* why) {
  std::set<std::pair<bool, int>> busy;
  *done = true;
  for (Transfer& transfer : *transfers) {
    if (transfer.IsDone()) continue;
    *done = false;
    if (!busy.insert({transfer.IsSend(), transfer.peer()}).second) continue;
    if (const int result = transfer.Advance(moved, why)) return result;
  }
  return kSuccess;
}

}  // namespace

int RunPointToPoint(const Seating& seating, const std::vector<Call>& calls, std::string* why) {
  std::vector<Transfer> transfers;
  for (const Call& call : calls) transfers.emplace_back(seating, call);
  bool done = false;
  for (int idle = 0; !seating.stopped(); ++idle) {
    bool moved = false;
    const int result = Pass(&transfers, &moved, &done, why);
    if (result != kSuccess || done) return result;
    if (moved) idle = 0;
    if (!moved) Pause(idle);
  }
  return kSuccess;
}

}  // namespace fake_gpu
