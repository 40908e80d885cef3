#include "backend/nccl/setting_up.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace hvd::nccl {

namespace {

// What a member tells the others. Of fixed size: they read nothing beyond it.
struct Told {
  UniqueId id;      // of the first member
  int version;      // of its NCCL
  char error[384];  // ends with a 0; empty: none
};

class SettingUp : public StepMachine {
 public:
  SettingUp(Session* session, Backend* host, Members members, Position position, uint64_t sequence)
      : session_(session),
        host_(host),
        members_(std::move(members)),
        position_(position),
        sequence_(sequence),
        told_(static_cast<size_t>(members_.size())) {}

  Status status() const override {
    if (!status_.ok()) return status_;
    return exchange_ != nullptr ? exchange_->status() : session_->status();
  }
  int64_t deadline_us() const override {
    return exchange_ != nullptr ? exchange_->deadline_us() : -1;
  }

 private:
  Step TakeStep() override {
    if (exchange_ != nullptr) return Exchange();
    const Step step = session_->Look();
    if (step != Step::kDone || connecting_) return step;
    exchange_ = host_->Start(Tell());
    return Step::kProgressed;
  }

  // An allgather of equal parts.
  CollectiveSpec Tell() {
    mine_.id = session_->id();
    mine_.version = session_->version();
    const std::string error = session_->status().message();
    std::strncpy(mine_.error, error.c_str(), sizeof mine_.error - 1);
    CollectiveSpec spec;
    spec.kind = OpKind::kAllgather;
    spec.sequence = sequence_;
    spec.reduction.dtype = DataType::kUint8;
    spec.pieces.push_back({reinterpret_cast<const std::byte*>(&mine_),
                           reinterpret_cast<std::byte*>(told_.data()), sizeof mine_});
    spec.shares.push_back({{}, std::vector<int64_t>(told_.size(), sizeof mine_)});
    return spec;
  }

  Step Exchange() {
    const Step step = exchange_->Advance();
    if (step != Step::kDone) return step;
    exchange_.reset();
    status_ = WhoCannot();
    if (status_.ok()) status_ = WhoDiffers();
    if (!status_.ok()) return Step::kFailed;
    connecting_ = true;
    session_->BeginToConnect(told_.front().id);
    return Step::kProgressed;
  }

  Status WhoCannot() {
    for (size_t i = 0; i < told_.size(); ++i) {
      told_[i].error[sizeof told_[i].error - 1] = '\0';
      if (told_[i].error[0] == '\0') continue;
      return Status::Aborted(Name(members_[Position(static_cast<int>(i))]) +
                             " cannot use NCCL: " + told_[i].error +
                             ". HOROVOD_GPU_OPERATIONS=host in the environment of all ranks has "
                             "tensors of GPUs travel by way of host memory");
    }
    return Status::Ok();
  }

  // With another version NCCL would not set up a communicator, or hang there.
  Status WhoDiffers() const {
    const int first = told_.front().version;
    const auto differs =
        std::find_if(told_.begin(), told_.end(), [&](const Told& t) { return t.version != first; });
    if (differs == told_.end()) return Status::Ok();
    const auto at = static_cast<int>(differs - told_.begin());
    return Status::Aborted(Name(members_[Position(at)]) + " has version " +
                           VersionText(differs->version) + " of NCCL, and " +
                           Name(members_[Position(0)]) + " has " + VersionText(first) +
                           ". Install the same one on all hosts (HOROVOD_NCCL_LIB names the file "
                           "to use), or set HOROVOD_GPU_OPERATIONS=host for all ranks: then "
                           "tensors of GPUs travel by way of host memory");
  }

  Session* const session_;
  Backend* const host_;
  const Members members_;
  const Position position_;
  const uint64_t sequence_;
  Told mine_ = {};
  std::vector<Told> told_;
  std::unique_ptr<StepMachine> exchange_;
  bool connecting_ = false;
};

}  // namespace

std::unique_ptr<StepMachine> MakeSettingUp(Session* session, Backend* host, const Members& members,
                                           Position position, uint64_t sequence) {
  return std::make_unique<SettingUp>(session, host, members, position, sequence);
}

}  // namespace hvd::nccl
