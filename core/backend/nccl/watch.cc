#include "backend/nccl/watch.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace hvd::nccl {

namespace {

// NCCL may tell of a dead peer sooner than the engine's watcher, and without its name: so it is
// told so much later, when the true cause has come.
constexpr int64_t kLateUs = 500000;
constexpr int kMostBackOff = 5;

std::string Seconds(int64_t us) { return std::to_string(us / 1000000) + " s"; }

}  // namespace

bool Watch::Look(int64_t now_us) {
  const Status status = Inspect();
  if (!status.ok()) {
    Failed(status, now_us);
    return !told_;
  }
  if (since_us_ < 0) return false;
  runtime_->Tell([&](const GpuListener& listener) { Judge(listener, now_us); });
  return true;
}

// The driver of the engine may be at work with the communicator.
Status Watch::Inspect() {
  const std::lock_guard<std::mutex> lock(communicator_->in_use());
  const DeviceScope scope(communicator_->driver(), communicator_->context());
  Outstanding& outstanding = communicator_->outstanding();
  const Status gpu = outstanding.Look();
  const Outstanding::Given* const oldest = outstanding.oldest();
  if (oldest == nullptr || oldest->since_us != since_us_) warnings_ = 0;
  since_us_ = oldest == nullptr ? -1 : oldest->since_us;
  if (oldest != nullptr) {
    title_ = oldest->title;
    complete_ = oldest->complete;
    reached_ = oldest->reached;
  }
  const std::string doing = communicator_->Doing(title_);
  if (!gpu.ok()) return Status::Aborted(doing + ": " + gpu.message());
  const int state = communicator_->Look();
  if (state == kSuccess || state == kInProgress) return Status::Ok();
  return communicator_->Error(state, doing);
}

void Watch::Failed(const Status& why, int64_t now_us) {
  if (failed_us_ < 0) failed_us_ = now_us;
  if (told_ || now_us < failed_us_ + kLateUs) return;
  told_ = true;
  const GlobalRank rank = runtime_->options().rank;
  const GpuTrouble trouble{false, rank, Name(rank) + " cannot go on: " + why.message()};
  runtime_->Tell([&](const GpuListener& listener) {
    if (listener.on_trouble) listener.on_trouble(trouble);
  });
}

void Watch::Judge(const GpuListener& listener, int64_t now_us) {
  const int64_t age = now_us - since_us_;
  if (listener.warning_us > 0 && age >= listener.warning_us) Warn(listener, now_us);
  if (told_ || listener.failure_us == 0 || !listener.on_trouble) return;
  // The rank that others wait for speaks first.
  const int64_t limit = listener.failure_us + (reached_ ? listener.failure_us / 5 : 0);
  if (age < limit) return;
  told_ = true;
  const GlobalRank culprit = reached_ ? GlobalRank() : runtime_->options().rank;
  listener.on_trouble({true, culprit, Report(now_us)});
}

// What goes on for long is said less and less often.
void Watch::Warn(const GpuListener& listener, int64_t now_us) {
  if (warnings_ > 0 && now_us < next_warning_us_) return;
  if (listener.on_stall) listener.on_stall(Report(now_us), warnings_ == 0);
  warnings_ = std::min(warnings_ + 1, kMostBackOff);
  next_warning_us_ = now_us + (listener.warning_us << (warnings_ - 1));
}

std::string Watch::Report(int64_t now_us) const {
  const std::string rank = Name(runtime_->options().rank);
  const std::string doing = communicator_->Doing(title_);
  const std::string seconds = Seconds(now_us - since_us_);
  if (!complete_) {
    return rank + " has waited for " + seconds + " for NCCL to launch the " + doing +
           ". NCCL_DEBUG=INFO in the environment of all ranks shows where it waits.";
  }
  if (!reached_) {
    return rank + "'s GPU has not reached the " + doing + ", which it was given " + seconds +
           " ago: it is still busy with what the program gave it before, and the GPUs of the other "
           "ranks wait for it.";
  }
  return rank + "'s GPU has not finished the " + doing + ", which it was given " + seconds +
         " ago: it waits for the GPU of another rank, which has not reached it, or hangs.";
}

}  // namespace hvd::nccl
