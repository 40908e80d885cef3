#include <array>

#include "collective/transport_collectives.h"
#include "collective/window/collectives.h"
#include "collective/window/operation.h"

namespace hvd {

namespace {

// No slot is written, so none has to come back first.
class WindowBarrier : public StepMachine {
 public:
  explicit WindowBarrier(Board* board) : board_(board), operation_(board, 0) {}

 private:
  Step TakeStep() override {
    if (!operation_.Begin()) return Step::kBlocked;
    while (arrived_ < board_->size() && operation_.HasBegun(arrived_)) ++arrived_;
    return arrived_ == board_->size() ? Step::kDone : Step::kBlocked;
  }

  Board* const board_;
  ChunkedOperation operation_;
  int arrived_ = 0;  // the ranks below have begun
};

// All receives are posted before anything is sent: a round that arrives before its turn is taken
// from its link, where it may lie in front of what an earlier operation waits for.
class DisseminationBarrier : public StepMachine {
 public:
  DisseminationBarrier(const Communicator& comm, uint64_t sequence)
      : comm_(comm), sequence_(sequence) {}

 private:
  Step TakeStep() override {
    if (round_ == 0) PostReceives();
    if (round_ > 0 && !receiving_[round_ - 1].done) return Step::kBlocked;
    if (round_ < rounds_) {
      comm_.Send(comm_.rank() + (1 << round_), sequence_, static_cast<uint32_t>(round_), nullptr, 0,
                 &sending_[round_]);
      ++round_;
      return Step::kProgressed;
    }
    for (int round = 0; round < rounds_; ++round) {
      if (!sending_[round].done) return Step::kBlocked;
    }
    return Step::kDone;
  }

  void PostReceives() {
    for (; (1 << rounds_) < comm_.size(); ++rounds_) {
      comm_.Recv(comm_.rank() - (1 << rounds_), sequence_, static_cast<uint32_t>(rounds_), nullptr,
                 0, &receiving_[rounds_]);
    }
  }

  const Communicator comm_;
  const uint64_t sequence_;
  int rounds_ = 0;
  int round_ = 0;  // rounds begun
  std::array<Transfer, 31> receiving_;
  std::array<Transfer, 31> sending_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeWindowBarrier(Board* board) {
  return std::make_unique<WindowBarrier>(board);
}

std::unique_ptr<StepMachine> MakeDisseminationBarrier(const Communicator& comm, uint64_t sequence) {
  return std::make_unique<DisseminationBarrier>(comm, sequence);
}

}  // namespace hvd
