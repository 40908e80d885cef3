#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/control/message_stream.h"

namespace hvd {

// A stream of messages through a ring of bytes in shared memory, one writer and one or several readers.
// `tail` counts the bytes ever written, a reader's `head` those it has consumed.
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

  // Takes what lies between the head and `tail`. False: the tail is impossible (the writer is broken).
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
