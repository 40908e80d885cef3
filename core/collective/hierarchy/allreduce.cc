#include <algorithm>
#include <map>

#include "collective/hierarchy/hierarchy.h"
#include "collective/links/exchange.h"
#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/window/operation.h"
#include "settings/failpoint.h"

namespace hvd {

Lanes::Lanes(const Topology& topology, Position self)
    : own_host_(topology.HostOf(self)), local_size_(topology.LocalSize(self)) {
  for (int host = 0; host < topology.hosts(); ++host) {
    carriers_.push_back(topology.OnHost(host));
    count_ = std::max(count_, static_cast<int>(carriers_.back().size()));
  }
  for (int lane = topology.LocalRank(self); lane < count_; lane += local_size_)
    own_.push_back(lane);
}

namespace {

// Up to here a tensor is one chunk; beyond, at least two overlap.
constexpr int64_t kOneChunk = 16 << 10;

// As many chunks may be between the hosts at once as the board has staging slots, S: those whose
// receives are posted. Nobody waits for ever: a rank posts the receives of chunk k once its
// exchanges of all chunks up to k - S are complete. A peer sends something of chunk k only when its
// own are, and then it has sent before, over the same link, everything of theirs that it has to
// send. So in front of a frame whose receive is not posted there is nothing that its receiver still
// lacks, and the exchange of the lowest chunk that is not complete anywhere goes on.
class HierarchicalAllreduce : public StepMachine {
 public:
  HierarchicalAllreduce(const Hierarchy& hierarchy, const CollectiveSpec& spec)
      : board_(hierarchy.board),
        comm_(hierarchy.comm),
        lanes_(hierarchy.topology, hierarchy.comm.position),
        stream_(spec.pieces),
        chunks_(stream_.bytes(), ChunkBytes(stream_.bytes(), board_->shape()), lanes_.count()),
        operation_(board_, chunks_.count()),
        within_(spec.reduction.First(), board_->size()) {
    PlanLanes(spec);
    exchanges_.resize(board_->shape().staging_slots);
    for (auto& exchanges : exchanges_) exchanges.resize(lanes_.own().size());
    const size_t places = exchanges_.size() * lanes_.own().size();
    status_ = comm_.scratch->Borrow(static_cast<size_t>(scratch_bytes_) * places, &scratch_);
  }

 private:
  using Exchanges = std::vector<LinkExchange>;  // by place in lanes_.own()

  Step TakeStep() override {
    const bool posted = PostReceives();
    if (!operation_.Begin()) return posted ? Step::kProgressed : Step::kBlocked;
    // What lets others go on comes first, oldest chunk first.
    if (Take() || Exchange() || Publish() || Reduce() || CopyIn() || posted) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    return taken_ == operation_.chunks() && operation_.complete() ? Step::kDone : Step::kBlocked;
  }

  static int64_t ChunkBytes(int64_t bytes, const BoardShape& shape) {
    const int64_t part = bytes <= kOneChunk ? bytes : (bytes + 1) / 2;
    return std::min(WholeLines(std::max<int64_t>(part, 1)), shape.chunk_bytes);
  }

  // What this rank does for lanes of every size that there is: those of all chunks but the last
  // are alike.
  void PlanLanes(const CollectiveSpec& spec) {
    const uint64_t chunks = operation_.chunks();
    if (chunks == 0) return;
    const auto element = static_cast<int64_t>(SizeOf(spec.reduction.dtype));
    const auto under_way = static_cast<int64_t>(std::min(chunks, board_->shape().staging_slots));
    for (const int lane : lanes_.own()) {
      LinkGroup& group =
          groups_.emplace_back(LinkGroup{&comm_, spec.sequence, {}, spec.reduction.Last()});
      for (int host = 0; host < lanes_.hosts(); ++host)
        group.places.push_back(lanes_.Carrier(host, lane));
      for (const uint64_t chunk : {uint64_t{0}, chunks - 1}) {
        const int64_t bytes = chunks_.Part(chunk, lane).length();
        if (moves_.count(bytes) > 0) continue;
        const ExchangePlan plan = CheapestPlan(lanes_.hosts(), bytes, comm_.costs, under_way);
        moves_[bytes] = PlanMoves(plan, lanes_.hosts(), lanes_.own_host(), bytes, element);
        scratch_bytes_ = std::max(scratch_bytes_, moves_[bytes].scratch_bytes);
      }
    }
  }

  std::byte* OwnStaging(uint64_t chunk) const { return operation_.Staging(board_->rank(), chunk); }

  Exchanges& ExchangesOf(uint64_t chunk) { return exchanges_[chunk % exchanges_.size()]; }

  bool PostReceives() {
    if (posted_ == operation_.chunks() || posted_ == exchanged_ + exchanges_.size()) return false;
    Exchanges& exchanges = ExchangesOf(posted_);
    for (size_t i = 0; i < exchanges.size(); ++i) {
      const int lane = lanes_.own()[i];
      const Range range = chunks_.Part(posted_, lane);
      const auto number = static_cast<uint32_t>(posted_ * static_cast<uint64_t>(lanes_.count())) +
                          static_cast<uint32_t>(lane);
      const size_t place = posted_ % exchanges_.size() * exchanges.size() + i;
      exchanges[i].Post(groups_[i], moves_.at(range.length()), number,
                        OwnStaging(posted_) + range.begin,
                        scratch_.data() + static_cast<int64_t>(place) * scratch_bytes_);
    }
    ++posted_;
    return true;
  }

  bool CopyIn() {
    if (copied_ == operation_.chunks() || !operation_.IsNext(Phase::kCopied, copied_)) return false;
    if (!operation_.MayStage(copied_)) return false;
    const Range chunk = chunks_[copied_];
    stream_.Pack(chunk.begin, chunk.end, OwnStaging(copied_));
    operation_.Post(Phase::kCopied, copied_++);
    return true;
  }

  // Own lanes over the members of this host, in place: nobody else reads them here before they are
  // published.
  bool Reduce() {
    if (reduced_ == copied_ || reduced_ == posted_) return false;
    if (!operation_.AllHave(Phase::kCopied, reduced_)) return false;
    for (const int lane : lanes_.own()) ReduceLane(lane);
    for (LinkExchange& exchange : ExchangesOf(reduced_)) exchange.Send();
    ++reduced_;
    return true;
  }

  void ReduceLane(int lane) {
    const Range range = chunks_.Part(reduced_, lane);
    for (int rank = 0; rank < board_->size(); ++rank)
      within_.Set(rank, operation_.Staging(rank, reduced_) + range.begin);
    within_.IntoMemory(OwnStaging(reduced_) + range.begin, range.length());
  }

  // Moves one lane on, of any chunk that is between the hosts.
  bool Exchange() {
    for (uint64_t chunk = exchanged_; chunk < reduced_; ++chunk) {
      for (LinkExchange& exchange : ExchangesOf(chunk)) {
        if (exchange.Advance(&status_)) return true;
        if (!status_.ok()) return true;
      }
    }
    return false;
  }

  bool Publish() {
    if (exchanged_ == reduced_ || !operation_.IsNext(Phase::kReduced, exchanged_)) return false;
    for (const LinkExchange& exchange : ExchangesOf(exchanged_)) {
      if (!exchange.done()) return false;
    }
    operation_.Post(Phase::kReduced, exchanged_++);
    return true;
  }

  bool Take() {
    if (taken_ == exchanged_ || !operation_.IsNext(Phase::kTaken, taken_)) return false;
    if (!operation_.AllHave(Phase::kReduced, taken_)) return false;
    const int64_t begin = chunks_[taken_].begin;
    for (int lane = 0; lane < lanes_.count(); ++lane) {
      const Range range = chunks_.Part(taken_, lane);
      if (range.length() == 0) continue;
      stream_.Unpack(begin + range.begin, begin + range.end,
                     operation_.Staging(lanes_.LocalCarrier(lane), taken_) + range.begin);
    }
    operation_.Post(Phase::kTaken, taken_++);
    return true;
  }

  Board* const board_;
  const Communicator comm_;
  const Lanes lanes_;
  const PieceStream stream_;
  const Chunks chunks_;  // a part is a lane
  ChunkedOperation operation_;
  Reducer within_;                    // of the inputs of one host
  std::vector<LinkGroup> groups_;     // by place in lanes_.own()
  std::map<int64_t, Moves> moves_;    // by the size of a lane
  std::vector<Exchanges> exchanges_;  // of the chunks under way
  int64_t scratch_bytes_ = 0;         // of each exchange, at most
  ScratchPool::Lease scratch_;
  // Chunks through each phase here; taken_ <= exchanged_ <= reduced_ <= copied_, reduced_ <=
  // posted_.
  uint64_t posted_ = 0;
  uint64_t copied_ = 0;
  uint64_t reduced_ = 0;
  uint64_t exchanged_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace

std::unique_ptr<StepMachine> MakeHierarchicalAllreduce(const Hierarchy& hierarchy,
                                                       const CollectiveSpec& spec) {
  return std::make_unique<HierarchicalAllreduce>(hierarchy, spec);
}

}  // namespace hvd
