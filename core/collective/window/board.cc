#include "collective/window/board.h"

#include "base/range.h"

namespace hvd {

namespace {

// What a chunk is rounded up to, so that every slice begins at a cache line: no page of the
// machine, for hosts whose pages differ must stage alike.
constexpr int64_t kChunkUnit = 4096;

}  // namespace

BoardShape BoardShape::Of(int64_t chunk_bytes, int64_t staging_slots) {
  return {RoundUp(chunk_bytes, kChunkUnit), static_cast<uint64_t>(staging_slots)};
}

// Two cache lines each, because the processor fetches lines in pairs.
struct alignas(128) StartLine {
  Flag flag;  // 1 + number of the last operation begun on this parity
  std::byte tiny[kTinyBytes];
};

struct alignas(128) PhaseLine {
  Flag flag;
};

// What lies before the staging.
struct Board::Layout {
  StartLine start[2];
  PhaseLine phase[kPhases];
  alignas(kChunkUnit) std::byte small[2][kSlotBytes];
};

size_t Board::Bytes(const BoardShape& shape) {
  return sizeof(Layout) + shape.staging_slots * static_cast<size_t>(shape.chunk_bytes);
}

Status Board::Make(Window* window, const BoardShape& shape, std::unique_ptr<Board>* board) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(Bytes(shape), &id));
  board->reset(new Board(window, id, shape));
  for (int rank = 0; rank < window->size(); ++rank) {
    (*board)->segments_.push_back(reinterpret_cast<Layout*>(window->Span(Position(rank), id)));
  }
  return Status::Ok();
}

Board::Board(Window* window, SegmentId segment, const BoardShape& shape)
    : window_(window),
      segment_(segment),
      shape_(shape),
      rank_(window->position().value()),
      size_(window->size()),
      seen_(static_cast<size_t>(size_)) {}

uint64_t Board::NextChunks(uint64_t count) {
  const uint64_t first = next_chunk_;
  next_chunk_ += count;
  return first;
}

bool Board::MayBeginInline(uint64_t operation) {
  if (!MayBegin(operation)) return false;
  if (operation < 2) return true;
  for (int rank = 0; rank < size_; ++rank) {
    if (!HasBegun(rank, operation - 1)) return false;
  }
  return true;
}

void Board::Begin(uint64_t operation) {
  begun_ = operation + 1;
  window_->Post(segments_[rank_]->start[operation & 1].flag, begun_);
}

void Board::BeginInline(uint64_t operation) {
  inline_open_ = true;
  Begin(operation);
}

bool Board::HasBegun(int rank, uint64_t operation) {
  return Read(segments_[rank]->start[operation & 1].flag, next_operation_) > operation;
}

std::byte* Board::Slot(int rank, uint64_t operation, size_t bytes) const {
  Layout* segment = segments_[rank];
  return bytes <= kTinyBytes ? segment->start[operation & 1].tiny : segment->small[operation & 1];
}

uint64_t Board::Read(const Flag& flag, uint64_t next) {
  const uint64_t value = Window::Try(flag);
  if (value <= next + kImpossibleLead) return value;
  overwritten_ = true;
  return 0;
}

bool Board::Has(int rank, Phase phase, uint64_t count) {
  uint64_t& seen = seen_[rank][Index(phase)];
  if (seen < count) seen = Read(segments_[rank]->phase[Index(phase)].flag, next_chunk_);
  return seen >= count;
}

bool Board::AllHave(Phase phase, uint64_t count) {
  for (int rank = 0; rank < size_; ++rank) {
    if (!Has(rank, phase, count)) return false;
  }
  return true;
}

void Board::Post(Phase phase, uint64_t count) {
  mine_[Index(phase)] = count;
  window_->Post(segments_[rank_]->phase[Index(phase)].flag, count);
}

std::byte* Board::Staging(int rank, uint64_t chunk) const {
  const auto slot = static_cast<int64_t>(chunk % shape_.staging_slots);
  return reinterpret_cast<std::byte*>(segments_[rank] + 1) + slot * shape_.chunk_bytes;
}

}  // namespace hvd
