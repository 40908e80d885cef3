#include "backend/library/staged_backend.h"

#include <string>
#include <utility>

#include "backend/library/rounds.h"
#include "base/clock.h"

namespace hvd {

namespace {

// A library tells of a dead peer sooner than the watcher, and without its name: so its failure is
// told so much later, when the true cause has come.
constexpr int64_t kLateUs = 1'000'000;

// What a library has under way, as machines look at it.
class UnderWay {
 public:
  UnderWay(LibrarySet* library, const char* name) : library_(library), name_(name) {}

  Step Look() {
    if (failed_us_ < 0) {
      const Step step = library_->Look();
      if (step != Step::kFailed) return step;
      failed_us_ = NowMicros();
    }
    return NowMicros() < failed_us_ + kLateUs ? Step::kBlocked : Step::kFailed;
  }
  Status status(const std::string& doing) const {
    const Status& why = library_->status();
    return {why.code(), std::string(name_) + " failed during " + doing + ": " + why.message()};
  }
  int64_t deadline_us() const { return failed_us_ < 0 ? -1 : failed_us_ + kLateUs; }

 private:
  LibrarySet* const library_;
  const char* const name_;
  int64_t failed_us_ = -1;
};

// The members tell each other where the library reaches them, over what they have already.
class Connecting : public StepMachine {
 public:
  Connecting(LibrarySet* library, const char* name, Backend* host, int rank, int size,
             const CollectiveSpec& first, const Waker& waker)
      : library_(library), host_(host), under_way_(library, name) {
    const size_t bytes = LibrarySet::kAddressBytes * static_cast<size_t>(size);
    mine_ = std::make_shared<LibrarySet::Addresses>(bytes);
    theirs_ = std::make_shared<LibrarySet::Addresses>(bytes);
    swap_.kind = OpKind::kAlltoall;
    swap_.sequence = first.sequence;
    swap_.pieces.push_back({mine_->data(), theirs_->data(), static_cast<int64_t>(bytes)});
    AddAlikeRows(std::vector<int64_t>(static_cast<size_t>(size), LibrarySet::kAddressBytes), rank,
                 &swap_);
    library_->BeginToListen(waker, mine_);
  }

  Status status() const override {
    return exchange_ != nullptr ? exchange_->status() : under_way_.status("setting up");
  }
  int64_t deadline_us() const override {
    return exchange_ != nullptr ? exchange_->deadline_us() : under_way_.deadline_us();
  }

 private:
  Step TakeStep() override {
    if (exchange_ != nullptr) return Exchange();
    const Step step = under_way_.Look();
    if (step != Step::kDone || connecting_) return step;
    exchange_ = host_->Start(swap_);
    return Step::kProgressed;
  }

  Step Exchange() {
    const Step step = exchange_->Advance();
    if (step != Step::kDone) return step;
    exchange_.reset();
    connecting_ = true;
    library_->BeginToConnect(theirs_);
    return Step::kProgressed;
  }

  LibrarySet* const library_;
  Backend* const host_;
  UnderWay under_way_;
  std::shared_ptr<LibrarySet::Addresses> mine_;
  std::shared_ptr<LibrarySet::Addresses> theirs_;
  CollectiveSpec swap_;
  std::unique_ptr<StepMachine> exchange_;
  bool connecting_ = false;
};

class StagedCollective : public StepMachine {
 public:
  StagedCollective(CollectiveSpec spec, LibrarySet* library, const char* name, int rank, int size,
                   std::shared_ptr<Staging> staging)
      : kind_(spec.kind),
        rounds_(std::move(spec), rank, size),
        library_(library),
        staging_(std::move(staging)),
        under_way_(library, name) {}

  Status status() const override { return status_.ok() ? under_way_.status(Name(kind_)) : status_; }
  int64_t deadline_us() const override { return under_way_.deadline_us(); }

 private:
  enum class Phase : uint8_t { kNext, kPack, kCall, kUnpack };

  Step TakeStep() override {
    switch (phase_) {
      case Phase::kNext:
        return Next();
      case Phase::kPack:
        if (rounds_.Pack(&call_)) return Step::kProgressed;
        library_->Begin(call_);
        phase_ = Phase::kCall;
        return Step::kProgressed;
      case Phase::kCall:
        return Call();
      case Phase::kUnpack:
        if (!rounds_.Unpack(call_)) phase_ = Phase::kNext;
        return Step::kProgressed;
    }
    return Step::kFailed;
  }

  Step Next() {
    call_.memory = staging_;
    if (!rounds_.Next(&call_)) return Step::kDone;
    status_ = rounds_.Allocate(staging_.get(), &call_);
    phase_ = Phase::kPack;
    return Step::kProgressed;
  }

  Step Call() {
    const Step step = under_way_.Look();
    if (step != Step::kDone) return step;
    phase_ = Phase::kUnpack;
    return Step::kProgressed;
  }

  const OpKind kind_;
  Rounds rounds_;
  LibrarySet* const library_;
  const std::shared_ptr<Staging> staging_;
  UnderWay under_way_;
  LibraryCall call_;
  Phase phase_ = Phase::kNext;
};

class StagedBackend : public Backend {
 public:
  StagedBackend(std::unique_ptr<LibrarySet> library, const char* name, Backend* host, int rank,
                int size)
      : library_(std::move(library)),
        name_(name),
        host_(host),
        rank_(rank),
        size_(size),
        staging_(std::make_shared<Staging>()) {}

  bool Serves(const CollectiveSpec& spec) const override {
    return KindOf(spec.device) != DeviceKind::kGpu && library_->Has(spec.kind, spec.reduction.op);
  }
  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& first, const Waker& waker) override {
    return std::make_unique<Connecting>(library_.get(), name_, host_, rank_, size_, first, waker);
  }
  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) override {
    return std::make_unique<StagedCollective>(std::move(spec), library_.get(), name_, rank_, size_,
                                              staging_);
  }
  void Abort() noexcept override { library_->Abandon(); }

 private:
  const std::unique_ptr<LibrarySet> library_;
  const char* const name_;
  Backend* const host_;
  const int rank_;
  const int size_;
  const std::shared_ptr<Staging> staging_;  // collectives of a set run one at a time
};

}  // namespace

std::unique_ptr<Backend> MakeStagedBackend(std::unique_ptr<LibrarySet> library, const char* name,
                                           Backend* host, int rank, int size) {
  return std::make_unique<StagedBackend>(std::move(library), name, host, rank, size);
}

}  // namespace hvd
