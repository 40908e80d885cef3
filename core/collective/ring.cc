// The ring with arithmetic: an allreduce goes round twice, a reducescatter once.

#include <algorithm>

#include "collective/piece_stream.h"
#include "collective/queues.h"
#include "collective/reducer.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// A frame's place in the stream that goes round.
struct RingFrame {
  int64_t begin = 0;
  int64_t end = 0;
  int step = 0;  // number of the block it belongs to, in the order of arrival; -1 = the own block
  size_t bytes() const { return static_cast<size_t>(end - begin); }
};

// So many frames of every block go round before the next ones do, so that what is on hold is
// bounded whatever the size of the stream.
constexpr size_t kRoundFrames = 8;
// Received frames that may wait until they have been sent on. With more than a round's frames a
// rank always has a slot for the frame that the slowest rank waits for (see RingReduce).
constexpr size_t kRingSlots = 2 * kRoundFrames;
static_assert(kRingSlots > kRoundFrames);

// What one position sends and receives, in this order. Message i of a link is i of both ends'.
struct Schedule {
  static constexpr size_t kNone = ~size_t{0};
  struct Sending {
    RingFrame frame;
    size_t source;  // the received frame that is sent on; kNone = of the own block
  };
  struct Receiving {
    RingFrame frame;
    size_t sent_as;  // its place among the sends; kNone = it stays here
  };

  // Of `steps` steps over blocks [ends[b-1], ends[b]) of a stream: every rank sends its own block,
  // and then what it receives, in the order in which it receives it.
  Schedule(int rank, int size, const std::vector<int64_t>& ends, int steps) {
    const int64_t round = static_cast<int64_t>(kRoundFrames) * kFrameBytes;
    int64_t longest = 0;
    for (int block = 0; block < size; ++block) longest = std::max(longest, Length(ends, block));
    for (int64_t from = 0; from < longest; from += round) {
      ForEachFrame(ends, rank, from, from + round, -1, [&](const RingFrame& frame) {
        sends.push_back({frame, kNone});
      });
      for (int step = 0; step < steps; ++step) {
        const bool goes_on = step + 1 < steps;
        const auto add = [&](const RingFrame& frame) {
          if (goes_on) sends.push_back({frame, receives.size()});
          receives.push_back({frame, goes_on ? sends.size() - 1 : kNone});
        };
        ForEachFrame(ends, RingBlock(rank, step, size), from, from + round, step, add);
      }
    }
  }

  std::vector<Sending> sends;
  std::vector<Receiving> receives;

 private:
  static int64_t Begin(const std::vector<int64_t>& ends, int block) {
    return block == 0 ? 0 : ends[static_cast<size_t>(block) - 1];
  }
  static int64_t Length(const std::vector<int64_t>& ends, int block) {
    return ends[static_cast<size_t>(block)] - Begin(ends, block);
  }
  // Of [from, to) of a block.
  template <typename Add>
  static void ForEachFrame(const std::vector<int64_t>& ends, int block, int64_t from, int64_t to,
                           int step, Add add) {
    const int64_t begin = Begin(ends, block);
    const int64_t end = std::min(begin + to, ends[static_cast<size_t>(block)]);
    for (int64_t at = begin + from; at < end; at += kFrameBytes)
      add(RingFrame{at, std::min(at + kFrameBytes, end), step});
  }
};

// Whether a block stays with the rank that finishes it or is then handed round to everybody.
enum class Finished { kStays, kGoesRound };

// Every rank adds its own input to what arrives, straight from the tensors. Position r finishes
// block r + 1 (modulo the size): this last hop also applies divisor and postscale, and writes the
// outputs. Floats of 16 and 8 bits are rounded once per hop. Several frames are under way at once,
// so receiving, working and sending overlap.
//
// An output may be the very memory of its input.
//
// A received frame takes a slot, which is not given again before the frame has been worked on and,
// where it is sent on, sent. Nobody waits for a slot for ever. Every link carries frames in the
// order of (round, step, place in the round). Take the rank whose next frame to send comes first in
// that order. What it sends on has come over the link before in an earlier place, so its
// predecessor has sent it, and everything that this rank has on hold would come later: so it has a
// free slot, receives the frame and posts it. Its successor's next send comes no earlier, so what
// that one holds are frames received before this one and to be sent on after it: those of one block
// of one round at most, which is fewer than kRingSlots. So it reads the frame.
class RingReduce : public StepMachine {
 public:
  RingReduce(const Communicator& comm, const CollectiveSpec& spec, PieceStream stream,
             const std::vector<int64_t>& ends, Finished finished)
      : comm_(comm),
        stream_(std::move(stream)),
        last_combining_(comm.size() - 2),
        goes_round_(finished == Finished::kGoesRound),
        prescales_(spec.reduction.prescale != 1.0),
        schedule_(comm.rank(), comm.size(), ends, (comm.size() - 1) * (goes_round_ ? 2 : 1)),
        from_(&comm_, comm.rank() - 1, spec.sequence),
        to_(&comm_, comm.rank() + 1, spec.sequence),
        scale_(spec.reduction.First(), 1),
        combine_(spec.reduction.Between(), 2),
        finish_(spec.reduction.Last(), 2) {
    status_ = comm_.scratch->Borrow(kScratchBytes, &scratch_);
  }

 private:
  static constexpr int kMostTaken = kStepBytes / kFrameBytes;
  // Scratch: the slots of received frames, places for own frames on their way, and one for a scaled
  // input.
  static constexpr size_t kScratchBytes = (kRingSlots + kInFlight + 1) * kFrameBytes;

  // As much as one step may of what has arrived, so that it is sent on together: the fewer calls of
  // the system, the less it takes (transport/tcp/writer).
  Step TakeStep() override {
    bool moved = PostReceives();
    for (int taken = 0; taken < kMostTaken && from_.HasArrived(); ++taken) {
      const size_t index = from_.taken();
      status_ = from_.Take();
      if (!status_.ok()) return Step::kFailed;
      failpoint::Hit("chunk");
      WorkOn(index, schedule_.receives[index].frame);
      moved = true;
    }
    while (PostSend()) moved = true;
    if (moved) return Step::kProgressed;
    const bool done =
        from_.taken() == schedule_.receives.size() && to_.sent() == schedule_.sends.size();
    return done ? Step::kDone : Step::kBlocked;
  }

  std::byte* Place(size_t place) const { return scratch_.data() + place * kFrameBytes; }
  std::byte* Slot(size_t index) const { return Place(index % kRingSlots); }

  // Where received frame `index` lies while it goes round, in one piece: a finished one where it
  // belongs, if it does so in one.
  std::byte* Memory(size_t index, const RingFrame& frame, bool finished) const {
    std::byte* output = finished ? stream_.Output(frame.begin, frame.end) : nullptr;
    return output != nullptr ? output : Slot(index);
  }

  bool HasSlot(size_t receive) {
    if (receive < kRingSlots) return true;
    const size_t before = receive - kRingSlots;  // that had the slot
    const size_t sent_as = schedule_.receives[before].sent_as;
    return before < from_.taken() && (sent_as == Schedule::kNone || sent_as < to_.sent());
  }

  bool PostReceives() {
    const size_t before = from_.posted();
    for (size_t i = before; i < schedule_.receives.size() && from_.MayPost() && HasSlot(i); ++i) {
      const RingFrame& frame = schedule_.receives[i].frame;
      from_.Post(Memory(i, frame, frame.step > last_combining_), frame.bytes());
    }
    return from_.posted() != before;
  }

  bool PostSend() {
    const size_t next = to_.posted();
    if (next == schedule_.sends.size() || !to_.MayPost()) return false;
    const auto& [frame, source] = schedule_.sends[next];
    if (source == Schedule::kNone) {
      to_.Post(OwnInput(next, frame), frame.bytes());
    } else if (source < from_.taken()) {
      to_.Post(Memory(source, frame, frame.step >= last_combining_), frame.bytes());
    }
    return to_.posted() != next;
  }

  // Straight from the input, also when the output is the same memory: it is written when the
  // finished block arrives, which has this frame in it.
  const std::byte* OwnInput(size_t send, const RingFrame& frame) {
    const std::byte* input = prescales_ ? nullptr : stream_.Input(frame.begin, frame.end);
    if (input != nullptr) return input;
    std::byte* to = Place(kRingSlots + send % kInFlight);
    scale_.IntoMemory(stream_, frame.begin, frame.end, to);
    return to;
  }

  // Combines what has arrived with the own input, or puts it where it belongs.
  void WorkOn(size_t index, const RingFrame& frame) {
    std::byte* const arrived = Slot(index);
    if (frame.step > last_combining_) {
      if (Memory(index, frame, true) == arrived) stream_.Unpack(frame.begin, frame.end, arrived);
      return;
    }
    std::byte* const scaled = prescales_ ? Place(kRingSlots + kInFlight) : nullptr;
    if (prescales_) scale_.IntoMemory(stream_, frame.begin, frame.end, scaled);
    const bool last = frame.step == last_combining_;
    Reducer& reducer = last ? finish_ : combine_;
    reducer.Set(0, arrived);
    reducer.Set(1, scaled);
    if (!last) return reducer.IntoMemory(stream_, frame.begin, frame.end, arrived);
    const bool sent_from_slot = goes_round_ && Memory(index, frame, true) == arrived;
    reducer.IntoOutputs(stream_, frame.begin, frame.end, sent_from_slot ? arrived : nullptr);
  }

  const Communicator comm_;
  const PieceStream stream_;
  const int last_combining_;  // the step whose frames are finished here
  const bool goes_round_;
  const bool prescales_;
  const Schedule schedule_;
  ReceiveQueue from_;  // the predecessor
  SendQueue to_;       // the successor
  Reducer scale_;
  Reducer combine_;
  Reducer finish_;
  ScratchPool::Lease scratch_;
};

// Where each rank's block ends: whole elements, as even as possible.
std::vector<int64_t> EvenBlocks(int64_t bytes, int64_t element, int size) {
  std::vector<int64_t> ends;
  for (int rank = 0; rank < size; ++rank)
    ends.push_back(EvenPart(bytes / element, rank, size).end * element);
  return ends;
}

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllreduce(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  PieceStream stream(spec.pieces);
  const auto element = static_cast<int64_t>(SizeOf(spec.reduction.dtype));
  const std::vector<int64_t> ends = EvenBlocks(stream.bytes(), element, comm.size());
  return std::make_unique<RingReduce>(comm, spec, std::move(stream), ends, Finished::kGoesRound);
}

std::unique_ptr<StepMachine> MakeRingReducescatter(const Communicator& comm,
                                                   const CollectiveSpec& spec) {
  const int size = comm.size();
  const std::vector<PieceStream> parts = ScatterParts(spec, comm.rank(), size);
  if (LargestBytes(parts) <= kDirectBytes) return MakeDirectReducescatter(comm, spec);
  // Block b is finished on position b - 1, so that one's part it is.
  PieceStream stream;
  std::vector<int64_t> ends;
  for (int block = 0; block < size; ++block) {
    stream.Append(parts[static_cast<size_t>((block + size - 1) % size)]);
    ends.push_back(stream.bytes());
  }
  return std::make_unique<RingReduce>(comm, spec, std::move(stream), ends, Finished::kStays);
}

}  // namespace hvd
