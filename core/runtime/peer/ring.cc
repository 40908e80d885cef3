#include "runtime/peer/ring.h"

#include <cstring>
#include <utility>

namespace hvd::peer {

bool RingOut::Put(const Frame& frame, const std::byte* inlined) {
  const size_t record = RecordBytes(frame.inlined);
  const auto place = static_cast<size_t>(tail_ % capacity_);
  const size_t passed = capacity_ - place < record ? capacity_ - place : 0;
  if (!HasRoom(passed + record)) return false;
  if (passed > 0) {
    Frame mark;
    mark.kind = FrameKind::kPassed;
    const FrameHead head = Encode(mark);
    std::memcpy(bytes_ + place, head.data(), head.size());
  }
  std::byte* const at = bytes_ + (passed > 0 ? 0 : place);
  const FrameHead head = Encode(frame);
  std::memcpy(at, head.data(), head.size());
  if (frame.inlined > 0) std::memcpy(at + kFrameBytes, inlined, frame.inlined);
  tail_ += passed + record;
  return true;
}

bool RingOut::HasRoom(size_t bytes) {
  if (tail_ + bytes - head_ <= capacity_) return true;
  const uint64_t head = Window::Try(*consumed_);
  broken_ = broken_ || head > tail_ || head < head_;
  if (broken_) return false;
  head_ = head;
  return tail_ + bytes - head_ <= capacity_;
}

void RingOut::Publish(Window* window, Position reader) {
  if (told_ == tail_) return;
  told_ = tail_;
  window->Post(*written_, tail_, reader);
}

bool RingIn::Next(Frame* frame, const std::byte** inlined) {
  for (;;) {
    if (tail_ == head_) tail_ = Window::Try(*written_);
    if (tail_ == head_ || !broken_.empty()) return false;
    const uint64_t available = tail_ - head_;
    if (available > capacity_ || available % kRecordAlignment != 0)
      return Broken("a count of bytes that its ring cannot hold");
    const auto place = static_cast<size_t>(head_ % capacity_);
    const size_t left = capacity_ - place;
    const Status status = Decode(bytes_ + place, frame);
    if (!status.ok()) return Broken(status.message());
    const bool passed = frame->kind == FrameKind::kPassed;
    const size_t record = passed ? left : RecordBytes(frame->inlined);
    if (record > available || record > left) return Broken("a frame longer than what it lies in");
    if (!passed) {
      open_ = record;
      *inlined = bytes_ + place + kFrameBytes;
      return true;
    }
    head_ += record;
  }
}

void RingIn::Release() { head_ += std::exchange(open_, 0); }

void RingIn::Publish(Window* window, Position writer) {
  if (told_ == head_) return;
  told_ = head_;
  window->Post(*consumed_, head_, writer);
}

bool RingIn::Broken(std::string what) {
  broken_ = std::move(what);
  return false;
}

}  // namespace hvd::peer
