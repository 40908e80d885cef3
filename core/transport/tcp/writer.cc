#include "transport/tcp/writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace hvd::tcp {

namespace {

// What is guarded at once and then sent in one call, while it is still in the cache. To send 1 MiB
// in calls of 128 KiB takes the kernel a fifth longer than in such ones.
constexpr size_t kBatchBytes = 512 << 10;
constexpr size_t kBatchFrames = 16;

}  // namespace

// What can be sent now: of the frames at the front whatever is left of prefix, payload and trailer.
class FrameWriter::Batch {
 public:
  // Without the first `*skip` bytes of what is added, counted down.
  void Add(const Outgoing& frame, size_t* skip) {
    Add(frame.prefix.data(), frame.prefix.size(), skip);
    Add(frame.send.data, frame.guarded, skip);
    if (frame.send.bytes > 0 && frame.guarded_all())
      Add(frame.trailer.data(), frame.trailer.size(), skip);
  }

  bool full() const { return count_ + 3 > kMostParts || bytes_ >= kBatchBytes; }
  size_t room() const { return kBatchBytes - std::min(kBatchBytes, bytes_); }

  ssize_t Send(int socket, RecordWriter* records) {
    if (records != nullptr) return records->Send(socket, parts_, count_);
    msghdr message{};
    message.msg_iov = parts_;
    message.msg_iovlen = count_;
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  static constexpr size_t kMostParts = 3 * kBatchFrames;

  void Add(const void* data, size_t bytes, size_t* skip) {
    const size_t skipped = std::min(*skip, bytes);
    *skip -= skipped;
    if (skipped == bytes) return;
    auto* start = const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped;
    parts_[count_++] = {start, bytes - skipped};
    bytes_ += bytes - skipped;
  }

  iovec parts_[kMostParts];
  size_t count_ = 0;
  size_t bytes_ = 0;
};

Status FrameWriter::Progress(int socket, size_t budget, bool* moved) {
  size_t total = 0;
  while (movable() && total < budget) {
    const ssize_t sent = Gather().Send(socket, records_.get());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      blocked_ = true;
      continue;
    }
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
      return {Code::kShutdown, "the connection was closed"};
    if (sent < 0) return {Code::kUnavailable, Status::Errno("send").message()};
    total += static_cast<size_t>(sent);
    *moved = true;
    Advance(static_cast<size_t>(sent));
  }
  return Status::Ok();
}

void FrameWriter::Discard() {
  for (const Outgoing& frame : queue_) frame.send.transfer->done = true;
  queue_.clear();
  if (guard_) guard_->Drop();
  sent_ = 0;
  blocked_ = false;
}

FrameWriter::Batch FrameWriter::Gather() {
  Batch batch;
  size_t skip = sent_;
  for (auto frame = queue_.begin(); frame != queue_.end() && !batch.full(); ++frame) {
    const size_t sent = skip > kPrefixBytes ? skip - kPrefixBytes : 0;  // of payload and trailer
    const size_t ready = frame->guarded - std::min(frame->guarded, sent);
    GuardMore(&*frame, batch.room() - std::min(batch.room(), ready));
    batch.Add(*frame, &skip);
    if (!frame->guarded_all()) break;
  }
  return batch;
}

// At most `most` further bytes of it.
void FrameWriter::GuardMore(Outgoing* frame, size_t most) {
  const PostedSend& send = frame->send;
  if (!frame->begun) {
    frame->prefix = Encode({generation_, send.tag, static_cast<uint32_t>(send.bytes)}, &*guard_);
    frame->begun = true;
  }
  const size_t slice = std::min(most, send.bytes - frame->guarded);
  if (slice == 0) return;
  guard_->Add(send.data + frame->guarded, slice);
  frame->guarded += slice;
  if (frame->guarded_all()) frame->trailer = guard_->Finish();
}

void FrameWriter::Advance(size_t sent) {
  sent_ += sent;
  while (!queue_.empty() && sent_ >= queue_.front().bytes()) {
    const PostedSend& send = queue_.front().send;
    sent_ -= queue_.front().bytes();
    send.transfer->bytes = send.bytes;
    send.transfer->done = true;
    queue_.pop_front();
  }
}

}  // namespace hvd::tcp
