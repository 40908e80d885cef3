#include <algorithm>

#include "collective/kernels/kernels.h"
#include "collective/piece_stream.h"
#include "collective/window/collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

class InlineAllreduce : public StepMachine {
 public:
  InlineAllreduce(Board* board, const Reduction& reduction, PieceStream stream)
      : board_(board),
        operation_(board->NextOperation()),
        reduction_(reduction),
        stream_(std::move(stream)),
        element_(static_cast<int64_t>(SizeOf(reduction.dtype))),
        sources_(static_cast<size_t>(board->size())) {}

  Step Advance() override {
    if (!begun_ && !Begin()) return Step::kBlocked;
    while (arrived_ < board_->size() && board_->HasBegun(arrived_, operation_)) ++arrived_;
    if (arrived_ < board_->size()) return Step::kBlocked;
    stream_.ForEach(0, stream_.bytes(),
                    [this](const std::byte*, std::byte* output, int64_t at, int64_t bytes) {
                      for (int rank = 0; rank < board_->size(); ++rank)
                        sources_[rank] = Slot(rank) + at;
                      void* destination = output;
                      kernels::Reduce(reduction_, sources_.data(), board_->size(), &destination, 1,
                                      bytes / element_);
                    });
    board_->EndInline();
    return Step::kDone;
  }

 private:
  bool Begin() {
    if (!board_->MayBeginInline(operation_)) return false;
    stream_.Pack(0, stream_.bytes(), Slot(board_->rank()));
    board_->BeginInline(operation_);
    begun_ = true;
    return true;
  }

  std::byte* Slot(int rank) const {
    return board_->Slot(rank, operation_, static_cast<size_t>(stream_.bytes()));
  }

  Board* const board_;
  const uint64_t operation_;
  const Reduction reduction_;
  const PieceStream stream_;
  const int64_t element_;
  std::vector<const void*> sources_;
  bool begun_ = false;
  int arrived_ = 0;  // the ranks below have begun
};

class ChunkedAllreduce : public StepMachine {
 public:
  ChunkedAllreduce(Board* board, const Reduction& reduction, PieceStream stream)
      : board_(board),
        operation_(board->NextOperation()),
        reduction_(reduction),
        stream_(std::move(stream)),
        gathered_(stream_.small_pieces()),
        element_(static_cast<int64_t>(SizeOf(reduction.dtype))),
        chunk_bytes_(ChunkBytes(stream_.bytes(), board->shape())),
        chunks_(static_cast<uint64_t>((stream_.bytes() + chunk_bytes_ - 1) / chunk_bytes_)),
        first_(board->NextChunks(chunks_)),
        sources_(static_cast<size_t>(board->size())) {}

  Step Advance() override {
    if (!begun_) {
      if (!board_->MayBegin(operation_)) return Step::kBlocked;
      board_->Begin(operation_);
      begun_ = true;
    }
    // What lets others go on comes first, oldest chunk first.
    if (Take() || Reduce() || CopyIn()) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    const bool done = taken_ == chunks_ && board_->AllHave(Phase::kTaken, first_ + chunks_);
    return done ? Step::kDone : Step::kBlocked;
  }

 private:
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
    const int64_t slice = ((bytes + board_->size() - 1) / board_->size() + 127) / 128 * 128;
    return {std::min(slice * rank, bytes), std::min(slice * (rank + 1), bytes)};
  }

  std::byte* Staging(int rank, uint64_t chunk) const {
    return board_->Staging(rank, first_ + chunk);
  }

  bool CopyIn() {
    if (copied_ == chunks_ || board_->Mine(Phase::kCopied) != first_ + copied_) return false;
    if (!board_->MayStage(first_ + copied_)) return false;
    const Range chunk = Chunk(copied_);
    const Range own = Slice(copied_, board_->rank());
    std::byte* staging = Staging(board_->rank(), copied_);
    stream_.Pack(chunk.begin, chunk.begin + (gathered_ ? own.end : own.begin), staging);
    stream_.Pack(chunk.begin + own.end, chunk.end, staging + own.end);
    board_->Post(Phase::kCopied, first_ + ++copied_);
    return true;
  }

  bool Reduce() {
    if (reduced_ == copied_ || board_->Mine(Phase::kReduced) != first_ + reduced_) return false;
    if (!board_->AllHave(Phase::kCopied, first_ + reduced_ + 1)) return false;
    const int64_t begin = Chunk(reduced_).begin;
    const Range own = Slice(reduced_, board_->rank());
    if (gathered_) {
      std::byte* staging = Staging(board_->rank(), reduced_) + own.begin;
      ReducePart(staging, staging, own.begin, (own.end - own.begin) / element_);
    } else {
      stream_.ForEach(begin + own.begin, begin + own.end,
                      [&](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
                        ReducePart(input, output, own.begin + at, bytes / element_);
                      });
    }
    board_->Post(Phase::kReduced, first_ + ++reduced_);
    return true;
  }

  void ReducePart(const std::byte* input, std::byte* output, int64_t offset, int64_t elements) {
    for (int rank = 0; rank < board_->size(); ++rank) {
      sources_[rank] = rank == board_->rank() ? input : Staging(rank, reduced_) + offset;
    }
    void* const destinations[] = {Staging(board_->rank(), reduced_) + offset, output};
    kernels::Reduce(reduction_, sources_.data(), board_->size(), destinations, gathered_ ? 1 : 2,
                    elements);
  }

  bool Take() {
    if (taken_ == reduced_ || board_->Mine(Phase::kTaken) != first_ + taken_) return false;
    if (!board_->AllHave(Phase::kReduced, first_ + taken_ + 1)) return false;
    const int64_t begin = Chunk(taken_).begin;
    for (int rank = 0; rank < board_->size(); ++rank) {
      if (rank == board_->rank() && !gathered_) continue;
      const Range slice = Slice(taken_, rank);
      stream_.Unpack(begin + slice.begin, begin + slice.end, Staging(rank, taken_) + slice.begin);
    }
    board_->Post(Phase::kTaken, first_ + ++taken_);
    return true;
  }

  Board* const board_;
  const uint64_t operation_;
  const Reduction reduction_;
  const PieceStream stream_;
  // Small pieces are computed on in the staging, where they lie in one row: own slices are copied
  // in and out too. Large ones are read and written where they are.
  const bool gathered_;
  const int64_t element_;
  const int64_t chunk_bytes_;
  const uint64_t chunks_;
  const uint64_t first_;  // number of the first chunk on the board
  std::vector<const void*> sources_;
  bool begun_ = false;
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
    return std::make_unique<InlineAllreduce>(board, spec.reduction, std::move(stream));
  }
  return std::make_unique<ChunkedAllreduce>(board, spec.reduction, std::move(stream));
}

}  // namespace hvd
