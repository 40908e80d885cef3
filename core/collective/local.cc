#include "collective/local.h"

#include <algorithm>

#include "collective/kernels.h"
#include "collective/piece_stream.h"

namespace hvd {

namespace {

constexpr int64_t kStride = kStepBytes / 2;  // read once, written once

class Local : public StepMachine {
 public:
  explicit Local(const CollectiveSpec& spec)
      : reduces_(spec.kind == OpKind::kAllreduce || spec.kind == OpKind::kReducescatter),
        reduction_(spec.reduction),
        stream_(spec.pieces) {}

  Step Advance() override {
    const int64_t end = std::min(at_ + kStride, stream_.bytes());
    if (reduces_) {
      Reduce(end);
    } else {
      stream_.Keep(at_, end);
    }
    at_ = end;
    return at_ == stream_.bytes() ? Step::kDone : Step::kProgressed;
  }

 private:
  void Reduce(int64_t end) {
    const auto element = static_cast<int64_t>(SizeOf(reduction_.dtype));
    stream_.ForEach(at_, end, [&](const std::byte* input, std::byte* output, int64_t, int64_t bytes) {
      const void* source = input;
      void* destination = output;
      kernels::Reduce(reduction_, &source, 1, &destination, 1, bytes / element);
    });
  }

  const bool reduces_;
  const Reduction reduction_;
  const PieceStream stream_;
  int64_t at_ = 0;
};

class Failed : public StepMachine {
 public:
  explicit Failed(Status status) : status_(std::move(status)) {}
  Step Advance() override { return Step::kFailed; }
  Status status() const override { return status_; }

 private:
  const Status status_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeLocal(const CollectiveSpec& spec) { return std::make_unique<Local>(spec); }

std::unique_ptr<StepMachine> MakeFailed(Status status) { return std::make_unique<Failed>(std::move(status)); }

}  // namespace hvd
