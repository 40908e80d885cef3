#include "runtime/control/stream.h"

#include <algorithm>
#include <cstring>

namespace hvd {

namespace {

// Both halves of a copy that may wrap around the end of the ring: copy(place in ring, place in
// stream, length).
template <typename Copy>
void Wrapped(uint64_t position, size_t length, size_t capacity, Copy copy) {
  const size_t start = position % capacity;
  const size_t first = std::min(length, capacity - start);
  copy(start, size_t{0}, first);
  if (first < length) copy(size_t{0}, first, length - first);
}

}  // namespace

void RingWriter::Append(const std::string& message) {
  if (idle()) {
    pending_.clear();
    sent_ = 0;
  }
  AppendMessage(message, &pending_);
}

uint64_t RingWriter::Write(uint64_t slowest_head) {
  const uint64_t used = tail_ - slowest_head;
  // An impossible head (the reader is broken) must not make this write past the ring.
  const size_t room = used > capacity_ ? 0 : capacity_ - static_cast<size_t>(used);
  const size_t length = std::min(room, pending_.size() - sent_);
  Wrapped(tail_, length, capacity_, [this](size_t at, size_t from, size_t n) {
    std::memcpy(bytes_ + at, pending_.data() + sent_ + from, n);
  });
  sent_ += length;
  tail_ += length;
  return tail_;
}

bool RingReader::Read(uint64_t tail) {
  if (tail - head_ > capacity_) return false;
  const size_t length = static_cast<size_t>(tail - head_);
  char* to = assembler_.Extend(length);
  Wrapped(head_, length, capacity_,
          [this, to](size_t at, size_t from, size_t n) { std::memcpy(to + from, bytes_ + at, n); });
  head_ = tail;
  return true;
}

}  // namespace hvd
