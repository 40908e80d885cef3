#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/peer/frame.h"
#include "transport/window.h"

namespace hvd::peer {

// A ring of bytes in shared memory, from one rank to one other. It holds records: a frame, and
// behind it so many bytes of a payload as it says. A record lies in one piece; where the end of the
// ring is too near for it, a frame says that the rest is passed over. `written` and `consumed`
// count bytes since the beginning.
constexpr size_t kRecordAlignment = 64;

constexpr size_t RecordBytes(size_t inlined) {
  return (kFrameBytes + inlined + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

// The most that a record may have inlined, so that it fits an empty ring wherever that begins.
constexpr size_t MostInlined(size_t ring_bytes) { return ring_bytes / 2 - kFrameBytes; }

class RingOut {
 public:
  RingOut(std::byte* bytes, size_t capacity, Flag* written, const Flag* consumed)
      : bytes_(bytes), capacity_(capacity), written_(written), consumed_(consumed) {}

  // False: there is no room now.
  bool Put(const Frame& frame, const std::byte* inlined);

  // Tells the reader of what was put.
  void Publish(Window* window, Position reader);

  // The reader's count is none that a reader can have written.
  bool broken() const { return broken_; }

 private:
  bool HasRoom(size_t bytes);

  std::byte* const bytes_;
  const size_t capacity_;
  Flag* const written_;
  const Flag* const consumed_;
  uint64_t tail_ = 0;
  uint64_t told_ = 0;
  uint64_t head_ = 0;  // of the reader, when last looked at
  bool broken_ = false;
};

class RingIn {
 public:
  RingIn(const std::byte* bytes, size_t capacity, const Flag* written, Flag* consumed)
      : bytes_(bytes), capacity_(capacity), written_(written), consumed_(consumed) {}

  // The next record, which lies there until Release. False: there is none, or the ring is broken.
  bool Next(Frame* frame, const std::byte** inlined);
  void Release();

  // Tells the writer of the room.
  void Publish(Window* window, Position writer);
  // A writer sleeps for room only when the ring is nearly full: so much of it has become free.
  bool owes_room() const { return head_ - told_ >= capacity_ / 4; }

  // What a writer cannot have written; empty while all is well.
  const std::string& broken() const { return broken_; }

 private:
  bool Broken(std::string what);

  const std::byte* const bytes_;
  const size_t capacity_;
  const Flag* const written_;
  Flag* const consumed_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;  // of the writer, when last looked at
  uint64_t told_ = 0;
  size_t open_ = 0;  // bytes of the record that was handed out
  std::string broken_;
};

}  // namespace hvd::peer
