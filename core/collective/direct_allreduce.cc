#include "collective/direct_allreduce.h"

#include "collective/kernels.h"
#include "collective/piece_stream.h"

namespace hvd {

namespace {

class DirectAllreduce : public StepMachine {
 public:
  DirectAllreduce(const Group& group, const CollectiveSpec& spec)
      : group_(group),
        sequence_(spec.sequence),
        reduction_(spec.reduction),
        stream_(spec.pieces),
        receiving_(static_cast<size_t>(group.size())),
        sending_(static_cast<size_t>(group.size())) {
    const size_t bytes = static_cast<size_t>(stream_.bytes()) * static_cast<size_t>(group_.size());
    status_ = group_.scratch->Borrow(bytes, &scratch_);
  }

  Status status() const override { return status_; }

  Step Advance() override {
    if (!status_.ok()) return Step::kFailed;
    if (stream_.bytes() == 0) return Step::kDone;
    if (!posted_) {
      Post();
      return Step::kProgressed;
    }
    while (arrived_ < group_.size() && Arrived(arrived_)) ++arrived_;
    if (!status_.ok()) return Step::kFailed;
    return arrived_ == group_.size() ? Finish() : Step::kBlocked;
  }

 private:
  std::byte* Part(int rank) const { return scratch_.data() + stream_.bytes() * rank; }

  void Post() {
    const auto bytes = static_cast<size_t>(stream_.bytes());
    stream_.Pack(0, stream_.bytes(), Part(group_.rank()));
    for (int step = 1; step < group_.size(); ++step) {
      const int from = (group_.rank() - step + group_.size()) % group_.size();
      const int to = (group_.rank() + step) % group_.size();
      group_.Recv(from, sequence_, 0, Part(from), bytes, &receiving_[from]);
      group_.Send(to, sequence_, 0, Part(group_.rank()), bytes, &sending_[to]);
    }
    posted_ = true;
  }

  // Both ways: the own part may not be given back while it is being sent.
  bool Arrived(int rank) {
    if (rank == group_.rank()) return true;
    if (!receiving_[rank].done || !sending_[rank].done) return false;
    status_ = group_.Check(receiving_[rank], static_cast<size_t>(stream_.bytes()), rank);
    return status_.ok();
  }

  Step Finish() {
    const auto element = static_cast<int64_t>(SizeOf(reduction_.dtype));
    std::vector<const void*> sources(static_cast<size_t>(group_.size()));
    stream_.ForEach(0, stream_.bytes(), [&](const std::byte*, std::byte* output, int64_t at, int64_t bytes) {
      for (int rank = 0; rank < group_.size(); ++rank) sources[rank] = Part(rank) + at;
      void* destination = output;
      kernels::Reduce(reduction_, sources.data(), group_.size(), &destination, 1, bytes / element);
    });
    return Step::kDone;
  }

  const Group group_;
  const uint64_t sequence_;
  const Reduction reduction_;
  const PieceStream stream_;
  std::vector<Transfer> receiving_;  // by position
  std::vector<Transfer> sending_;
  ScratchPool::Lease scratch_;
  Status status_;
  bool posted_ = false;
  int arrived_ = 0;  // the ranks below have sent and received
};

}  // namespace

std::unique_ptr<StepMachine> MakeDirectAllreduce(const Group& group, const CollectiveSpec& spec) {
  return std::make_unique<DirectAllreduce>(group, spec);
}

}  // namespace hvd
