#include <array>

#include "collective/transport_collectives.h"
#include "collective/window/collectives.h"

namespace hvd {

namespace {

class WindowBarrier : public StepMachine {
 public:
  explicit WindowBarrier(Board* board) : board_(board), operation_(board->NextOperation()) {}

  Step Advance() override {
    if (!begun_) {
      if (!board_->MayBegin(operation_)) return Step::kBlocked;
      board_->Begin(operation_);
      begun_ = true;
    }
    while (arrived_ < board_->size() && board_->HasBegun(arrived_, operation_)) ++arrived_;
    return arrived_ == board_->size() ? Step::kDone : Step::kBlocked;
  }

 private:
  Board* const board_;
  const uint64_t operation_;
  bool begun_ = false;
  int arrived_ = 0;  // the ranks below have begun
};

class DisseminationBarrier : public StepMachine {
 public:
  DisseminationBarrier(const Communicator& comm, uint64_t sequence)
      : comm_(comm), sequence_(sequence) {}

  Step Advance() override {
    if (round_ > 0 && !receiving_[round_ - 1].done) return Step::kBlocked;
    const int distance = 1 << round_;
    if (distance < comm_.size()) {
      const auto tag = static_cast<uint32_t>(round_);
      comm_.Recv(comm_.rank() - distance, sequence_, tag, nullptr, 0, &receiving_[round_]);
      comm_.Send(comm_.rank() + distance, sequence_, tag, nullptr, 0, &sending_[round_]);
      ++round_;
      return Step::kProgressed;
    }
    for (int round = 0; round < round_; ++round) {
      if (!sending_[round].done) return Step::kBlocked;
    }
    return Step::kDone;
  }

 private:
  const Communicator comm_;
  const uint64_t sequence_;
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
