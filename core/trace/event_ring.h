#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/types.h"

namespace hvd {

// An event as it is recorded: nothing is formatted or looked up. Behind that of a beginning lie
// what it is about (Contents) and its name, behind that of a rank's readiness the name.
struct Record {
  enum Type : uint8_t { kSkip, kBegin, kPhase, kEnd, kReady, kCycle };
  int64_t time_ns = 0;
  uint64_t operation = 0;       // of kReady: the rank
  const char* phase = nullptr;  // a literal; of kReady: the kind of operation
  uint32_t process_set = 0;
  uint16_t name_length = 0;
  uint8_t contents_length = 0;
  Type type = kSkip;
};

// Of an operation: what is recorded of its tensors.
struct Contents {
  enum Message : uint8_t { kNone, kSend, kReceive };
  static constexpr uint8_t kMostDims = 8;
  static constexpr uint8_t kNoShape = 0xFF;  // several tensors, none, or one of more dimensions

  int64_t bytes = 0;
  uint32_t tensors = 0;
  DataType dtype = DataType::kUint8;
  OpKind kind = OpKind::kAllreduce;
  uint8_t dims = kNoShape;
  Message message = kNone;
  int32_t peer = 0;  // of a message; -1: any rank
  int64_t tag = 0;   // likewise
  int64_t shape[kMostDims];

  uint8_t length() const {
    const size_t dimensions = dims == kNoShape ? 0 : dims;
    return static_cast<uint8_t>(offsetof(Contents, shape) + dimensions * sizeof shape[0]);
  }
};

// Records on their way from one thread to another, without lock and allocation. When the reader is
// late, new ones are refused.
class EventRing {
 public:
  static constexpr size_t kBytes = 4 << 20;
  static constexpr size_t kLongestName = 512;

  // Left free by new operations, so that those under way can be ended.
  static constexpr size_t kReserve = kBytes / 8;

  void Allocate() {
    if (data_ == nullptr) data_.reset(new std::byte[kBytes]);
  }

  // By one thread at a time. False when there is no room; `free` bytes must be left. `contents`:
  // null if none.
  bool Push(Record record, const Contents* contents, std::string_view name, size_t free) {
    record.name_length = static_cast<uint16_t>(name.size());
    record.contents_length = contents == nullptr ? 0 : contents->length();
    uint64_t head = head_.load(std::memory_order_relaxed);
    const size_t needed = Extent(record);
    const size_t to_end = kBytes - (head & kMask);
    const size_t total = needed <= to_end ? needed : to_end + needed;
    if (!HasRoom(head, total + free)) return false;
    if (needed > to_end) {
      const Record skip;
      std::memcpy(data_.get() + (head & kMask), &skip, sizeof skip);
      head += to_end;
    }
    std::byte* place = data_.get() + (head & kMask);
    std::memcpy(place, &record, sizeof record);
    place += sizeof record;
    if (contents != nullptr) std::memcpy(place, contents, record.contents_length);
    if (!name.empty()) std::memcpy(place + record.contents_length, name.data(), name.size());
    // Sequentially consistent: the reader announces that it sleeps and then looks at the head; the
    // recorder moves the head and then looks whether the reader sleeps.
    head_.store(head + needed, std::memory_order_seq_cst);
    return true;
  }

  // More than half full; for the thread that pushes.
  bool Crowded() { return !HasRoom(head_.load(std::memory_order_relaxed), kBytes / 2); }

  bool empty() const { return tail_.load() == head_.load(); }

  // By the reader. visit(const Record&, const Contents&, std::string_view name)
  template <typename Visit>
  void Drain(Visit&& visit) {
    const uint64_t head = head_.load(std::memory_order_acquire);
    for (uint64_t tail = tail_.load(std::memory_order_relaxed); tail != head;) {
      const std::byte* place = data_.get() + (tail & kMask);
      Record record;
      std::memcpy(&record, place, sizeof record);
      if (record.type != Record::kSkip) {
        Contents contents;
        place += sizeof record;
        std::memcpy(&contents, place, record.contents_length);
        place += record.contents_length;
        visit(record, contents, {reinterpret_cast<const char*>(place), record.name_length});
      }
      tail += record.type == Record::kSkip ? kBytes - (tail & kMask) : Extent(record);
      tail_.store(tail, std::memory_order_release);
    }
  }

 private:
  static constexpr uint64_t kMask = kBytes - 1;

  // Multiples of a record, so that a skip always fits before the end.
  static size_t Extent(const Record& record) {
    const size_t behind = size_t{record.contents_length} + record.name_length;
    return (sizeof record + behind + sizeof record - 1) / sizeof record * sizeof record;
  }

  bool HasRoom(uint64_t head, size_t bytes) {
    if (head + bytes - seen_tail_ <= kBytes) return true;
    seen_tail_ = tail_.load(std::memory_order_acquire);
    return head + bytes - seen_tail_ <= kBytes;
  }

  std::unique_ptr<std::byte[]> data_;
  alignas(64) std::atomic<uint64_t> head_{0};  // bytes ever pushed
  uint64_t seen_tail_ = 0;  // the pusher's: the reader's line is touched only when needed
  alignas(64) std::atomic<uint64_t> tail_{0};  // bytes ever read
};

static_assert(sizeof(Record) == 32 && EventRing::kBytes % sizeof(Record) == 0);

}  // namespace hvd
