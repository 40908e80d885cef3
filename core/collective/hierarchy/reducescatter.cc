#include <algorithm>
#include <array>

#include "collective/hierarchy/hierarchy.h"
#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/transport_collectives.h"
#include "collective/window/operation.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

// So few ranks send each other small parts sooner than the members of a host wait for each other.
constexpr int kFewRanks = 4;

// Rows of which the other hosts' results may be under way to a rank at once, and what they may
// take.
constexpr uint64_t kRows = 4;
constexpr int64_t kMostScratch = 8 << 20;

// Every part is a stream, cut in blocks of one size. Block k of all parts is row k, of which each
// host makes a chunk for every host: of its members' blocks, a lane each. The chunk for the own
// host comes last, because it waits for what the others send.
//
// Nobody waits for ever: a rank posts the receives of row k once it has finished all rows up to
// k - kRows. A peer sends rows in their order, and before them, over the same link, everything of
// earlier operations. So in front of a frame whose receive is not posted there is nothing that its
// receiver still lacks, and the lowest row that is not finished everywhere goes on.
class HierarchicalReducescatter : public StepMachine {
 public:
  HierarchicalReducescatter(const Hierarchy& hierarchy, const CollectiveSpec& spec)
      : board_(hierarchy.board),
        comm_(hierarchy.comm),
        topology_(hierarchy.topology),
        lanes_(topology_, comm_.position),
        sequence_(spec.sequence),
        parts_(ScatterParts(spec, comm_.rank(), comm_.size())),
        block_bytes_(BlockBytes(LargestBytes(parts_), board_->shape(), lanes_)),
        rows_(CountChunks(LargestBytes(parts_), block_bytes_)),
        chunks_(rows_ * static_cast<uint64_t>(lanes_.hosts())),
        operation_(board_, chunks_),
        within_(spec.reduction.First(), board_->size()),
        between_(spec.reduction.Last(), lanes_.hosts()) {
    const auto hosts = static_cast<size_t>(lanes_.hosts());
    for (auto& row : receives_) row.resize(hosts);
    sends_.resize(board_->shape().staging_slots);
    for (auto& chunk : sends_) chunk.resize(lanes_.own().size());
    status_ = comm_.scratch->Borrow(kRows * hosts * static_cast<size_t>(block_bytes_), &scratch_);
  }

 private:
  Step TakeStep() override {
    const bool posted = PostReceives();
    if (!operation_.Begin()) return posted ? Step::kProgressed : Step::kBlocked;
    // What lets others go on comes first, oldest chunk first.
    if (Finish() || Reduce() || CopyIn() || posted) {
      failpoint::Hit("chunk");
      return Step::kProgressed;
    }
    return finished_ == chunks_ && operation_.complete() ? Step::kDone : Step::kBlocked;
  }

  // At least two rows, so that there is something to overlap. Whole cache lines of every type, or
  // whole elements where so many ranks share a chunk, or so many hosts the scratch, that each gets
  // less.
  static int64_t BlockBytes(int64_t largest, const BoardShape& shape, const Lanes& lanes) {
    const int64_t half = WholeLines(std::max<int64_t>(largest / 2, 1));
    const int64_t arriving = static_cast<int64_t>(kRows) * lanes.hosts();
    const int64_t room = std::min(shape.chunk_bytes / lanes.count(), kMostScratch / arriving);
    const int64_t unit = room >= 128 ? 128 : 8;
    return std::min(half, room / unit * unit);
  }

  uint64_t RowOf(uint64_t chunk) const { return chunk / static_cast<uint64_t>(lanes_.hosts()); }
  int HostOf(uint64_t chunk) const {
    const auto hosts = static_cast<uint64_t>(lanes_.hosts());
    return (lanes_.own_host() + 1 + static_cast<int>(chunk % hosts)) % lanes_.hosts();
  }
  bool IsOwn(uint64_t chunk) const { return HostOf(chunk) == lanes_.own_host(); }

  // Whose part lane `lane` of a chunk is; nobody's where the host has fewer members.
  Position Owner(uint64_t chunk, int lane) const {
    const std::vector<Position>& members = topology_.OnHost(HostOf(chunk));
    const auto place = static_cast<size_t>(lane);
    return place < members.size() ? members[place] : Position();
  }

  // A row's block in a part.
  Range Block(Position owner, uint64_t row) const {
    const int64_t bytes = parts_[owner.index()].bytes();
    const int64_t begin = std::min(static_cast<int64_t>(row) * block_bytes_, bytes);
    return {begin, std::min(begin + block_bytes_, bytes)};
  }

  std::byte* Staging(int local_rank, uint64_t chunk, int lane) const {
    return operation_.Staging(local_rank, chunk) + block_bytes_ * lane;
  }

  // What `host` sends of a row.
  std::byte* Arrived(uint64_t row, int host) const {
    const auto place = static_cast<int64_t>(row % kRows) * lanes_.hosts() + host;
    return scratch_.data() + place * block_bytes_;
  }

  bool PostReceives() {
    if (posted_ == rows_ || posted_ == RowOf(finished_) + kRows) return false;
    const auto bytes = static_cast<size_t>(Block(comm_.position, posted_).length());
    std::vector<Transfer>& row = receives_[posted_ % kRows];
    for (int host = 0; host < lanes_.hosts(); ++host) {
      row[host] = {bytes == 0 || host == lanes_.own_host(), 0};
      if (row[host].done) continue;
      comm_.Recv(Carrier(host), sequence_, static_cast<uint32_t>(posted_), Arrived(posted_, host),
                 bytes, &row[host]);
    }
    ++posted_;
    return true;
  }

  // Who reduces this rank's part on another host.
  int Carrier(int host) const { return lanes_.Carrier(host, board_->rank()); }

  bool CopyIn() {
    if (copied_ == chunks_ || !operation_.IsNext(Phase::kCopied, copied_)) return false;
    if (!operation_.MayStage(copied_)) return false;
    for (int lane = 0; lane < lanes_.count(); ++lane) {
      const Position owner = Owner(copied_, lane);
      if (!owner.known()) break;
      const Range block = Block(owner, RowOf(copied_));
      parts_[owner.index()].Pack(block.begin, block.end, Staging(board_->rank(), copied_, lane));
    }
    operation_.Post(Phase::kCopied, copied_++);
    return true;
  }

  // Own lanes over the members of this host, in place: nobody else reads them here.
  bool Reduce() {
    if (reduced_ == copied_ || !operation_.IsNext(Phase::kReduced, reduced_)) return false;
    if (!operation_.AllHave(Phase::kCopied, reduced_)) return false;
    std::vector<Transfer>& sends = sends_[reduced_ % sends_.size()];
    for (size_t i = 0; i < sends.size(); ++i) {
      const int lane = lanes_.own()[i];
      const Position owner = Owner(reduced_, lane);
      const int64_t bytes = owner.known() ? Block(owner, RowOf(reduced_)).length() : 0;
      sends[i] = {bytes == 0 || IsOwn(reduced_), 0};
      if (bytes > 0) ReduceLane(lane, bytes);
      if (sends[i].done) continue;
      comm_.Send(owner.value(), sequence_, static_cast<uint32_t>(RowOf(reduced_)),
                 Staging(board_->rank(), reduced_, lane), static_cast<size_t>(bytes), &sends[i]);
    }
    operation_.Post(Phase::kReduced, reduced_++);
    return true;
  }

  void ReduceLane(int lane, int64_t bytes) {
    for (int rank = 0; rank < board_->size(); ++rank)
      within_.Set(rank, Staging(rank, reduced_, lane));
    within_.IntoMemory(Staging(board_->rank(), reduced_, lane), bytes);
  }

  // A chunk for another host has been sent; one for this host has met what the others send.
  bool Finish() {
    if (finished_ == reduced_ || !operation_.IsNext(Phase::kTaken, finished_)) return false;
    const std::vector<Transfer>& transfers =
        IsOwn(finished_) ? receives_[RowOf(finished_) % kRows] : sends_[finished_ % sends_.size()];
    const bool moved = std::all_of(transfers.begin(), transfers.end(),
                                   [](const Transfer& transfer) { return transfer.done; });
    if (!moved || (IsOwn(finished_) && posted_ <= RowOf(finished_))) return false;
    if (IsOwn(finished_)) Combine(RowOf(finished_));
    if (status_.ok()) operation_.Post(Phase::kTaken, finished_++);
    return true;
  }

  // In the order of the hosts, as an allreduce does.
  void Combine(uint64_t row) {
    const Range block = Block(comm_.position, row);
    if (block.length() == 0) return;
    for (int host = 0; host < lanes_.hosts() && status_.ok(); ++host) {
      const bool here = host == lanes_.own_host();
      between_.Set(host,
                   here ? Staging(board_->rank(), finished_, board_->rank()) : Arrived(row, host));
      if (here) continue;
      status_ = comm_.Check(receives_[row % kRows][host], static_cast<size_t>(block.length()),
                            Carrier(host));
    }
    if (!status_.ok()) return;
    between_.IntoOutputs(parts_[comm_.position.index()], block.begin, block.end);
  }

  Board* const board_;
  const Communicator comm_;
  const Topology& topology_;
  const Lanes lanes_;
  const uint64_t sequence_;
  const std::vector<PieceStream> parts_;  // by the position that gets it reduced
  const int64_t block_bytes_;
  const uint64_t rows_;
  const uint64_t chunks_;
  ChunkedOperation operation_;
  Reducer within_;                                     // of the inputs of one host
  Reducer between_;                                    // of the hosts' results
  std::array<std::vector<Transfer>, kRows> receives_;  // by host
  std::vector<std::vector<Transfer>> sends_;           // by staging slot and place in lanes_.own()
  ScratchPool::Lease scratch_;
  uint64_t posted_ = 0;  // rows
  // Chunks through each phase here; finished_ <= reduced_ <= copied_.
  uint64_t copied_ = 0;
  uint64_t reduced_ = 0;
  uint64_t finished_ = 0;
};

}  // namespace

std::unique_ptr<StepMachine> MakeHierarchicalReducescatter(const Hierarchy& hierarchy,
                                                           const CollectiveSpec& spec) {
  const Communicator& comm = hierarchy.comm;
  const std::vector<PieceStream> parts = ScatterParts(spec, comm.rank(), comm.size());
  if (comm.size() <= kFewRanks && LargestBytes(parts) <= kDirectBytes)
    return MakeDirectReducescatter(comm, spec);
  return std::make_unique<HierarchicalReducescatter>(hierarchy, spec);
}

}  // namespace hvd
