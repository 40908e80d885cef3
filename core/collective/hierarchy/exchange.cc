// What carries data without arithmetic on several hosts: allgather and broadcast.

#include <algorithm>
#include <map>

#include "base/tree.h"
#include "collective/frame_flow.h"
#include "collective/hierarchy/hierarchy.h"
#include "collective/transport_collectives.h"
#include "collective/window/staged_exchange.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// Up to here a broadcast goes along a tree of ranks: nobody waits until all of a host have it.
constexpr int64_t kTreeBytes = 128 << 10;

// Frames are not cut smaller for the sake of overlap.
constexpr int64_t kLeastFrame = 16 << 10;

// Half of what goes one way, so that there is something to overlap; whole cache lines. A chunk of
// the board holds it.
int64_t FrameBytes(int64_t bytes, const BoardShape& shape) {
  const int64_t most = std::min(kFrameBytes, shape.chunk_bytes);
  return std::clamp(WholeLines(bytes / 2), std::min(kLeastFrame, most), most);
}

// Who moves what. Every frame of the operation comes to each host once, where one rank hands it to
// the others.
struct Plan {
  std::vector<PieceStream> streams;  // that the frames are of
  uint32_t frames = 0;               // of the operation
  std::vector<Frames> given;         // by local rank: what it hands to the others on this host
  std::map<int, Frames> received;    // by the position of the sender
  std::map<int, Frames> sent;        // by the position of the receiver
  Frames own;                        // what is here from the beginning
};

void Append(const Frames& frames, Frames* to) {
  to->insert(to->end(), frames.begin(), frames.end());
}

// Rank r's part goes straight from r to one rank of each other host: to that of r's local rank
// where there is one.
Plan PlanAllgather(const Topology& topology, const BoardShape& shape, const CollectiveSpec& spec,
                   Position self) {
  Plan plan;
  const std::vector<PieceStream> parts = GatherParts(spec, self.value(), topology.size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    plan.streams.push_back(rank == self.index() ? parts[rank] : parts[rank].Relayed());
  }
  std::vector<Frames> cut;  // by rank
  for (const PieceStream& stream : plan.streams) {
    cut.push_back(Cut(stream, FrameBytes(LargestBytes(parts), shape), plan.frames));
    plan.frames += static_cast<uint32_t>(cut.back().size());
  }
  plan.own = cut[self.index()];
  plan.given.resize(static_cast<size_t>(topology.LocalSize(self)));
  const auto carrier = [&](Position rank, int host) {
    const std::vector<Position>& members = topology.OnHost(host);
    return members[static_cast<size_t>(topology.LocalRank(rank)) % members.size()];
  };
  const int own_host = topology.HostOf(self);
  for (int step = 0; step < topology.hosts(); ++step) {
    const int host = (own_host + step) % topology.hosts();
    if (step > 0) plan.sent[carrier(self, host).value()] = plan.own;
    for (const Position rank : topology.OnHost(host)) {
      const Position giver = carrier(rank, own_host);
      Append(cut[rank.index()], &plan.given[static_cast<size_t>(topology.LocalRank(giver))]);
      if (step > 0 && giver == self) plan.received[rank.value()] = cut[rank.index()];
    }
  }
  // All parts come at the same time.
  for (Frames& given : plan.given) {
    std::stable_sort(given.begin(), given.end(),
                     [](const Frame& a, const Frame& b) { return a.begin < b.begin; });
  }
  return plan;
}

// The hosts that a host passes frames on to, and the one that it has them from; counted from the
// root's. Along a chain every host sends a frame once, along a tree the last one has it sooner.
struct Route {
  std::vector<int> next;
  int from = 0;
};

Route RouteOf(int host, int hosts, int64_t frames) {
  const Tree tree(host, hosts);
  const auto copies =
      static_cast<int64_t>(Tree(0, hosts).Children().size());  // that the root sends
  if (frames * copies <= frames + hosts - 2)
    return {tree.Children(), tree.is_root() ? 0 : tree.parent()};
  if (host + 1 == hosts) return {{}, host - 1};
  return {{host + 1}, host - 1};
}

// On the root's host the root hands everything to the others; the lanes' carriers take the frames
// in turn to the other hosts and hand them to those there.
Plan PlanBroadcast(const Topology& topology, const BoardShape& shape, const CollectiveSpec& spec,
                   Position self) {
  Plan plan;
  const Lanes lanes(topology, self);
  const bool is_root = self == spec.root;
  const PieceStream stream(spec.pieces);
  plan.streams.push_back(is_root ? stream : stream.Relayed());
  const Frames frames = Cut(plan.streams[0], FrameBytes(stream.bytes() / lanes.count(), shape), 0);
  plan.frames = static_cast<uint32_t>(frames.size());
  plan.given.resize(static_cast<size_t>(topology.LocalSize(self)));
  if (is_root) plan.own = frames;
  const int first = topology.HostOf(spec.root);
  const int hosts = topology.hosts();
  const int host = (lanes.own_host() - first + hosts) % hosts;
  const int64_t each = (plan.frames + lanes.count() - 1) / lanes.count();
  const Route route = RouteOf(host, hosts, each);
  for (const Frame& frame : frames) {
    const int lane = static_cast<int>(frame.number) % lanes.count();
    const int giver = host == 0 ? topology.LocalRank(spec.root) : lanes.LocalCarrier(lane);
    plan.given[static_cast<size_t>(giver)].push_back(frame);
    if (lanes.LocalCarrier(lane) != topology.LocalRank(self)) continue;
    if (host != 0)
      plan.received[lanes.Carrier((first + route.from) % hosts, lane)].push_back(frame);
    for (const int next : route.next)
      plan.sent[lanes.Carrier((first + next) % hosts, lane)].push_back(frame);
  }
  return plan;
}

size_t MostGiven(const std::vector<Frames>& given, int but = -1) {
  size_t most = 0;
  for (size_t rank = 0; rank < given.size(); ++rank) {
    if (static_cast<int>(rank) != but) most = std::max(most, given[rank].size());
  }
  return most;
}

// A frame comes over a link into the outputs, or from another rank's staging; is sent on; and is
// handed to this host through the staging, one frame a chunk. What comes over links goes into the
// outputs whether or not the board is free: so no link waits for the board.
//
// There is a chunk more than anybody gives. It is passed over, and with it the board left to later
// operations, when everything has been sent: then what they send comes behind it on every link.
// Those that receive less than everything at once rely on that.
class HierarchicalExchange : public StagedExchange {
 public:
  HierarchicalExchange(Board* board, const Communicator& comm, uint64_t sequence, Plan plan)
      : StagedExchange(board, MostGiven(plan.given) + 1,
                       board->size() == 1 ? 0 : plan.given[board->rank()].size(),
                       MostGiven(plan.given, board->rank())),
        plan_(std::move(plan)),
        exchange_(comm, sequence),
        here_(plan_.frames) {
    for (const Frame& frame : plan_.own) here_[frame.number] = true;
    for (const auto& [peer, frames] : plan_.received) exchange_.Receive(peer, frames);
    for (const auto& [peer, frames] : plan_.sent) exchange_.Send(peer, frames);
    status_ = exchange_.BorrowRoom();
  }

 private:
  Step TakeStep() override {
    const bool posted = exchange_.PostReceives();
    if (TakeArrived() || exchange_.SendNext(here_)) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    const Step step = StagedExchange::TakeStep();
    if (step == Step::kBlocked && posted) return Step::kProgressed;
    return step == Step::kDone && !exchange_.done() ? Step::kBlocked : step;
  }

  bool TakeArrived() {
    const Frame* frame = exchange_.Take(&status_);
    if (frame != nullptr) here_[frame->number] = true;
    return frame != nullptr || !status_.ok();
  }

  bool MayLeave() const override { return exchange_.posted_all(); }

  bool Has(uint64_t chunk) const override { return here_[plan_.given[rank()][chunk].number]; }

  void Stage(uint64_t chunk, std::byte* staging) override {
    const Frame& frame = plan_.given[rank()][chunk];
    frame.stream->Pack(frame.begin, frame.end, staging);
  }

  // What another rank of this host hands out, one frame at a time.
  Taken Take(uint64_t chunk) override {
    if (giver_ != rank() && chunk < plan_.given[giver_].size()) {
      if (!HasStaged(giver_, chunk)) return Taken::kNothing;
      const Frame& frame = plan_.given[giver_][chunk];
      frame.stream->Unpack(frame.begin, frame.end, Staging(giver_, chunk));
      here_[frame.number] = true;
    }
    giver_ = (giver_ + 1) % size();
    return giver_ == 0 ? Taken::kAll : Taken::kPart;
  }

  // What is here from the beginning comes into the outputs.
  bool WorkAlone() override {
    if (kept_ == plan_.own.size()) return false;
    const Frame& frame = plan_.own[kept_++];
    frame.stream->Keep(frame.begin, frame.end);
    return true;
  }

  const Plan plan_;
  FrameExchange exchange_;
  std::vector<bool> here_;  // by number: it can be sent and handed out
  int giver_ = 0;           // whose frame of the chunk is the next to take
  size_t kept_ = 0;         // frames of plan_.own that lie in the outputs
};

}  // namespace

std::unique_ptr<StepMachine> MakeHierarchicalAllgather(const Hierarchy& hierarchy,
                                                       const CollectiveSpec& spec) {
  const Communicator& comm = hierarchy.comm;
  return std::make_unique<HierarchicalExchange>(
      hierarchy.board, comm, spec.sequence,
      PlanAllgather(hierarchy.topology, hierarchy.board->shape(), spec, comm.position));
}

std::unique_ptr<StepMachine> MakeHierarchicalBroadcast(const Hierarchy& hierarchy,
                                                       const CollectiveSpec& spec) {
  const Communicator& comm = hierarchy.comm;
  if (PieceStream(spec.pieces).bytes() <= kTreeBytes) return MakeTreeBroadcast(comm, spec);
  return std::make_unique<HierarchicalExchange>(
      hierarchy.board, comm, spec.sequence,
      PlanBroadcast(hierarchy.topology, hierarchy.board->shape(), spec, comm.position));
}

}  // namespace hvd
