#include "collective/window_allgather.h"

#include <algorithm>

#include "collective/piece_stream.h"
#include "collective/staged_exchange.h"

namespace hvd {

namespace {

class InlineAllgather : public StepMachine {
 public:
  InlineAllgather(Board* board, std::vector<PieceStream> parts)
      : board_(board), operation_(board->NextOperation()), parts_(std::move(parts)) {}

  Step Advance() override {
    if (!begun_ && !Begin()) return Step::kBlocked;
    for (; next_ < board_->size(); ++next_) {
      const PieceStream& part = parts_[next_];
      if (next_ == board_->rank() || part.bytes() == 0) continue;
      if (!board_->HasBegun(next_, operation_)) return Step::kBlocked;
      part.Unpack(0, part.bytes(), Slot(next_));
    }
    board_->EndInline();
    return Step::kDone;
  }

 private:
  bool Begin() {
    if (!board_->MayBeginInline(operation_)) return false;
    const PieceStream& own = parts_[board_->rank()];
    own.Pack(0, own.bytes(), Slot(board_->rank()));
    board_->BeginInline(operation_);
    own.Keep(0, own.bytes());
    begun_ = true;
    return true;
  }

  std::byte* Slot(int rank) const {
    return board_->Slot(rank, operation_, static_cast<size_t>(parts_[rank].bytes()));
  }

  Board* const board_;
  const uint64_t operation_;
  const std::vector<PieceStream> parts_;
  bool begun_ = false;
  int next_ = 0;  // the parts of the ranks below have been taken
};

constexpr int64_t kChunk = static_cast<int64_t>(kChunkBytes);

int64_t Largest(const std::vector<PieceStream>& parts, int but) {
  int64_t largest = 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (static_cast<int>(rank) != but) largest = std::max(largest, parts[rank].bytes());
  }
  return largest;
}

class ChunkedAllgather : public StagedExchange {
 public:
  ChunkedAllgather(Board* board, std::vector<PieceStream> parts)
      : StagedExchange(board, CountChunks(Largest(parts, -1)), CountChunks(parts[board->rank()].bytes()),
                       CountChunks(Largest(parts, board->rank()))),
        parts_(std::move(parts)) {}

 private:
  const PieceStream& own() const { return parts_[rank()]; }
  static int64_t Begin(uint64_t chunk) { return static_cast<int64_t>(chunk) * kChunk; }
  static int64_t End(uint64_t chunk, const PieceStream& part) {
    return std::min(Begin(chunk) + kChunk, part.bytes());
  }

  void Stage(uint64_t chunk, std::byte* staging) override {
    own().Pack(Begin(chunk), End(chunk, own()), staging);
  }
  void Given(uint64_t chunk) override { own().Keep(Begin(chunk), End(chunk, own())); }

  // One rank's part at a time.
  Taken Take(uint64_t chunk) override {
    const PieceStream& part = parts_[next_];
    if (next_ != rank() && Begin(chunk) < part.bytes()) {
      if (!HasStaged(next_, chunk)) return Taken::kNothing;
      part.Unpack(Begin(chunk), End(chunk, part), Staging(next_, chunk));
    }
    next_ = (next_ + 1) % size();
    return next_ == 0 ? Taken::kAll : Taken::kPart;
  }

  const std::vector<PieceStream> parts_;
  int next_ = 0;  // whose part of the chunk is the next to take
};

std::unique_ptr<StepMachine> Make(Board* board, std::vector<PieceStream> parts) {
  const bool fits = std::all_of(parts.begin(), parts.end(), [=](const PieceStream& part) {
    return part.bytes() <= board->inline_bytes();
  });
  if (fits) return std::make_unique<InlineAllgather>(board, std::move(parts));
  return std::make_unique<ChunkedAllgather>(board, std::move(parts));
}

}  // namespace

std::unique_ptr<StepMachine> MakeWindowAllgather(Board* board, const CollectiveSpec& spec) {
  return Make(board, GatherParts(spec, board->rank(), board->size()));
}

std::unique_ptr<StepMachine> MakeWindowBroadcast(Board* board, const CollectiveSpec& spec) {
  return Make(board, BroadcastParts(spec, board->size()));
}

}  // namespace hvd
