#include "collective/dissemination_barrier.h"

#include <array>

namespace hvd {

namespace {

class DisseminationBarrier : public StepMachine {
 public:
  DisseminationBarrier(const Group& group, uint64_t sequence) : group_(group), sequence_(sequence) {}

  Step Advance() override {
    if (round_ > 0 && !receiving_[round_ - 1].done) return Step::kBlocked;
    const int distance = 1 << round_;
    if (distance < group_.size()) {
      const auto tag = static_cast<uint32_t>(round_);
      group_.Recv(group_.rank() - distance, sequence_, tag, nullptr, 0, &receiving_[round_]);
      group_.Send(group_.rank() + distance, sequence_, tag, nullptr, 0, &sending_[round_]);
      ++round_;
      return Step::kProgressed;
    }
    for (int round = 0; round < round_; ++round) {
      if (!sending_[round].done) return Step::kBlocked;
    }
    return Step::kDone;
  }

 private:
  const Group group_;
  const uint64_t sequence_;
  int round_ = 0;  // rounds begun
  std::array<Transfer, 31> receiving_;
  std::array<Transfer, 31> sending_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeDisseminationBarrier(const Group& group, uint64_t sequence) {
  return std::make_unique<DisseminationBarrier>(group, sequence);
}

}  // namespace hvd
