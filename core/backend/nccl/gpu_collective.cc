#include "backend/nccl/gpu_collective.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "backend/nccl/layout.h"
#include "backend/nccl/reduction.h"
#include "base/clock.h"

namespace hvd::nccl {

namespace {

constexpr size_t kCopiesPerStep = 64;
constexpr int64_t kPauseUs = 50;      // between two looks at what NCCL does by itself
constexpr int64_t kLateUs = 1000000;  // see Session: NCCL's word comes after the watcher's
constexpr int kFactorOnHost = 1;      // a factor that is read at once

uintptr_t Address(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

class GpuCollective : public StepMachine {
 public:
  GpuCollective(CollectiveSpec spec, Communicator* communicator, int rank, int size)
      : spec_(std::move(spec)),
        communicator_(communicator),
        driver_(communicator->driver()),
        rank_(rank),
        size_(size) {}

  Status status() const override { return failure_; }
  int64_t deadline_us() const override {
    return failed_us_ >= 0 ? failed_us_ + kLateUs : look_again_us_;
  }

 private:
  enum class Phase : uint8_t { kInputs, kBefore, kCall, kLaunch, kAfter, kEnd, kDone };

  Step TakeStep() override {
    if (failed_us_ >= 0) return NowMicros() < failed_us_ + kLateUs ? Step::kBlocked : Step::kFailed;
    const std::lock_guard<std::mutex> lock(communicator_->in_use());
    const DeviceScope scope(driver_, communicator_->context());
    switch (phase_) {
      case Phase::kInputs:
        return Went(AwaitInputs(), Phase::kBefore);
      case Phase::kBefore:
        return Copies(layout_->before, Phase::kCall);
      case Phase::kCall:
        return Call();
      case Phase::kLaunch:
        return Look(communicator_->Look());
      case Phase::kAfter:
        return Copies(layout_->after, Phase::kEnd);
      case Phase::kEnd:
        return Went(EndOnGpu(), Phase::kDone);
      case Phase::kDone:
        return Step::kDone;
    }
    return Step::kFailed;
  }

  Step Went(const Status& status, Phase next) {
    if (!status.ok()) return Fail(status);
    phase_ = next;
    return Step::kProgressed;
  }

  Step Fail(Status status) {
    failure_ = std::move(status);
    failed_us_ = NowMicros();
    return Step::kBlocked;
  }

  std::string Doing() const {
    return communicator_->Doing(spec_.title.empty() ? Name(spec_.kind) : spec_.title);
  }
  Status Check(int result) const { return driver_.Check(result, Doing().c_str()); }

  Status AwaitInputs() {
    const int state = communicator_->Look();
    if (state != kSuccess) return communicator_->Error(state, Doing());
    void* last = nullptr;
    for (const DeviceOrder& order : spec_.order) {
      if (order.ready_event == nullptr || order.ready_event == last) continue;
      last = order.ready_event;
      HVD_RETURN_IF_ERROR(Check(driver_.call().wait_for_event(communicator_->stream(), last, 0)));
    }
    return MakeLayout();
  }

  Status MakeLayout() {
    const int32_t home = communicator_->device();
    const int64_t bytes = Layout::BufferBytes(spec_, home, rank_);
    std::byte* buffer = communicator_->buffer();
    if (bytes > static_cast<int64_t>(Communicator::kBufferBytes)) {
      HVD_RETURN_IF_ERROR(communicator_->Borrow(bytes, &buffer));
    }
    layout_ = std::make_unique<Layout>(spec_, home, rank_, buffer);
    return Status::Ok();
  }

  Step Copies(const std::vector<Copy>& copies, Phase next) {
    for (size_t i = 0; i < kCopiesPerStep && copied_ < copies.size(); ++i) {
      const Status status = Run(copies[copied_++]);
      if (!status.ok()) return Fail(status);
    }
    if (copied_ < copies.size()) return Step::kProgressed;
    copied_ = 0;
    phase_ = next;
    return Step::kProgressed;
  }

  Status Run(const Copy& copy) const {
    if (copy.from == nullptr) return Fill(copy);
    return communicator_->Copy(Address(copy.to), copy.to_device, Address(copy.from),
                               copy.from_device, static_cast<size_t>(copy.bytes));
  }

  // The driver fills with one byte; of longer patterns the first is made of bytes, and copied to
  // twice as much each time.
  Status Fill(const Copy& copy) const {
    const auto bytes = static_cast<size_t>(copy.bytes);
    const auto set = [&](size_t at, size_t count) {
      return Check(driver_.call().fill(Address(copy.to + at),
                                       static_cast<unsigned char>(copy.pattern[at]), count,
                                       communicator_->stream()));
    };
    const std::byte* const end = copy.pattern + copy.element;
    if (std::count(copy.pattern, end, copy.pattern[0]) == end - copy.pattern) return set(0, bytes);
    for (size_t at = 0; at < copy.element; ++at) HVD_RETURN_IF_ERROR(set(at, 1));
    for (size_t filled = copy.element; filled < bytes; filled *= 2) {
      HVD_RETURN_IF_ERROR(
          Check(driver_.call().copy(Address(copy.to + filled), Address(copy.to),
                                    std::min(filled, bytes - filled), communicator_->stream())));
    }
    return Status::Ok();
  }

  Step Call() {
    const std::string title = spec_.title.empty() ? Name(spec_.kind) : spec_.title;
    const Status begun =
        communicator_->outstanding().Begin(communicator_->stream(), title, NowMicros());
    if (!begun.ok()) return Fail(begun);
    Arithmetic arithmetic;
    if (Reduces(spec_.kind)) arithmetic = ArithmeticOf(spec_.reduction);
    const NcclFunctions& nccl = communicator_->nccl();
    int op = arithmetic.op;
    if (arithmetic.scales) {
      const int made = nccl.create_scaled_sum(&op, arithmetic.factor, arithmetic.dtype,
                                              kFactorOnHost, communicator_->handle());
      if (made != kSuccess) return Fail(communicator_->Error(made, Doing()));
      scaled_sum_ = op;
    }
    phase_ = Phase::kLaunch;
    return Look(Issue(spec_, layout_->parts, op, rank_, size_, *communicator_));
  }

  Step Look(int state) {
    if (state == kInProgress) {
      look_again_us_ = NowMicros() + kPauseUs;
      return Step::kBlocked;
    }
    look_again_us_ = -1;
    if (state != kSuccess) return Fail(communicator_->Error(state, Doing()));
    if (scaled_sum_ >= 0) communicator_->nccl().destroy_op(scaled_sum_, communicator_->handle());
    phase_ = Phase::kAfter;
    return Step::kProgressed;
  }

  Status EndOnGpu() {
    HVD_RETURN_IF_ERROR(communicator_->Return());
    return communicator_->outstanding().End(communicator_->stream(), spec_.end);
  }

  const CollectiveSpec spec_;
  Communicator* const communicator_;
  const GpuDriver& driver_;
  const int rank_;
  const int size_;
  Phase phase_ = Phase::kInputs;
  std::unique_ptr<Layout> layout_;
  size_t copied_ = 0;    // of the phase
  int scaled_sum_ = -1;  // NCCL's number of the operation that was made for this collective
  int64_t look_again_us_ = -1;
  int64_t failed_us_ = -1;
  Status failure_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeGpuCollective(CollectiveSpec spec, Communicator* communicator,
                                               int rank, int size) {
  return std::make_unique<GpuCollective>(std::move(spec), communicator, rank, size);
}

}  // namespace hvd::nccl
