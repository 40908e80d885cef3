#include "backend/host/host_backend.h"

#include <string>

#include "collective/dissemination_barrier.h"
#include "collective/local.h"
#include "collective/ring_allgather.h"
#include "collective/ring_allreduce.h"
#include "collective/tree_broadcast.h"
#include "collective/window_allgather.h"
#include "collective/window_allreduce.h"
#include "collective/window_barrier.h"

namespace hvd {

namespace {

class WindowBackend : public HostBackend {
 public:
  explicit WindowBackend(std::unique_ptr<Board> board)
      : HostBackend(board->rank(), board->size()), board_(std::move(board)) {}

 private:
  std::unique_ptr<StepMachine> StartAmongMany(const CollectiveSpec& spec) override {
    switch (spec.kind) {
      case OpKind::kAllreduce:
        return MakeWindowAllreduce(board_.get(), spec);
      case OpKind::kAllgather:
        return MakeWindowAllgather(board_.get(), spec);
      case OpKind::kBroadcast:
        return MakeWindowBroadcast(board_.get(), spec);
      case OpKind::kBarrier:
        return std::make_unique<WindowBarrier>(board_.get());
    }
    return MakeFailed(Status::Internal("unknown collective"));
  }

  const std::unique_ptr<Board> board_;
};

class TransportBackend : public HostBackend {
 public:
  explicit TransportBackend(Group group) : HostBackend(group.rank, group.size()), group_(std::move(group)) {}

 private:
  std::unique_ptr<StepMachine> StartAmongMany(const CollectiveSpec& spec) override {
    switch (spec.kind) {
      case OpKind::kAllreduce:
        return MakeRingAllreduce(group_, spec);
      case OpKind::kAllgather:
        return MakeRingAllgather(group_, spec);
      case OpKind::kBroadcast:
        return MakeTreeBroadcast(group_, spec);
      case OpKind::kBarrier:
        return MakeDisseminationBarrier(group_, spec.sequence);
    }
    return MakeFailed(Status::Internal("unknown collective"));
  }

  const Group group_;
};

}  // namespace

std::unique_ptr<StepMachine> HostBackend::Start(CollectiveSpec spec) {
  const Status status = Check(spec);
  if (!status.ok()) return MakeFailed(status);
  return size_ == 1 ? MakeLocal(spec) : StartAmongMany(spec);
}

// Every member must fail alike, or the counters of the set part: so this looks at nothing that may differ
// between members but for a broken invariant.
Status HostBackend::Check(const CollectiveSpec& spec) const {
  if (spec.kind == OpKind::kAllreduce && spec.reduction.op == ReduceOp::kAdasum) {
    return Status::Invalid("allreduce with op=Adasum is not available on host memory");
  }
  if (spec.kind == OpKind::kBroadcast && (spec.root < 0 || spec.root >= size_)) {
    return Status::Internal("broadcast from root " + std::to_string(spec.root) + " of " +
                            std::to_string(size_));
  }
  if (spec.kind != OpKind::kAllgather) return Status::Ok();
  if (spec.rank_bytes.size() != spec.pieces.size()) return Status::Internal("allgather without its sizes");
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const auto& bytes = spec.rank_bytes[i];
    if (static_cast<int>(bytes.size()) != size_ || bytes[rank_] != spec.pieces[i].bytes) {
      return Status::Internal("allgather whose sizes disagree with its input");
    }
  }
  return Status::Ok();
}

Status MakeWindowBackend(Window* window, std::unique_ptr<Backend>* backend) {
  std::unique_ptr<Board> board;
  HVD_RETURN_IF_ERROR(Board::Make(window, &board));
  *backend = std::make_unique<WindowBackend>(std::move(board));
  return Status::Ok();
}

std::unique_ptr<Backend> MakeTransportBackend(Transport* transport, uint32_t set, std::vector<int> members,
                                              int rank) {
  return std::make_unique<TransportBackend>(
      Group{transport, set, std::move(members), rank, ScratchPool::Make()});
}

}  // namespace hvd
