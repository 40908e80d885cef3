// A small reducescatter goes directly from everybody to everybody.

#include "collective/communicator.h"
#include "collective/kernels/kernels.h"
#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"

namespace hvd {

namespace {

class DirectReducescatter : public StepMachine {
 public:
  DirectReducescatter(const Communicator& comm, const CollectiveSpec& spec,
                      std::vector<PieceStream> parts)
      : comm_(comm),
        sequence_(spec.sequence),
        reduction_(spec.reduction),
        parts_(std::move(parts)),
        receiving_(static_cast<size_t>(comm.size())),
        sending_(static_cast<size_t>(comm.size())) {
    int64_t bytes = Own().bytes() * comm_.size();
    for (const PieceStream& part : parts_) {
      outgoing_.push_back(bytes);
      bytes += part.bytes();
    }
    status_ = comm_.scratch->Borrow(static_cast<size_t>(bytes), &scratch_);
  }

  Status status() const override { return status_; }

  Step Advance() override {
    if (!status_.ok()) return Step::kFailed;
    if (!posted_) {
      Post();
      return Step::kProgressed;
    }
    while (arrived_ < comm_.size() && Arrived(arrived_)) ++arrived_;
    if (!status_.ok()) return Step::kFailed;
    return arrived_ == comm_.size() ? Finish() : Step::kBlocked;
  }

 private:
  const PieceStream& Own() const { return parts_[static_cast<size_t>(comm_.rank())]; }
  // What has come from `rank`; the parts to be sent lie behind.
  std::byte* Arrival(int rank) const { return scratch_.data() + Own().bytes() * rank; }

  void Post() {
    for (int step = 1; step < comm_.size(); ++step) {
      Receive((comm_.rank() - step + comm_.size()) % comm_.size());
      Send((comm_.rank() + step) % comm_.size());
    }
    posted_ = true;
  }

  // Nothing is sent to a rank whose part is empty.
  void Receive(int from) {
    receiving_[from].done = Own().bytes() == 0;
    if (receiving_[from].done) return;
    comm_.Recv(from, sequence_, 0, Arrival(from), static_cast<size_t>(Own().bytes()),
               &receiving_[from]);
  }

  void Send(int to) {
    const PieceStream& part = parts_[to];
    sending_[to].done = part.bytes() == 0;
    if (sending_[to].done) return;
    std::byte* packed = scratch_.data() + outgoing_[to];
    part.Pack(0, part.bytes(), packed);
    comm_.Send(to, sequence_, 0, packed, static_cast<size_t>(part.bytes()), &sending_[to]);
  }

  // Both ways: what is being sent may not be given back.
  bool Arrived(int rank) {
    if (rank == comm_.rank()) return true;
    if (!receiving_[rank].done || !sending_[rank].done) return false;
    status_ = comm_.Check(receiving_[rank], static_cast<size_t>(Own().bytes()), rank);
    return status_.ok();
  }

  Step Finish() {
    const auto element = static_cast<int64_t>(SizeOf(reduction_.dtype));
    std::vector<const void*> sources(static_cast<size_t>(comm_.size()));
    Own().ForEach(0, Own().bytes(),
                  [&](const std::byte* input, std::byte* output, int64_t at, int64_t bytes) {
                    for (int rank = 0; rank < comm_.size(); ++rank) {
                      sources[rank] = rank == comm_.rank() ? input : Arrival(rank) + at;
                    }
                    void* destination = output;
                    kernels::Reduce(reduction_, sources.data(), comm_.size(), &destination, 1,
                                    bytes / element);
                  });
    return Step::kDone;
  }

  const Communicator comm_;
  const uint64_t sequence_;
  const Reduction reduction_;
  const std::vector<PieceStream> parts_;  // by the position that gets it reduced
  std::vector<int64_t> outgoing_;         // where each packed part lies in scratch_
  std::vector<Transfer> receiving_;       // by position
  std::vector<Transfer> sending_;
  ScratchPool::Lease scratch_;
  Status status_;
  bool posted_ = false;
  int arrived_ = 0;  // the ranks below have sent and received
};

}  // namespace

std::unique_ptr<StepMachine> MakeDirectReducescatter(const Communicator& comm,
                                                     const CollectiveSpec& spec) {
  const auto parts = ScatterParts(spec, comm.rank(), comm.size());
  return std::make_unique<DirectReducescatter>(
      comm, spec, std::vector<PieceStream>(parts.begin(), parts.end()));
}

}  // namespace hvd
