// Allreduce over links: which algorithm, and the one for what is small or between few.

#include <algorithm>

#include "collective/links/exchange.h"
#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// An exchange holds the data twice in scratch, and frames are bounded (kMaxFrame).
constexpr int64_t kMostExchangeBytes = 4 << 20;

class ExchangeAllreduce : public StepMachine {
 public:
  ExchangeAllreduce(const Communicator& comm, const CollectiveSpec& spec, PieceStream stream,
                    const ExchangePlan& plan)
      : comm_(comm),
        stream_(std::move(stream)),
        moves_(PlanMoves(plan, comm.size(), comm.rank(), stream_.bytes(),
                         static_cast<int64_t>(SizeOf(spec.reduction.dtype)))),
        group_{&comm_, spec.sequence, {}, spec.reduction},
        scale_(moves_.combines_once ? spec.reduction.Between() : spec.reduction.First(), 1) {
    for (int place = 0; place < comm_.size(); ++place) group_.places.push_back(place);
    const int64_t bytes = WholeLines(stream_.bytes()) + moves_.scratch_bytes;
    status_ = comm_.scratch->Borrow(static_cast<size_t>(bytes), &scratch_);
  }

 private:
  static constexpr int64_t kStretch = kStepBytes / 2;  // read once, written once

  Step TakeStep() override {
    if (stream_.bytes() == 0) return Step::kDone;
    if (packed_ < stream_.bytes()) {
      if (packed_ == 0)
        exchange_.Post(group_, moves_, 0, data(), data() + WholeLines(stream_.bytes()));
      PackNext();
      return Step::kProgressed;
    }
    if (exchange_.Advance(&status_)) return Step::kProgressed;
    if (!exchange_.done()) return Step::kBlocked;
    failpoint::Hit("chunk");
    UnpackNext();
    return unpacked_ == stream_.bytes() ? Step::kDone : Step::kProgressed;
  }

  std::byte* data() const { return scratch_.data(); }

  void PackNext() {
    const int64_t end = std::min(packed_ + kStretch, stream_.bytes());
    scale_.IntoMemory(stream_, packed_, end, data() + packed_);
    packed_ = end;
    if (packed_ == stream_.bytes()) exchange_.Send();
  }

  void UnpackNext() {
    const int64_t end = std::min(unpacked_ + kStretch, stream_.bytes());
    stream_.Unpack(unpacked_, end, data() + unpacked_);
    unpacked_ = end;
  }

  const Communicator comm_;
  const PieceStream stream_;
  const Moves moves_;
  LinkGroup group_;
  Reducer scale_;  // of the inputs
  ScratchPool::Lease scratch_;
  LinkExchange exchange_;
  int64_t packed_ = 0;
  int64_t unpacked_ = 0;
};

}  // namespace

std::unique_ptr<ExchangePlan> PlanOfAllreduce(const Communicator& comm, int64_t bytes,
                                              int64_t direct_bytes) {
  using Form = ExchangePlan::Form;
  const int size = comm.size();
  const LinkCosts& costs = comm.costs;
  if (direct_bytes >= 0 && bytes <= std::min(direct_bytes, kMostDirectBytes))
    return std::make_unique<ExchangePlan>(CheapestPlan(Form::kWhole, size, bytes, costs));
  if (bytes > kMostExchangeBytes) return nullptr;
  const ExchangePlan plan = direct_bytes >= 0 ? CheapestPlan(Form::kBlocks, size, bytes, costs)
                                              : CheapestPlan(size, bytes, costs);
  // In and out of the scratch.
  const int64_t copies = 2 * bytes * costs.work;
  if (CostOf(plan, size, bytes, costs) + copies > CostOfRing(size, bytes, costs)) return nullptr;
  return std::make_unique<ExchangePlan>(plan);
}

std::unique_ptr<StepMachine> MakeLinkAllreduce(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  PieceStream stream(spec.pieces);
  const auto plan = PlanOfAllreduce(comm, stream.bytes(), spec.direct_bytes);
  if (plan == nullptr) return MakeRingAllreduce(comm, spec);
  return std::make_unique<ExchangeAllreduce>(comm, spec, std::move(stream), *plan);
}

}  // namespace hvd
