#include <algorithm>

#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/window/collectives.h"
#include "collective/window/operation.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

class ChunkedAllreduce : public StepMachine {
 public:
  ChunkedAllreduce(Board* board, const Reduction& reduction, PieceStream stream)
      : rank_(board->rank()),
        size_(board->size()),
        reducer_(reduction, size_),
        stream_(std::move(stream)),
        gathered_(stream_.small_pieces()),
        chunk_bytes_(ChunkBytes(stream_.bytes(), board->shape())),
        operation_(board, CountChunks(stream_.bytes(), chunk_bytes_)) {}

 private:
  Step TakeStep() override {
    if (!operation_.Begin()) return Step::kBlocked;
    // What lets others go on comes first, oldest chunk first.
    if (Take() || Reduce() || CopyIn()) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    return taken_ == operation_.chunks() && operation_.complete() ? Step::kDone : Step::kBlocked;
  }

  struct Range {
    int64_t begin, end;
  };

  // At least two chunks where there is enough for that, so that there is something to overlap;
  // whole cache lines of every type. Half of a single byte is rounded up.
  static int64_t ChunkBytes(int64_t bytes, const BoardShape& shape) {
    const int64_t half = ((bytes + 1) / 2 + 127) / 128 * 128;
    return std::min(half, shape.chunk_bytes);
  }

  Range Chunk(uint64_t chunk) const {
    const int64_t begin = static_cast<int64_t>(chunk) * chunk_bytes_;
    return {begin, std::min(begin + chunk_bytes_, stream_.bytes())};
  }

  // The slice of `rank`, counted from the start of the chunk.
  Range Slice(uint64_t chunk, int rank) const {
    const Range whole = Chunk(chunk);
    const int64_t bytes = whole.end - whole.begin;
    const int64_t slice = ((bytes + size_ - 1) / size_ + 127) / 128 * 128;
    return {std::min(slice * rank, bytes), std::min(slice * (rank + 1), bytes)};
  }

  bool CopyIn() {
    if (copied_ == operation_.chunks() || !operation_.IsNext(Phase::kCopied, copied_)) return false;
    if (!operation_.MayStage(copied_)) return false;
    const Range chunk = Chunk(copied_);
    const Range own = Slice(copied_, rank_);
    std::byte* staging = operation_.Staging(rank_, copied_);
    stream_.Pack(chunk.begin, chunk.begin + (gathered_ ? own.end : own.begin), staging);
    stream_.Pack(chunk.begin + own.end, chunk.end, staging + own.end);
    operation_.Post(Phase::kCopied, copied_++);
    return true;
  }

  bool Reduce() {
    if (reduced_ == copied_ || !operation_.IsNext(Phase::kReduced, reduced_)) return false;
    if (!operation_.AllHave(Phase::kCopied, reduced_)) return false;
    const int64_t begin = Chunk(reduced_).begin;
    const Range own = Slice(reduced_, rank_);
    for (int rank = 0; rank < size_; ++rank)
      reducer_.Set(rank, operation_.Staging(rank, reduced_) + own.begin);
    std::byte* const staging = operation_.Staging(rank_, reduced_) + own.begin;
    if (gathered_) {
      reducer_.IntoMemory(staging, own.end - own.begin);
    } else {
      reducer_.Set(rank_, nullptr);
      reducer_.IntoOutputs(stream_, begin + own.begin, begin + own.end, staging);
    }
    operation_.Post(Phase::kReduced, reduced_++);
    return true;
  }

  bool Take() {
    if (taken_ == reduced_ || !operation_.IsNext(Phase::kTaken, taken_)) return false;
    if (!operation_.AllHave(Phase::kReduced, taken_)) return false;
    const int64_t begin = Chunk(taken_).begin;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_ && !gathered_) continue;
      const Range slice = Slice(taken_, rank);
      stream_.Unpack(begin + slice.begin, begin + slice.end,
                     operation_.Staging(rank, taken_) + slice.begin);
    }
    operation_.Post(Phase::kTaken, taken_++);
    return true;
  }

  const int rank_;
  const int size_;
  Reducer reducer_;
  const PieceStream stream_;
  // Small pieces are computed on in the staging, where they lie in one row: own slices are copied
  // in and out too. Large ones are read and written where they are.
  const bool gathered_;
  const int64_t chunk_bytes_;
  ChunkedOperation operation_;
  uint64_t copied_ = 0;  // chunks through each phase here; taken_ <= reduced_ <= copied_
  uint64_t reduced_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace

std::unique_ptr<StepMachine> MakeWindowAllreduce(Board* board, const CollectiveSpec& spec) {
  PieceStream stream(spec.pieces);
  const auto slot = static_cast<int64_t>(kSlotBytes);
  const int64_t most =
      spec.direct_bytes < 0 ? board->inline_bytes() : std::min(spec.direct_bytes, slot);
  if (stream.bytes() <= most) {
    const int64_t end = stream.bytes();
    return MakeInlineReduce(board, spec.reduction, std::move(stream), 0, end);
  }
  return std::make_unique<ChunkedAllreduce>(board, spec.reduction, std::move(stream));
}

}  // namespace hvd
