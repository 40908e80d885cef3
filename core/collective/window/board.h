#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/window.h"

namespace hvd {

constexpr size_t kTinyBytes = 56;        // fits in the cache line of its flag
constexpr size_t kSlotBytes = 64 << 10;  // largest payload of one rank that travels in a slot

// How a set stages its streams; the same on all members, also of other hosts. What a host stages
// should stay in its caches. A small chunk costs more flags, a large one leaves less to overlap.
struct BoardShape {
  // `chunk_bytes` is rounded up to 4 KiB, so that every slice begins at a cache line.
  static BoardShape Of(int64_t chunk_bytes, int64_t staging_slots);

  int64_t chunk_bytes = 128 << 10;  // largest part of a stream that is staged at once
  uint64_t staging_slots = 4;       // chunks of one rank that may be staged at once
};

// Members advance together, so a counter that is so far ahead was written by no member.
constexpr uint64_t kImpossibleLead = uint64_t{1} << 32;

// What a rank has done with a chunk. Every large operation numbers its chunks from the same counter
// of the set, so "count" below is the number of chunks done since the board was made.
enum class Phase : uint8_t {
  kCopied = 0,  // my part of the chunk lies in my staging
  kReduced,  // my slice of the result lies in my staging, and I read nobody's input of this chunk
             // any more
  kTaken,    // I read nobody's staging of this chunk any more
};
constexpr int kPhases = 3;

// The segment that the members of a set share: who writes which line, and when a place may be
// written again.
//
// Operations and chunks are numbered from the same counters on every member, because every member
// starts the same collectives in the same order. A member begins operations in order, and does each
// phase of the chunks in order; machines that are advanced early find that it is not their turn.
//
// Reuse of an inline slot. Operation s uses slot s & 1, which operation s-2 used before it.
// Begin(s) waits for start >= s of every member, that is, until all have begun operation s-1. A
// member begins s-1 only when it has finished reading every earlier inline operation, s-2 among
// them. So nobody reads the slot.
//
// Reuse of a staging slot. Chunk k uses slot k % S, which chunk j = k - S used before it, where S
// is the number of staging slots. A member writes it when every member's kTaken > j. Who has taken
// j reads no result of j, and has itself reduced j before (it takes only what all have reduced), so
// it reads no input of j either.
//
// After an operation that did not complete everywhere the board is dead, with its generation.
class Board {
 public:
  // As Window::Allocate, which it needs so many bytes of.
  static size_t Bytes(const BoardShape& shape);
  static Status Make(Window* window, const BoardShape& shape, std::unique_ptr<Board>* board);

  // Before each collective; cheap but for the first: many sets are never used.
  Status Prepare() {
    if (prepared_) return Status::Ok();
    HVD_RETURN_IF_ERROR(window_->Populate(segment_));
    prepared_ = true;
    return Status::Ok();
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const BoardShape& shape() const { return shape_; }
  // Up to here it is faster that everybody reads everybody's slot once than to share the work in
  // phases. All slots together stay within half a step.
  int64_t inline_bytes() const { return InlineBytes(size_); }
  static int64_t InlineBytes(int size) {
    return static_cast<int64_t>(kSlotBytes) * 2 / std::max(size, 2);
  }

  uint64_t NextOperation() { return next_operation_++; }
  uint64_t NextChunks(uint64_t count);

  // Whether `operation` is the next to begin here; an inline one also needs its slot back from
  // everybody.
  bool MayBegin(uint64_t operation) const { return begun_ == operation && !inline_open_; }
  bool MayBeginInline(uint64_t operation);
  // Publishes that the operation has begun, with the payload written to Slot(rank(), ...) before.
  void Begin(uint64_t operation);
  void BeginInline(uint64_t operation);
  // The slots of the inline operation in progress have all been read here.
  void EndInline() { inline_open_ = false; }
  bool HasBegun(int rank, uint64_t operation);
  std::byte* Slot(int rank, uint64_t operation, size_t bytes) const;

  // How many chunks this rank, `rank`, or everybody has brought through a phase.
  uint64_t Mine(Phase phase) const { return mine_[Index(phase)]; }
  bool Has(int rank, Phase phase, uint64_t count);
  bool AllHave(Phase phase, uint64_t count);
  bool MayStage(uint64_t chunk) {
    return chunk < shape_.staging_slots || AllHave(Phase::kTaken, chunk - shape_.staging_slots + 1);
  }
  void Post(Phase phase, uint64_t count);
  std::byte* Staging(int rank, uint64_t chunk) const;

  // Something else than a member has written into a segment: what waits for its flags waits for
  // ever.
  bool overwritten() const { return overwritten_; }

 private:
  struct Layout;

  Board(Window* window, SegmentId segment, const BoardShape& shape);
  static int Index(Phase phase) { return static_cast<int>(phase); }
  // A peer's counter, or 0 when it cannot be one.
  uint64_t Read(const Flag& flag, uint64_t next);

  Window* const window_;
  const SegmentId segment_;
  const BoardShape shape_;
  bool prepared_ = false;
  const int rank_;
  const int size_;
  std::vector<Layout*> segments_;
  uint64_t next_operation_ = 0;
  uint64_t next_chunk_ = 0;
  uint64_t begun_ = 0;        // operations begun here
  bool inline_open_ = false;  // an inline operation has begun here whose slots are not all read
  std::array<uint64_t, kPhases> mine_{};
  // What was last seen of the peers' flags: a counter that only grows need not be read again.
  std::vector<std::array<uint64_t, kPhases>> seen_;
  bool overwritten_ = false;
};

}  // namespace hvd
