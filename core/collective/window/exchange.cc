// What carries data without arithmetic: allgather, broadcast and alltoall.

#include <algorithm>

#include "collective/piece_stream.h"
#include "collective/window/collectives.h"
#include "collective/window/staged_exchange.h"

namespace hvd {

namespace {

// What of another rank's stream is for this one.
struct Incoming {
  PieceStream outputs;
  int64_t begin = 0;  // in the sender's stream
  int64_t end = 0;
  int64_t length = 0;  // of that stream
};

// Every rank gives one stream, and takes some of the others'.
struct Streams {
  PieceStream given;
  std::vector<Incoming> incoming;   // by sender; nothing from the own rank
  StraightCopy own{PieceStream()};  // what stays here and is given to nobody
  bool keeps_given = false;         // what is given is also copied to the own outputs

  int64_t Longest() const {
    int64_t longest = 0;
    for (const Incoming& part : incoming) longest = std::max(longest, part.length);
    return longest;
  }
};

// Everybody takes all of what others give.
Streams OfParts(std::vector<PieceStream> parts, int rank) {
  Streams streams;
  streams.incoming.reserve(parts.size());
  for (PieceStream& part : parts) {
    const int64_t bytes = part.bytes();
    streams.incoming.push_back({std::move(part), 0, bytes, bytes});
  }
  Incoming& own = streams.incoming[rank];
  own.end = 0;
  streams.given = std::move(own.outputs);
  streams.keeps_given = true;
  return streams;
}

Streams OfAlltoall(AlltoallParts parts, int rank) {
  Streams streams;
  const size_t size = parts.to.size();
  for (size_t step = 1; step < size; ++step) streams.given.Append(parts.to[(rank + step) % size]);
  for (size_t sender = 0; sender < size; ++sender) {
    const AlltoallSender& told = parts.senders[sender];
    const int64_t end = told.before + parts.from[sender].bytes();
    streams.incoming.push_back({std::move(parts.from[sender]), told.before, end, told.stream});
  }
  streams.own = StraightCopy(std::move(parts.own));
  return streams;
}

class InlineExchange : public StepMachine {
 public:
  InlineExchange(Board* board, Streams streams) : operation_(board), streams_(std::move(streams)) {}

 private:
  Step TakeStep() override {
    if (!begun_ && !Begin()) return Step::kBlocked;
    const auto size = static_cast<int>(streams_.incoming.size());
    if (next_ == size) return streams_.own.Next() ? Step::kProgressed : Step::kDone;
    for (; next_ < size; ++next_) {
      const Incoming& part = streams_.incoming[next_];
      if (part.begin == part.end) continue;
      if (!operation_.HasBegun(next_)) return Step::kBlocked;
      part.outputs.Unpack(0, part.end - part.begin,
                          operation_.Slot(next_, part.length) + part.begin);
    }
    operation_.End();
    return streams_.own.done() ? Step::kDone : Step::kProgressed;
  }

  bool Begin() {
    begun_ = operation_.Begin(streams_.given);
    if (begun_ && streams_.keeps_given) streams_.given.Keep(0, streams_.given.bytes());
    return begun_;
  }

  SlotOperation operation_;
  Streams streams_;
  bool begun_ = false;
  int next_ = 0;  // the parts of the ranks below have been taken
};

uint64_t ChunksOf(const Board* board, int64_t bytes) {
  return CountChunks(bytes, board->shape().chunk_bytes);
}

// Up to here the streams of the other ranks have something for this one.
int64_t BytesNeeded(const Streams& streams) {
  int64_t last = 0;
  for (const Incoming& part : streams.incoming) {
    if (part.begin != part.end) last = std::max(last, part.end);
  }
  return last;
}

class ChunkedExchange : public StagedExchange {
 public:
  ChunkedExchange(Board* board, Streams streams)
      : StagedExchange(board, ChunksOf(board, streams.Longest()),
                       ChunksOf(board, streams.given.bytes()),
                       ChunksOf(board, BytesNeeded(streams))),
        streams_(std::move(streams)),
        chunk_bytes_(board->shape().chunk_bytes) {}

 private:
  int64_t Begin(uint64_t chunk) const { return static_cast<int64_t>(chunk) * chunk_bytes_; }
  int64_t End(uint64_t chunk) const {
    return std::min(Begin(chunk) + chunk_bytes_, streams_.given.bytes());
  }

  void Stage(uint64_t chunk, std::byte* staging) override {
    streams_.given.Pack(Begin(chunk), End(chunk), staging);
  }
  void Given(uint64_t chunk) override {
    if (streams_.keeps_given) streams_.given.Keep(Begin(chunk), End(chunk));
  }

  // What one rank has for this one.
  Taken Take(uint64_t chunk) override {
    for (bool copied = false; next_ < size() && !copied; ++next_) {
      const Incoming& part = streams_.incoming[next_];
      const int64_t begin = std::max(Begin(chunk), part.begin);
      const int64_t end = std::min(Begin(chunk) + chunk_bytes_, part.end);
      if (begin >= end) continue;
      if (!HasStaged(next_, chunk)) return Taken::kNothing;
      part.outputs.Unpack(begin - part.begin, end - part.begin,
                          Staging(next_, chunk) + (begin - Begin(chunk)));
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

std::unique_ptr<StepMachine> Make(Board* board, Streams streams) {
  if (streams.Longest() <= board->inline_bytes())
    return std::make_unique<InlineExchange>(board, std::move(streams));
  return std::make_unique<ChunkedExchange>(board, std::move(streams));
}

}  // namespace

std::unique_ptr<StepMachine> MakeWindowAllgather(Board* board, const CollectiveSpec& spec) {
  return Make(board, OfParts(GatherParts(spec, board->rank(), board->size()), board->rank()));
}

std::unique_ptr<StepMachine> MakeWindowBroadcast(Board* board, const CollectiveSpec& spec) {
  return Make(board, OfParts(BroadcastParts(spec, board->size()), board->rank()));
}

std::unique_ptr<StepMachine> MakeWindowAlltoall(Board* board, const CollectiveSpec& spec) {
  return Make(board, OfAlltoall(AlltoallParts(spec, board->rank(), board->size()), board->rank()));
}

}  // namespace hvd
