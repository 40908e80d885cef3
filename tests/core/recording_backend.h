#pragma once

// A backend of a device that no machine has: it records what it is asked for, and the test says
// when its machines go on.

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace hvd::test {

// Outlives the backend. Machines go on when the test lets them, from any thread; all else belongs
// to the thread that drives.
struct Record {
  std::vector<std::string> calls;
  std::vector<CollectiveSpec> specs;
  const Waker* waker = nullptr;
  int64_t deadline_us = -1;              // of machines that are blocked
  Status set_up_status;                  // how setting up ends
  std::shared_ptr<const DeviceEnd> end;  // of all collectives
  std::atomic<bool> may_set_up{true};
  std::atomic<bool> may_run{true};

  void LetRun() {
    may_run.store(true);
    waker->Ring();
  }
};

class RecordingMachine : public StepMachine {
 public:
  RecordingMachine(std::shared_ptr<Record> record, const CollectiveSpec& spec,
                   const std::atomic<bool>* may_end, Status end)
      : record_(std::move(record)),
        pieces_(spec.pieces),
        on_device_(spec.end),
        may_end_(may_end),
        end_(std::move(end)) {}
  ~RecordingMachine() override { record_->calls.emplace_back("machine gone"); }

  Status status() const override { return end_; }
  int64_t deadline_us() const override { return record_->deadline_us; }

 private:
  Step TakeStep() override {
    if (!may_end_->load()) return Step::kBlocked;
    for (const Piece& piece : pieces_) {
      std::memcpy(piece.output, piece.input, static_cast<size_t>(piece.bytes));
    }
    if (on_device_ != nullptr) *on_device_ = record_->end;
    return end_.ok() ? Step::kDone : Step::kFailed;
  }

  const std::shared_ptr<Record> record_;
  const std::vector<Piece> pieces_;
  std::shared_ptr<const DeviceEnd>* const on_device_;
  const std::atomic<bool>* const may_end_;
  const Status end_;
};

// Serves every GPU. Its collectives copy inputs to outputs.
class RecordingBackend : public Backend {
 public:
  explicit RecordingBackend(std::shared_ptr<Record> record) : record_(std::move(record)) {}

  bool Serves(const CollectiveSpec& spec) const override { return spec.device != kHostDevice; }

  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& /*first*/, const Waker& waker) override {
    record_->calls.emplace_back("set up");
    record_->waker = &waker;
    return std::make_unique<RecordingMachine>(record_, CollectiveSpec(), &record_->may_set_up,
                                              record_->set_up_status);
  }

  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) override {
    record_->calls.push_back(std::string("start ") + Name(spec.kind));
    record_->specs.push_back(spec);
    return std::make_unique<RecordingMachine>(record_, spec, &record_->may_run, Status::Ok());
  }

  void Abort() noexcept override { record_->calls.emplace_back("abort"); }

 private:
  const std::shared_ptr<Record> record_;
};

}  // namespace hvd::test
