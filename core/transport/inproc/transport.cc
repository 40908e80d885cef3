#include "transport/inproc/transport.h"

#include <cstring>
#include <string>

namespace hvd::inproc {

namespace {
constexpr size_t kPipeBytes = 1 << 20;
}  // namespace

Hub::Hub(int size) : pipes_(size * size), wakers_(size), gone_(size, false) {}

void Hub::Join(int rank, const Waker& waker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wakers_[rank] = Descriptor::Duplicate(waker.fd());
}

void Hub::Leave(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  gone_[rank] = true;
  for (int peer = 0; peer < size(); ++peer) Ring(peer);
}

Hub::Result Hub::Room(int from, int to, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gone_[to]) return Result::kGone;
  const Pipe& pipe = At(from, to);
  // A frame larger than the pipe passes alone.
  return pipe.frames.empty() || pipe.bytes + bytes <= kPipeBytes ? Result::kMoved
                                                                 : Result::kBlocked;
}

void Hub::Push(int from, int to, Frame frame) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Pipe& pipe = At(from, to);
  pipe.bytes += frame.payload.size();
  pipe.frames.push_back(std::move(frame));
  Ring(to);
}

Hub::Result Hub::Pop(int from, int to, Inbox* inbox, Frame* frame, PostedRecv* recv) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Pipe& pipe = At(from, to);
  if (pipe.frames.empty()) return gone_[from] ? Result::kGone : Result::kBlocked;
  const FrameTag& tag = pipe.frames.front().tag;
  const bool wanted = inbox->Take(tag, recv);
  if (!wanted && !inbox->Forgotten(tag) && !inbox->MustMakeWay(tag)) return Result::kBlocked;
  *frame = std::move(pipe.frames.front());
  pipe.frames.pop_front();
  pipe.bytes -= frame->payload.size();
  Ring(from);
  return wanted ? Result::kMoved : Result::kEarly;
}

void Hub::Ring(int rank) {
  if (wakers_[rank].valid()) Waker::Ring(wakers_[rank].get());
}

InprocTransport::InprocTransport(std::shared_ptr<Hub> hub, int rank, const Waker& waker,
                                 bool peers_may_leave)
    : hub_(std::move(hub)), rank_(rank), peers_may_leave_(peers_may_leave), peers_(hub_->size()) {
  hub_->Join(rank, waker);
}

void InprocTransport::Send(GlobalRank peer, const FrameTag& tag, const void* data, size_t bytes,
                           Transfer* transfer) {
  if (!failure_.ok()) return;
  if (bytes > kMaxFrame) {
    failure_ = Status::Internal("a frame of " + std::to_string(bytes) + " bytes exceeds kMaxFrame");
    return;
  }
  peers_[peer.index()].sends.push_back({tag, static_cast<const std::byte*>(data), bytes, transfer});
}

void InprocTransport::Recv(GlobalRank peer, const FrameTag& tag, void* data, size_t capacity,
                           Transfer* transfer) {
  if (!failure_.ok()) return;
  const Status status =
      peers_[peer.index()].inbox.Post({tag, static_cast<std::byte*>(data), capacity, transfer});
  if (!status.ok()) failure_ = Lose(peer.value(), status.message());
}

void InprocTransport::Forget(uint32_t set) {
  for (Peer& peer : peers_) peer.inbox.Forget(set);
}

Status InprocTransport::Progress(bool* moved) {
  *moved = false;
  for (int peer = 0; peer < size() && failure_.ok(); ++peer) {
    if (peers_[peer].ended) continue;
    failure_ = PushSends(peer, moved);
    if (failure_.ok() && !peers_[peer].ended) failure_ = PopRecvs(peer, moved);
  }
  return failure_;
}

Status InprocTransport::PushSends(int peer, bool* moved) {
  auto& sends = peers_[peer].sends;
  while (!sends.empty()) {
    const PostedSend& send = sends.front();
    const Hub::Result result = hub_->Room(rank_, peer, send.bytes);
    if (result == Hub::Result::kGone) return Gone(peer);
    if (result == Hub::Result::kBlocked) break;
    hub_->Push(rank_, peer, {send.tag, {send.data, send.data + send.bytes}});
    send.transfer->bytes = send.bytes;
    send.transfer->done = true;
    sends.pop_front();
    *moved = true;
  }
  return Status::Ok();
}

Status InprocTransport::PopRecvs(int peer, bool* moved) {
  Inbox& inbox = peers_[peer].inbox;
  while (inbox.waiting()) {
    Frame frame;
    PostedRecv recv;
    const Hub::Result result = hub_->Pop(peer, rank_, &inbox, &frame, &recv);
    if (result == Hub::Result::kGone) return Gone(peer);
    if (result == Hub::Result::kBlocked) break;
    *moved = true;
    if (result == Hub::Result::kEarly) {
      const Status parked = inbox.Park(frame.tag, std::move(frame.payload));
      if (!parked.ok()) return Lose(peer, parked.message());
      continue;
    }
    const Status fits = CheckFits(frame.payload.size(), recv);
    if (!fits.ok()) return Lose(peer, fits.message());
    if (!frame.payload.empty()) std::memcpy(recv.data, frame.payload.data(), frame.payload.size());
    recv.transfer->bytes = frame.payload.size();
    recv.transfer->done = true;
  }
  return Status::Ok();
}

Status InprocTransport::Gone(int peer) {
  if (!peers_may_leave_) return Lose(peer, "the peer closed the channel");
  peers_[peer].ended = true;
  for (const PostedSend& send : peers_[peer].sends) send.transfer->done = true;
  peers_[peer].sends.clear();
  ended_.push_back(GlobalRank(peer));
  return Status::Ok();
}

GlobalRank InprocTransport::TakeEnded() {
  if (ended_.empty()) return {};
  const GlobalRank peer = ended_.back();
  ended_.pop_back();
  return peer;
}

Status InprocTransport::Lose(int peer, const std::string& why) {
  lost_peer_ = GlobalRank(peer);
  return Status::Aborted(Name(rank()) + " lost " + Name(lost_peer_) + ": " + why);
}

// What is in a pipe has arrived.
void InprocTransport::Close(int64_t /*linger_us*/) {
  if (closed_) return;
  closed_ = true;
  if (failure_.ok()) failure_ = shut_;
  peers_.clear();
  hub_->Leave(rank_);
}

}  // namespace hvd::inproc
