#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace hvd {

constexpr size_t kMaxControlMessage = 256 << 20;

// Messages in a byte stream: a 32-bit length before each.
inline void AppendMessage(const std::string& message, std::string* stream) {
  const uint32_t length = static_cast<uint32_t>(message.size());
  stream->append(reinterpret_cast<const char*>(&length), sizeof length);
  stream->append(message);
}

// Cuts a stream that arrives in pieces back into messages.
class MessageAssembler {
 public:
  enum class Next { kNone, kMessage, kCorrupt };

  // Room for `bytes` more of the stream, to be written by the caller.
  char* Extend(size_t bytes) {
    // Also where pieces never end with a message: what is kept is at most twice what is not yet
    // taken.
    if (taken_ > buffer_.size() / 2) {
      buffer_.erase(0, taken_);
      taken_ = 0;
    }
    buffer_.resize(buffer_.size() + bytes);
    return buffer_.data() + buffer_.size() - bytes;
  }

  Next Take(std::string* message) {
    uint32_t length;
    const size_t available = buffer_.size() - taken_;
    if (available < sizeof length) return Next::kNone;
    std::memcpy(&length, buffer_.data() + taken_, sizeof length);
    if (length > kMaxControlMessage) return Next::kCorrupt;
    if (available - sizeof length < length) return Next::kNone;
    message->assign(buffer_, taken_ + sizeof length, length);
    taken_ += sizeof length + length;
    return Next::kMessage;
  }

 private:
  std::string buffer_;
  size_t taken_ = 0;  // of buffer_
};

// A stream of messages through a ring of bytes in shared memory, one writer and one or several
// readers. `tail` counts the bytes ever written, a reader's `head` those it has consumed.
class RingWriter {
 public:
  void Attach(std::byte* bytes, size_t capacity) { bytes_ = bytes, capacity_ = capacity; }

  void Append(const std::string& message);
  // Copies as much as fits, given the slowest reader's head, and returns the new tail.
  uint64_t Write(uint64_t slowest_head);
  // False: no reader can have come so far.
  bool Possible(uint64_t head) const { return tail_ - head <= capacity_; }
  bool idle() const { return sent_ == pending_.size(); }
  uint64_t tail() const { return tail_; }

 private:
  std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
  uint64_t tail_ = 0;
  std::string pending_;
  size_t sent_ = 0;  // of pending_
};

class RingReader {
 public:
  void Attach(const std::byte* bytes, size_t capacity) { bytes_ = bytes, capacity_ = capacity; }

  // Takes what lies between the head and `tail`. False: the tail is impossible (the writer is
  // broken).
  bool Read(uint64_t tail);
  MessageAssembler::Next Next(std::string* message) { return assembler_.Take(message); }
  uint64_t head() const { return head_; }

 private:
  const std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
  uint64_t head_ = 0;
  MessageAssembler assembler_;
};

}  // namespace hvd
