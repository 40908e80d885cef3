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
        chunks_(stream_.bytes(), ChunkBytes(stream_.bytes(), board->shape()), size_),
        operation_(board, chunks_.count()) {}

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

  // At least two chunks where there is enough for that, so that there is something to overlap;
  // whole cache lines of every type. Half of a single byte is rounded up.
  static int64_t ChunkBytes(int64_t bytes, const BoardShape& shape) {
    return std::min(WholeLines((bytes + 1) / 2), shape.chunk_bytes);
  }

  bool CopyIn() {
    if (copied_ == operation_.chunks() || !operation_.IsNext(Phase::kCopied, copied_)) return false;
    if (!operation_.MayStage(copied_)) return false;
    const Range chunk = chunks_[copied_];
    const Range own = chunks_.Part(copied_, rank_);
    std::byte* staging = operation_.Staging(rank_, copied_);
    stream_.Pack(chunk.begin, chunk.begin + (gathered_ ? own.end : own.begin), staging);
    stream_.Pack(chunk.begin + own.end, chunk.end, staging + own.end);
    operation_.Post(Phase::kCopied, copied_++);
    return true;
  }

  bool Reduce() {
    if (reduced_ == copied_ || !operation_.IsNext(Phase::kReduced, reduced_)) return false;
    if (!operation_.AllHave(Phase::kCopied, reduced_)) return false;
    const int64_t begin = chunks_[reduced_].begin;
    const Range own = chunks_.Part(reduced_, rank_);
    for (int rank = 0; rank < size_; ++rank)
      reducer_.Set(rank, operation_.Staging(rank, reduced_) + own.begin);
    std::byte* const staging = operation_.Staging(rank_, reduced_) + own.begin;
    if (gathered_) {
      reducer_.IntoMemory(staging, own.length());
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
    const int64_t begin = chunks_[taken_].begin;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_ && !gathered_) continue;
      const Range slice = chunks_.Part(taken_, rank);
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
  const Chunks chunks_;  // a part is the slice of a rank
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
