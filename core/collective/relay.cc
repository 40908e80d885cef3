// What goes over links without arithmetic, alike to everybody: an allgather round a ring, a
// broadcast along a tree. Each rank has frames from one other, and hands them on in the order in
// which they come.

#include "base/tree.h"
#include "collective/frame_flow.h"
#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// What one rank has to do with the frames of an operation.
struct RelayPlan {
  std::vector<PieceStream> streams;  // that they are of
  uint32_t frames = 0;               // how many there are
  int from = 0;                      // the position that they come from
  Frames received;
  std::vector<int> to;  // the positions that get them
  Frames sent;          // to each
  PieceStream own;      // what is here from the beginning
};

class Relay : public StepMachine {
 public:
  Relay(const Communicator& comm, uint64_t sequence, RelayPlan plan)
      : plan_(std::move(plan)),
        own_(plan_.own),
        exchange_(comm, sequence),
        here_(plan_.frames, true) {
    for (const Frame& frame : plan_.received) here_[frame.number] = false;
    if (!plan_.received.empty()) exchange_.Receive(plan_.from, plan_.received);
    for (const int peer : plan_.to) exchange_.Send(peer, plan_.sent);
    status_ = exchange_.BorrowRoom();
  }

 private:
  static constexpr int kMostTaken = kStepBytes / kFrameBytes;

  // As much as one step may of what has arrived, so that it is sent on together: the fewer calls of
  // the system, the less it takes (transport/tcp/writer).
  Step TakeStep() override {
    bool moved = exchange_.PostReceives();
    for (int taken = 0; taken < kMostTaken; ++taken) {
      const Frame* frame = exchange_.Take(&status_);
      if (frame == nullptr) break;
      failpoint::Hit("chunk");
      here_[frame->number] = true;
      moved = true;
    }
    while (exchange_.SendNext(here_)) moved = true;
    if (moved || own_.Next()) return Step::kProgressed;
    return exchange_.done() ? Step::kDone : Step::kBlocked;
  }

  const RelayPlan plan_;
  StraightCopy own_;
  FrameExchange exchange_;
  std::vector<bool> here_;  // by number
};

}  // namespace

std::unique_ptr<StepMachine> MakeRingAllgather(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  RelayPlan plan;
  std::vector<PieceStream> parts = GatherParts(spec, comm.rank(), comm.size());
  plan.own = parts[static_cast<size_t>(comm.rank())];
  plan.from = comm.rank() - 1;
  plan.to = {comm.rank() + 1};
  for (PieceStream& part : parts) plan.streams.push_back(part.Relayed());
  plan.streams[static_cast<size_t>(comm.rank())] = plan.own;
  // In the order of arrival; the own one, which comes round last, is here before.
  for (int step = -1; step + 1 < comm.size(); ++step) {
    const int block = RingBlock(comm.rank(), step, comm.size());
    const Frames frames = Cut(plan.streams[static_cast<size_t>(block)], kFrameBytes, plan.frames);
    plan.frames += static_cast<uint32_t>(frames.size());
    const auto add = [&](Frames* to) { to->insert(to->end(), frames.begin(), frames.end()); };
    if (step >= 0) add(&plan.received);
    if (step + 2 < comm.size()) add(&plan.sent);
  }
  return std::make_unique<Relay>(comm, spec.sequence, std::move(plan));
}

std::unique_ptr<StepMachine> MakeTreeBroadcast(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  RelayPlan plan;
  const int root = spec.root.value();
  const Tree tree((comm.rank() - root + comm.size()) % comm.size(), comm.size());  // around it
  const PieceStream stream(spec.pieces);
  plan.streams.push_back(tree.is_root() ? stream : stream.Relayed());
  plan.sent = Cut(plan.streams[0], kFrameBytes, 0);
  plan.frames = static_cast<uint32_t>(plan.sent.size());
  plan.from = tree.parent() + root;
  if (tree.is_root()) plan.own = stream;
  if (!tree.is_root()) plan.received = plan.sent;
  // The child with the largest subtree first, because its way is the longest.
  const std::vector<int> children = tree.Children();
  for (auto child = children.rbegin(); child != children.rend(); ++child)
    plan.to.push_back(*child + root);
  return std::make_unique<Relay>(comm, spec.sequence, std::move(plan));
}

}  // namespace hvd
