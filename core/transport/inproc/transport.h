#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/waker.h"
#include "transport/descriptor.h"
#include "transport/inbox.h"

namespace hvd::inproc {

struct Frame {
  FrameTag tag;
  std::vector<std::byte> payload;
};

// The queues between the rank threads of one channel: bounded, like the buffers of a socket, so
// that a test meets the same back-pressure.
class Hub {
 public:
  explicit Hub(int size);

  int size() const { return static_cast<int>(wakers_.size()); }
  void Join(int rank, const Waker& waker);
  void Leave(int rank);

  enum class Result { kMoved, kEarly, kBlocked, kGone };
  // Whether the pipe takes another `bytes` now; it stays true until `from` pushes.
  Result Room(int from, int to, size_t bytes);
  void Push(int from, int to, Frame frame);
  // Takes the oldest frame if the inbox waits for it, or if it must make way (kEarly).
  Result Pop(int from, int to, Inbox* inbox, Frame* frame, PostedRecv* recv);

 private:
  struct Pipe {
    std::deque<Frame> frames;
    size_t bytes = 0;
  };
  Pipe& At(int from, int to) { return pipes_[from * size() + to]; }
  void Ring(int rank);

  std::mutex mutex_;  // guards everything below
  std::vector<Pipe> pipes_;
  std::vector<Descriptor> wakers_;
  std::vector<bool> gone_;
};

class InprocTransport : public Transport {
 public:
  InprocTransport(std::shared_ptr<Hub> hub, int rank, const Waker& waker, bool peers_may_leave);
  ~InprocTransport() override { Close(0); }

  GlobalRank rank() const override { return GlobalRank(rank_); }
  int size() const override { return hub_->size(); }
  void Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
            Transfer* transfer) override;
  void Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
            Transfer* transfer) override;
  void Forget(uint32_t set) override;
  Status Progress(bool* moved) override;
  GlobalRank lost_peer() const override { return lost_peer_; }
  GlobalRank TakeEnded() override;
  int poll_fd() const override { return -1; }
  void Close(int64_t linger_us) override;

 private:
  struct Peer {
    std::deque<PostedSend> sends;
    Inbox inbox;
    bool ended = false;
  };
  Status PushSends(int peer, bool* moved);
  Status PopRecvs(int peer, bool* moved);
  Status Gone(int peer);
  Status Lose(int peer, const std::string& why);

  std::shared_ptr<Hub> hub_;
  int rank_;
  const bool peers_may_leave_;
  std::vector<Peer> peers_;
  std::vector<GlobalRank> ended_;  // not yet taken
  Status failure_;
  const Status shut_{Code::kShutdown, "the transport is closed"};  // made while there is memory
  GlobalRank lost_peer_;
  bool closed_ = false;
};

}  // namespace hvd::inproc
