#pragma once

#include <memory>

#include "backend/backend.h"
#include "sim/rank.h"

namespace hvd::sim {

// Runs collectives by the ledger: they move nothing and, unless marks carry them, take a while.
class SimBackend : public Backend {
 public:
  SimBackend(Job* job, int rank, size_t set) : job_(job), rank_(rank), set_(set) {}

  bool Serves(const CollectiveSpec& /*spec*/) const override { return true; }
  bool TakesGathered(const CollectiveSpec& spec) const override {
    return spec.kind == OpKind::kAllreduce && spec.reduction.op != ReduceOp::kAdasum;
  }
  void Combine(const CollectiveSpec& spec) override { job_->ledger.Started(rank_, set_, spec); }
  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& /*first*/,
                                     const Waker& /*waker*/) override {
    return nullptr;
  }
  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) override {
    job_->ledger.Started(rank_, set_, spec);
    return std::make_unique<Machine>(job_, set_, spec.sequence);
  }
  Status Allocate(const DeviceOrder& /*order*/, int64_t bytes,
                  std::shared_ptr<std::byte>* memory) override {
    const std::shared_ptr<std::byte[]> made(new std::byte[static_cast<size_t>(bytes) + 1]);
    *memory = {made, made.get()};
    return Status::Ok();
  }
  void Abort() noexcept override {}

 private:
  class Machine : public StepMachine {
   public:
    Machine(Job* job, size_t set, uint64_t sequence) : job_(job), set_(set), sequence_(sequence) {}

   private:
    hvd::Step TakeStep() override {
      const Nanos at = job_->ledger.CompleteAt(set_, sequence_);
      return at >= 0 && at <= job_->world.now() ? hvd::Step::kDone : hvd::Step::kBlocked;
    }

    Job* job_;
    const size_t set_;
    const uint64_t sequence_;
  };

  Job* job_;
  const int rank_;
  const size_t set_;
};

}  // namespace hvd::sim
