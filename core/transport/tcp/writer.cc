#include "transport/tcp/writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace hvd::tcp {

namespace {

// What is guarded at once and then sent while it is still in the cache.
constexpr size_t kSlice = 256 << 10;

size_t FrameBytes(const PostedSend& send) {
  return kPrefixBytes + send.bytes + (send.bytes > 0 ? kSealBytes : 0);
}

}  // namespace

// What can be sent of the frame now: of prefix, payload and seal whatever is left.
struct FrameWriter::Rest {
  iovec parts[3];
  int count = 0;

  void Add(const void* data, size_t bytes, size_t* skip) {
    const size_t skipped = std::min(*skip, bytes);
    *skip -= skipped;
    if (skipped == bytes) return;
    auto* start = const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped;
    parts[count++] = {start, bytes - skipped};
  }
};

Status FrameWriter::Progress(int socket, size_t budget, bool* moved) {
  size_t total = 0;
  while (movable() && total < budget) {
    if (!begun_) Begin();
    Rest rest = Gather();
    msghdr message{};
    message.msg_iov = rest.parts;
    message.msg_iovlen = rest.count;
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
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
  for (const PostedSend& send : queue_) send.transfer->done = true;
  queue_.clear();
  begun_ = false;
  blocked_ = false;
}

void FrameWriter::Begin() {
  const PostedSend& send = queue_.front();
  prefix_ = Encode({generation_, send.tag, static_cast<uint32_t>(send.bytes)}, &*guard_);
  begun_ = true;
  sent_ = 0;
  guarded_ = 0;
}

FrameWriter::Rest FrameWriter::Gather() {
  const PostedSend& send = queue_.front();
  const size_t payload_sent = sent_ > kPrefixBytes ? sent_ - kPrefixBytes : 0;
  if (guarded_ < send.bytes && payload_sent >= guarded_) {
    const size_t slice = std::min(kSlice, send.bytes - guarded_);
    guard_->Add(send.data + guarded_, slice);
    guarded_ += slice;
    if (guarded_ == send.bytes) trailer_ = guard_->Finish();
  }
  Rest rest;
  size_t skip = sent_;
  rest.Add(prefix_.data(), prefix_.size(), &skip);
  rest.Add(send.data, guarded_, &skip);
  if (send.bytes > 0 && guarded_ == send.bytes) rest.Add(trailer_.data(), trailer_.size(), &skip);
  return rest;
}

void FrameWriter::Advance(size_t sent) {
  sent_ += sent;
  const PostedSend& send = queue_.front();
  if (sent_ < FrameBytes(send)) return;
  send.transfer->bytes = send.bytes;
  send.transfer->done = true;
  queue_.pop_front();
  begun_ = false;
}

}  // namespace hvd::tcp
