#include "backend/host/host_backend.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "collective/adasum.h"
#include "collective/gathered.h"
#include "collective/hierarchy/hierarchy.h"
#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/transport_collectives.h"
#include "collective/window/collectives.h"

namespace hvd {

namespace {

constexpr int64_t kStride = kStepBytes / 2;  // read once, written once

// Any collective in a set of one: an allreduce or reducescatter still scales, the others copy.
class Local : public StepMachine {
 public:
  explicit Local(const CollectiveSpec& spec)
      : reduces_(Reduces(spec.kind)), reducer_(spec.reduction, 1), stream_(spec.pieces) {}

 private:
  Step TakeStep() override {
    const int64_t end = std::min(at_ + kStride, stream_.bytes());
    if (reduces_) {
      reducer_.IntoOutputs(stream_, at_, end);
    } else {
      stream_.Keep(at_, end);
    }
    at_ = end;
    return at_ == stream_.bytes() ? Step::kDone : Step::kProgressed;
  }

  const bool reduces_;
  Reducer reducer_;
  const PieceStream stream_;
  int64_t at_ = 0;
};

class WindowBackend : public HostBackend {
 public:
  explicit WindowBackend(std::unique_ptr<Board> board)
      : HostBackend(board->rank(), board->size(), ScratchPool::Make()), board_(std::move(board)) {}
  void Combine(const CollectiveSpec& spec) override { CombineOnHost(spec, board_->size()); }
  bool broken() const override { return board_->overwritten(); }

 private:
  Status Prepare() override { return board_->Prepare(); }

  std::unique_ptr<StepMachine> StartAmongMany(const CollectiveSpec& spec) override {
    switch (spec.kind) {
      case OpKind::kAllreduce:
        return MakeWindowAllreduce(board_.get(), spec);
      case OpKind::kAllgather:
        return MakeWindowAllgather(board_.get(), spec);
      case OpKind::kBroadcast:
        return MakeWindowBroadcast(board_.get(), spec);
      case OpKind::kBarrier:
        return MakeWindowBarrier(board_.get());
      case OpKind::kAlltoall:
        return MakeWindowAlltoall(board_.get(), spec);
      case OpKind::kReducescatter:
        return MakeWindowReducescatter(board_.get(), spec);
      case OpKind::kJoin:
        break;
    }
    return MakeFailed(Status::Internal("unknown collective"));
  }

  const std::unique_ptr<Board> board_;
};

std::unique_ptr<StepMachine> StartOverLinks(const Communicator& comm, const CollectiveSpec& spec) {
  switch (spec.kind) {
    case OpKind::kAllreduce:
      return MakeLinkAllreduce(comm, spec);
    case OpKind::kAllgather:
      return MakeRingAllgather(comm, spec);
    case OpKind::kBroadcast:
      return MakeTreeBroadcast(comm, spec);
    case OpKind::kBarrier:
      return MakeDisseminationBarrier(comm, spec.sequence);
    case OpKind::kAlltoall:
      return MakePairwiseAlltoall(comm, spec);
    case OpKind::kReducescatter:
      return MakeRingReducescatter(comm, spec);
    case OpKind::kJoin:
      break;
  }
  return MakeFailed(Status::Internal("unknown collective"));
}

class TransportBackend : public HostBackend {
 public:
  explicit TransportBackend(Communicator comm)
      : HostBackend(comm.rank(), comm.size(), comm.scratch), comm_(std::move(comm)) {}
  void Combine(const CollectiveSpec& spec) override { CombineOverLinks(comm_, spec); }

 private:
  std::unique_ptr<StepMachine> StartAmongMany(const CollectiveSpec& spec) override {
    return StartOverLinks(comm_, spec);
  }

  const Communicator comm_;
};

// Several hosts. Where every member has a host of its own there is nothing to share, and data that
// are not computed on go over links; so do those of an alltoall, which are different for each rank.
class HierarchicalBackend : public HostBackend {
 public:
  HierarchicalBackend(std::unique_ptr<Board> board, Communicator comm, Topology topology)
      : HostBackend(comm.rank(), comm.size(), comm.scratch),
        board_(std::move(board)),
        hierarchy_{board_.get(), std::move(comm), std::move(topology)} {}
  void Combine(const CollectiveSpec& spec) override { CombineOnHosts(hierarchy_, spec); }
  bool broken() const override { return board_->overwritten(); }

 private:
  Status Prepare() override { return board_->Prepare(); }

  std::unique_ptr<StepMachine> StartAmongMany(const CollectiveSpec& spec) override {
    const bool alone = hierarchy_.topology.hosts() == hierarchy_.topology.size();  // on every host
    switch (spec.kind) {
      case OpKind::kAllreduce:
        return MakeHierarchicalAllreduce(hierarchy_, spec);
      case OpKind::kAllgather:
        if (!alone) return MakeHierarchicalAllgather(hierarchy_, spec);
        break;
      case OpKind::kBroadcast:
        if (!alone) return MakeHierarchicalBroadcast(hierarchy_, spec);
        break;
      case OpKind::kReducescatter:
        if (!alone) return MakeHierarchicalReducescatter(hierarchy_, spec);
        break;
      default:
        break;
    }
    return StartOverLinks(hierarchy_.comm, spec);
  }

  const std::unique_ptr<Board> board_;
  const Hierarchy hierarchy_;
};

}  // namespace

std::unique_ptr<StepMachine> HostBackend::Start(CollectiveSpec spec) {
  Status status = Check(spec);
  if (status.ok()) status = Prepare();
  if (!status.ok()) return MakeFailed(status);
  if (size_ == 1) return std::make_unique<Local>(spec);
  if (spec.kind != OpKind::kAllreduce || spec.reduction.op != ReduceOp::kAdasum)
    return StartAmongMany(spec);
  return MakeAdasum(spec, rank_, size_, scratch_,
                    [this](const CollectiveSpec& part) { return StartAmongMany(part); });
}

// Every member must fail alike, or the counters of the set part: so this looks at nothing that may
// differ between members but for a broken invariant.
Status HostBackend::Check(const CollectiveSpec& spec) const {
  if (spec.kind == OpKind::kBroadcast && (!spec.root.known() || spec.root.value() >= size_)) {
    return Status::Internal("broadcast from root " + std::to_string(spec.root.value()) + " of " +
                            std::to_string(size_));
  }
  bool fits = spec.kind != OpKind::kAlltoall || spec.senders.size() == static_cast<size_t>(size_);
  for (size_t i = 0; i < spec.pieces.size(); ++i) fits = fits && SizesFit(spec, i);
  if (fits) return Status::Ok();
  return Status::Internal(std::string(Name(spec.kind)) + " whose sizes disagree with its input");
}

bool HostBackend::SizesFit(const CollectiveSpec& spec, size_t piece) const {
  const bool scatters = spec.kind == OpKind::kAlltoall || spec.kind == OpKind::kReducescatter;
  const bool gathers = spec.kind == OpKind::kAlltoall || spec.kind == OpKind::kAllgather;
  if (!scatters && !gathers) return true;
  if (spec.shares.size() != spec.pieces.size()) return false;
  const auto& [to, from] = spec.shares[piece];
  const auto size = static_cast<size_t>(size_);
  if (to.size() != (scatters ? size : 0) || from.size() != (gathers ? size : 0)) return false;
  const int64_t input = scatters ? std::accumulate(to.begin(), to.end(), int64_t{0}) : from[rank_];
  return spec.pieces[piece].bytes == input;
}

Status MakeWindowBackend(Window* window, const BoardShape& shape,
                         std::unique_ptr<Backend>* backend) {
  std::unique_ptr<Board> board;
  HVD_RETURN_IF_ERROR(Board::Make(window, shape, &board));
  *backend = std::make_unique<WindowBackend>(std::move(board));
  return Status::Ok();
}

std::unique_ptr<Backend> MakeTransportBackend(Transport* transport, uint32_t set, Members members,
                                              Position position) {
  return std::make_unique<TransportBackend>(
      Communicator{transport, set, std::move(members), position, ScratchPool::Make()});
}

Status MakeHierarchicalBackend(Window* window, const BoardShape& shape, Transport* transport,
                               uint32_t set, Members members, Position position, Topology topology,
                               std::unique_ptr<Backend>* backend) {
  std::unique_ptr<Board> board;
  HVD_RETURN_IF_ERROR(Board::Make(window, shape, &board));
  *backend = std::make_unique<HierarchicalBackend>(
      std::move(board),
      Communicator{transport, set, std::move(members), position, ScratchPool::Make()},
      std::move(topology));
  return Status::Ok();
}

}  // namespace hvd
