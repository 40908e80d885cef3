#include "collective/window_alltoall.h"

#include <algorithm>

#include "base/failpoint.h"
#include "collective/alltoall_parts.h"
#include "collective/piece_stream.h"
#include "collective/straight_copy.h"

namespace hvd {

namespace {

// The part of another rank's stream that is for this one.
struct Incoming {
  PieceStream outputs;
  int64_t begin = 0;  // in the sender's stream
  int64_t end = 0;
};

struct Streams {
  Streams(const AlltoallParts& parts, int rank)
      : incoming(static_cast<size_t>(parts.size)), own(PieceStream(parts.own)) {
    std::vector<Piece> sent;
    for (int step = 1; step < parts.size; ++step) {
      const std::vector<Piece>& to = parts.to[(rank + step) % parts.size];
      sent.insert(sent.end(), to.begin(), to.end());
    }
    outgoing = PieceStream(sent);
    for (int sender = 0; sender < parts.size; ++sender) {
      int64_t end = 0;
      for (int step = 1; step < parts.size; ++step) {
        const int receiver = (sender + step) % parts.size;
        const int64_t begin = end;
        end += parts.Bytes(sender, receiver);
        if (receiver == rank) incoming[sender] = {PieceStream(parts.from[sender]), begin, end};
      }
      ends.push_back(end);
    }
  }

  PieceStream outgoing;
  std::vector<Incoming> incoming;  // by sender; empty from the own rank
  std::vector<int64_t> ends;       // by sender: bytes of its stream
  StraightCopy own;
};

class InlineAlltoall : public StepMachine {
 public:
  InlineAlltoall(Board* board, Streams streams)
      : board_(board), operation_(board->NextOperation()), streams_(std::move(streams)) {}

  Step Advance() override {
    if (next_ == board_->size()) return streams_.own.Next() ? Step::kProgressed : Step::kDone;
    if (!begun_ && !Begin()) return Step::kBlocked;
    for (; next_ < board_->size(); ++next_) {
      const Incoming& part = streams_.incoming[next_];
      if (part.begin == part.end) continue;
      if (!board_->HasBegun(next_, operation_)) return Step::kBlocked;
      part.outputs.Unpack(0, part.outputs.bytes(), Slot(next_) + part.begin);
    }
    board_->EndInline();
    return Step::kProgressed;
  }

 private:
  bool Begin() {
    if (!board_->MayBeginInline(operation_)) return false;
    streams_.outgoing.Pack(0, streams_.outgoing.bytes(), Slot(board_->rank()));
    board_->BeginInline(operation_);
    begun_ = true;
    return true;
  }

  std::byte* Slot(int rank) const {
    return board_->Slot(rank, operation_, static_cast<size_t>(streams_.ends[rank]));
  }

  Board* const board_;
  const uint64_t operation_;
  Streams streams_;
  bool begun_ = false;
  int next_ = 0;  // the parts of the ranks below have been taken
};

constexpr int64_t kChunk = static_cast<int64_t>(kChunkBytes);

uint64_t ChunksUpTo(int64_t end) { return static_cast<uint64_t>((end + kChunk - 1) / kChunk); }

class ChunkedAlltoall : public StepMachine {
 public:
  ChunkedAlltoall(Board* board, Streams streams)
      : board_(board),
        operation_(board->NextOperation()),
        streams_(std::move(streams)),
        chunks_(ChunksUpTo(*std::max_element(streams_.ends.begin(), streams_.ends.end()))),
        own_chunks_(ChunksUpTo(streams_.outgoing.bytes())),
        first_(board->NextChunks(chunks_)) {
    for (const Incoming& part : streams_.incoming) {
      if (part.begin != part.end) last_taken_ = std::max(last_taken_, ChunksUpTo(part.end));
    }
  }

  Step Advance() override {
    if (!begun_) {
      if (!board_->MayBegin(operation_)) return Step::kBlocked;
      board_->Begin(operation_);
      begun_ = true;
    }
    // Nothing is reduced, nothing copied after the own stream's end, nothing taken after the last own part.
    Skip(Phase::kReduced, first_);
    Skip(Phase::kCopied, first_ + own_chunks_);
    Skip(Phase::kTaken, first_ + last_taken_);
    if (Take() || CopyIn()) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    if (streams_.own.Next()) return Step::kProgressed;
    return board_->AllHave(Phase::kTaken, first_ + chunks_) ? Step::kDone : Step::kBlocked;
  }

 private:
  // Passes the rest of the operation in a phase that has nothing left to do here.
  void Skip(Phase phase, uint64_t from) {
    const uint64_t end = first_ + chunks_;
    if (from != end && board_->Mine(phase) == from) board_->Post(phase, end);
  }

  bool CopyIn() {
    if (copied_ == own_chunks_ || board_->Mine(Phase::kCopied) != first_ + copied_) return false;
    if (!board_->MayStage(first_ + copied_)) return false;
    const int64_t begin = static_cast<int64_t>(copied_) * kChunk;
    const int64_t end = std::min(begin + kChunk, streams_.outgoing.bytes());
    streams_.outgoing.Pack(begin, end, board_->Staging(board_->rank(), first_ + copied_));
    board_->Post(Phase::kCopied, first_ + ++copied_);
    return true;
  }

  // Takes what one rank has for this one in the oldest chunk not yet taken.
  bool Take() {
    if (taken_ == last_taken_ || board_->Mine(Phase::kTaken) != first_ + taken_) return false;
    const int64_t chunk_begin = static_cast<int64_t>(taken_) * kChunk;
    for (bool copied = false; next_ < board_->size() && !copied; ++next_) {
      const Incoming& part = streams_.incoming[next_];
      const int64_t begin = std::max(chunk_begin, part.begin);
      const int64_t end = std::min(chunk_begin + kChunk, part.end);
      if (begin >= end) continue;
      if (!board_->Has(next_, Phase::kCopied, first_ + taken_ + 1)) return false;
      part.outputs.Unpack(begin - part.begin, end - part.begin,
                          board_->Staging(next_, first_ + taken_) + (begin - chunk_begin));
      copied = true;
    }
    if (next_ == board_->size()) {
      next_ = 0;
      board_->Post(Phase::kTaken, first_ + ++taken_);
    }
    return true;
  }

  Board* const board_;
  const uint64_t operation_;
  Streams streams_;
  const uint64_t chunks_;      // of the longest stream
  const uint64_t own_chunks_;  // of the own stream
  const uint64_t first_;       // number of the first chunk on the board
  uint64_t last_taken_ = 0;    // up to here the others' chunks have something for this rank
  bool begun_ = false;
  uint64_t copied_ = 0;  // own chunks staged
  uint64_t taken_ = 0;   // chunks of which everything is taken
  int next_ = 0;         // whose chunk taken_ is the next to look at
};

}  // namespace

std::unique_ptr<StepMachine> MakeWindowAlltoall(Board* board, const CollectiveSpec& spec) {
  Streams streams(AlltoallParts(spec, board->rank(), board->size()), board->rank());
  const int64_t longest = *std::max_element(streams.ends.begin(), streams.ends.end());
  if (longest <= board->inline_bytes()) return std::make_unique<InlineAlltoall>(board, std::move(streams));
  return std::make_unique<ChunkedAlltoall>(board, std::move(streams));
}

}  // namespace hvd
