// What carries data without arithmetic: allgather, broadcast and alltoall.

#include <algorithm>

#include "collective/piece_stream.h"
#include "collective/window/collectives.h"
#include "collective/window/staged_exchange.h"

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

uint64_t Chunks(const Board* board, int64_t bytes) {
  return CountChunks(bytes, board->shape().chunk_bytes);
}

class ChunkedAllgather : public StagedExchange {
 public:
  ChunkedAllgather(Board* board, std::vector<PieceStream> parts)
      : StagedExchange(board, Chunks(board, LargestBytes(parts)),
                       Chunks(board, parts[board->rank()].bytes()),
                       Chunks(board, LargestBytes(parts, board->rank()))),
        parts_(std::move(parts)),
        chunk_bytes_(board->shape().chunk_bytes) {}

 private:
  const PieceStream& own() const { return parts_[rank()]; }
  int64_t Begin(uint64_t chunk) const { return static_cast<int64_t>(chunk) * chunk_bytes_; }
  int64_t End(uint64_t chunk, const PieceStream& part) const {
    return std::min(Begin(chunk) + chunk_bytes_, part.bytes());
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
  const int64_t chunk_bytes_;
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
      const AlltoallSender& told = parts.senders[static_cast<size_t>(sender)];
      ends.push_back(told.stream);
      if (sender == rank) continue;
      PieceStream outputs(parts.from[sender]);
      const int64_t end = told.before + outputs.bytes();
      incoming[sender] = {std::move(outputs), told.before, end};
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

// Up to here the streams of the other ranks have something for this one.
int64_t BytesNeeded(const Streams& streams) {
  int64_t last = 0;
  for (const Incoming& part : streams.incoming) {
    if (part.begin != part.end) last = std::max(last, part.end);
  }
  return last;
}

class ChunkedAlltoall : public StagedExchange {
 public:
  ChunkedAlltoall(Board* board, Streams streams, int64_t longest)
      : StagedExchange(board, Chunks(board, longest), Chunks(board, streams.outgoing.bytes()),
                       Chunks(board, BytesNeeded(streams))),
        streams_(std::move(streams)),
        chunk_bytes_(board->shape().chunk_bytes) {}

 private:
  void Stage(uint64_t chunk, std::byte* staging) override {
    const int64_t begin = static_cast<int64_t>(chunk) * chunk_bytes_;
    streams_.outgoing.Pack(begin, std::min(begin + chunk_bytes_, streams_.outgoing.bytes()),
                           staging);
  }

  // What one rank has for this one.
  Taken Take(uint64_t chunk) override {
    const int64_t chunk_begin = static_cast<int64_t>(chunk) * chunk_bytes_;
    for (bool copied = false; next_ < size() && !copied; ++next_) {
      const Incoming& part = streams_.incoming[next_];
      const int64_t begin = std::max(chunk_begin, part.begin);
      const int64_t end = std::min(chunk_begin + chunk_bytes_, part.end);
      if (begin >= end) continue;
      if (!HasStaged(next_, chunk)) return Taken::kNothing;
      part.outputs.Unpack(begin - part.begin, end - part.begin,
                          Staging(next_, chunk) + (begin - chunk_begin));
      copied = true;
    }
    if (next_ < size()) return Taken::kPart;
    next_ = 0;
    return Taken::kAll;
  }

  bool WorkAlone() override { return streams_.own.Next(); }

  Streams streams_;
  const int64_t chunk_bytes_;
  int next_ = 0;  // whose part of the chunk is the next to look at
};

}  // namespace

std::unique_ptr<StepMachine> MakeWindowAlltoall(Board* board, const CollectiveSpec& spec) {
  Streams streams(AlltoallParts(spec, board->rank(), board->size()), board->rank());
  const int64_t longest = *std::max_element(streams.ends.begin(), streams.ends.end());
  if (longest <= board->inline_bytes())
    return std::make_unique<InlineAlltoall>(board, std::move(streams));
  return std::make_unique<ChunkedAlltoall>(board, std::move(streams), longest);
}

}  // namespace hvd
