#include "transport/shm/window.h"

#include <algorithm>

#include "transport/shm/available.h"

namespace hvd::shm {

namespace {

// All members reserve at the same moment, so the memory must do for all of them.
Status CheckMemory(size_t bytes, size_t members) {
  const uint64_t available = AvailableMemory();
  if (bytes < available / members) return Status::Ok();
  return {Code::kUnavailable, "cannot reserve shared memory: " + std::to_string(members) + " ranks need " +
                                  std::to_string(bytes) + " bytes each, " + std::to_string(available) +
                                  " are available"};
}

// Keeps the first error; later ones follow from it.
void Keep(Status* first, Status next) {
  if (first->ok()) *first = std::move(next);
}

Status From(const std::string& who, const Status& status) {
  return status.ok() ? status : Status(status.code(), who + ": " + status.message());
}

}  // namespace

Status ShmWindow::Make(uint64_t generation, uint32_t set, const std::vector<int>& members, int rank,
                       const std::vector<int>& sockets, const Waker& waker, Deadline deadline,
                       std::unique_ptr<Window>* out) {
  const auto self = std::find(members.begin(), members.end(), rank);
  if (self == members.end() || sockets.size() != members.size()) {
    return Status::Internal("a window needs its own rank and one socket for each member");
  }
  std::unique_ptr<ShmWindow> window(new ShmWindow);
  window->generation_ = generation;
  window->set_ = set;
  window->members_ = members;
  window->position_ = static_cast<int>(self - members.begin());
  window->sockets_ = sockets;
  window->deadline_ = deadline;
  Shared shared;
  HVD_RETURN_IF_ERROR(window->Share(0, waker.fd(), &shared));
  for (int peer = 0; peer < window->size(); ++peer) {
    SleepWord* word = shared.segments[peer].sleep_word();
    if (peer == window->position_) {
      window->bell_.SetOwn(word);
    } else {
      window->bell_.AddPeer(peer, word, std::move(shared.wakers[peer]));
    }
  }
  window->segments_.push_back(std::move(shared.segments));
  *out = std::move(window);
  return Status::Ok();
}

Status ShmWindow::Allocate(size_t bytes, SegmentId* id) {
  Shared shared;
  HVD_RETURN_IF_ERROR(Share(bytes, -1, &shared));
  *id = static_cast<SegmentId>(segments_.size()) - 1;
  segments_.push_back(std::move(shared.segments));
  return Status::Ok();
}

// Pairs of members exchange in rounds that everybody goes through in one order: so a member has the
// descriptors of one message under way at most, and the kernel allows all users' processes together only as
// many as one may have open.
Status ShmWindow::Share(size_t bytes, int waker, Shared* shared) {
  shared->segments.resize(members_.size());
  shared->wakers.resize(members_.size());
  Message own;
  own.identity.generation = generation_;
  own.identity.bytes = bytes;
  own.identity.set = set_;
  own.identity.rank = static_cast<uint32_t>(members_[position_]);
  own.identity.id = static_cast<uint32_t>(segments_.size());

  Descriptor memfd;
  Status status = CheckMemory(bytes, members_.size());
  if (status.ok()) status = Segment::Create(&own.identity, &shared->segments[position_], &memfd);
  own.failed = status.ok() ? 0 : 1;
  std::vector<int> descriptors;
  if (status.ok()) descriptors.push_back(memfd.get());
  if (status.ok() && waker >= 0) descriptors.push_back(waker);
  for (int round = 0; round < size(); ++round) {
    const int peer = (round - position_ + size()) % size();
    if (peer == position_) continue;
    HVD_RETURN_IF_ERROR(Offer(peer, own, descriptors));
    Keep(&status, Accept(peer, own, waker >= 0, shared));
  }
  return Agree(own, status);
}

// Without its descriptors if these cannot be sent: the peer learns at once that this rank cannot share.
Status ShmWindow::Offer(int peer, Message message, const std::vector<int>& descriptors) {
  Status status = From(Who(peer), Send(sockets_[peer], message, descriptors, deadline_));
  if (status.ok() || descriptors.empty()) return status;
  message.failed = 1;
  (void)Send(sockets_[peer], message, {}, deadline_);
  return status;
}

// Maps the segment that `peer` announces.
Status ShmWindow::Accept(int peer, const Message& own, bool with_waker, Shared* shared) {
  Message message;
  std::vector<Descriptor> descriptors;
  HVD_RETURN_IF_ERROR(Hear(peer, own, &message, &descriptors));
  if (message.failed != 0) return {Code::kUnavailable, Who(peer) + " could not reserve shared memory"};
  if (message.identity.bytes != own.identity.bytes) {
    return Status::Internal(Who(peer) + " allocates " + std::to_string(message.identity.bytes) +
                            " bytes, here " + std::to_string(own.identity.bytes));
  }
  if (descriptors.size() != (with_waker ? 2 : 1)) {
    return Status::Aborted(Who(peer) + " sent " + std::to_string(descriptors.size()) + " descriptors");
  }
  HVD_RETURN_IF_ERROR(
      From(Who(peer), Segment::Attach(message.identity, descriptors[0], &shared->segments[peer])));
  if (with_waker) shared->wakers[peer] = std::move(descriptors[1]);
  return Status::Ok();
}

// A segment counts only when every member maps it: the first one hears how it went everywhere and tells
// everybody.
Status ShmWindow::Agree(Message verdict, const Status& mine) {
  constexpr int kFirst = 0;
  verdict.kind = Message::kVerdict;
  verdict.failed = mine.ok() ? 0 : 1;
  verdict.failed_rank = verdict.identity.rank;
  Status status = mine;
  if (position_ != kFirst) {
    Message all;
    HVD_RETURN_IF_ERROR(From(Who(kFirst), Send(sockets_[kFirst], verdict, {}, deadline_)));
    std::vector<Descriptor> none;
    Keep(&status, Hear(kFirst, verdict, &all, &none));
    Keep(&status, Failed(all));
    return status;
  }
  for (int peer = 1; peer < size(); ++peer) {
    Message theirs;
    std::vector<Descriptor> none;
    Status heard = Hear(peer, verdict, &theirs, &none);
    if (heard.ok()) heard = Failed(theirs);
    if (!heard.ok() && verdict.failed == 0) {
      verdict.failed = 1;
      verdict.failed_rank = static_cast<uint32_t>(members_[peer]);
    }
    Keep(&status, std::move(heard));
  }
  for (int peer = 1; peer < size(); ++peer) {
    Keep(&status, From(Who(peer), Send(sockets_[peer], verdict, {}, deadline_)));
  }
  return status;
}

Status ShmWindow::Failed(const Message& verdict) {
  if (verdict.failed == 0) return Status::Ok();
  return {Code::kUnavailable,
          "rank " + std::to_string(verdict.failed_rank) + " could not share memory; its own error says why"};
}

// Reads one message of the same kind about the same segment as `own`.
Status ShmWindow::Hear(int peer, const Message& own, Message* message, std::vector<Descriptor>* descriptors) {
  HVD_RETURN_IF_ERROR(From(Who(peer), Receive(sockets_[peer], message, descriptors, deadline_)));
  const Identity& theirs = message->identity;
  const bool agrees = message->magic == own.magic && message->kind == own.kind &&
                      theirs.generation == generation_ && theirs.set == set_ &&
                      theirs.rank == static_cast<uint32_t>(members_[peer]) && theirs.id == own.identity.id;
  if (agrees) return Status::Ok();
  return Status::Aborted(Who(peer) + " is sharing another segment, or speaks another protocol");
}

}  // namespace hvd::shm
