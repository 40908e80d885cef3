#include "xla_ops/step.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "xla_ops/errors.h"
#include "xla_ops/frame.h"

namespace hvd::xla {

namespace {

// Tensors that travel as one operation, one behind the other in memory of their own: when a program
// fails between start and end, XLA frees its buffers while the core may still use them.
struct Part {
  std::vector<int64_t> bytes;  // of each tensor
  std::unique_ptr<std::byte[]> data;
};

constexpr int64_t kAlignment = 64;

int64_t RoomFor(int64_t bytes) { return (bytes + kAlignment) / kAlignment * kAlignment; }

class Step : public std::enable_shared_from_this<Step> {
 public:
  // `before`: the step before, of which the core may still have parts if it or its program has
  // failed; may be null.
  Step(size_t parts, std::shared_ptr<Step> before) : parts_(parts), before_(std::move(before)) {
    if (before_ != nullptr) before_->before_ = nullptr;  // that one has waited for its own
  }

  size_t size() const { return parts_.size(); }
  bool Has(size_t part) const { return parts_[part].data != nullptr; }
  bool IsStarted() const { return started_ == parts_.size(); }
  bool IsTaken() const { return taken_; }
  void SetTaken() { taken_ = true; }

  // Under the lock of the steps.
  void Allocate(size_t at, const std::vector<const Buffer*>& inputs) {
    Part part;
    int64_t room = 0;
    for (const Buffer* input : inputs) {
      part.bytes.push_back(BytesOf(*input));
      room += RoomFor(part.bytes.back());
    }
    part.data.reset(new std::byte[static_cast<size_t>(room)]);
    parts_[at] = std::move(part);
    ++started_;
  }

  void Start(hvd_api* core, const Options& options, const std::vector<const Buffer*>& inputs,
             bool last) {
    if (before_ != nullptr) before_->Wait();  // for its names to be free
    const auto at = static_cast<size_t>(options.part);
    const Part& part = parts_[at];
    std::vector<hvd_tensor> tensors;
    std::byte* place = part.data.get();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (part.bytes[i] > 0)
        std::memcpy(place, inputs[i]->data, static_cast<size_t>(part.bytes[i]));
      tensors.push_back({place, part.bytes[i], place, part.bytes[i], CoreType(*inputs[i]),
                         static_cast<int32_t>(inputs[i]->dims), inputs[i]->shape});
      place += RoomFor(part.bytes[i]);
    }
    const std::string name = options.name + "." + std::to_string(at);
    hvd_operation operation{};
    operation.kind = static_cast<int32_t>(OpKind::kAllreduce);
    operation.reduce_op = static_cast<int32_t>(options.reduce_op);
    operation.prescale = options.prescale;
    operation.postscale = options.postscale;
    operation.process_set = static_cast<uint32_t>(options.process_set);
    operation.name = name.c_str();
    operation.tensors = tensors.data();
    operation.tensor_count = static_cast<int32_t>(tensors.size());
    operation.urgent = last ? 1 : 0;  // the others may wait for what comes soon
    core->submit(core, &operation, &PartIsDone, new std::shared_ptr<Step>(shared_from_this()));
  }

  // Until the core has done with all that has been started.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_ == started_; });
  }

  // The results go to `targets`, then the future is completed.
  void Take(const Api* api, Future* future, const std::vector<const Buffer*>& targets) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      api_ = api;
      future_ = future;
      for (const Buffer* target : targets) targets_.push_back(target->data);
      if (!IsOver()) return;
      future_ = nullptr;
    }
    Deliver(future);
  }

 private:
  // Called by the core, through which nothing may be thrown.
  static void PartIsDone(void* given, const hvd_result* result) noexcept {
    const std::unique_ptr<std::shared_ptr<Step>> step(static_cast<std::shared_ptr<Step>*>(given));
    (*step)->CountDone(FailureOf(*result));
  }

  void CountDone(Failure failure) {
    Future* future = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (failure_.code == 0) failure_ = std::move(failure);
      ++done_;
      changed_.notify_all();
      if (future_ == nullptr || !IsOver()) return;
      future = std::exchange(future_, nullptr);
    }
    Deliver(future);
  }

  // Other ranks may never start the parts behind one that has failed.
  bool IsOver() const { return done_ == parts_.size() || failure_.code != 0; }

  void Deliver(Future* future) {
    if (failure_.code != 0) return Fail(*api_, future, failure_);
    auto target = targets_.begin();
    for (Part& part : parts_) {
      const std::byte* place = part.data.get();
      for (const int64_t bytes : part.bytes) {
        if (bytes > 0) std::memcpy(*target, place, static_cast<size_t>(bytes));
        place += RoomFor(bytes);
        ++target;
      }
      part.data.reset();  // the step stays until the next one begins
    }
    Complete(*api_, future);
  }

  std::vector<Part> parts_;
  std::shared_ptr<Step> before_;
  size_t started_ = 0;
  bool taken_ = false;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  size_t done_ = 0;
  Failure failure_;  // the first
  const Api* api_ = nullptr;
  Future* future_ = nullptr;  // null: not taken, or completed
  std::vector<void*> targets_;
};

// By process set and name: the latest step. It stays until the next one of its name begins, as the
// core may have parts of one that has failed.
struct Steps {
  std::mutex mutex;
  std::map<std::pair<int64_t, std::string>, std::shared_ptr<Step>> latest;
};

Steps& AllSteps() {
  static Steps& steps = *new Steps;  // the core may call back while the process ends
  return steps;
}

struct Begun {
  std::shared_ptr<Step> step;
  bool last;
};

Begun Begin(const Options& options, const std::vector<const Buffer*>& inputs) {
  const auto part = static_cast<size_t>(options.part);
  const auto count = static_cast<size_t>(options.parts);
  Steps& steps = AllSteps();
  const std::lock_guard<std::mutex> lock(steps.mutex);
  std::shared_ptr<Step>& step = steps.latest[{options.process_set, options.name}];
  if (step == nullptr || step->size() != count || step->IsTaken() || step->Has(part))
    step = std::make_shared<Step>(count, step);
  step->Allocate(part, inputs);
  return {step, step->IsStarted()};
}

std::shared_ptr<Step> End(const Options& options) {
  Steps& steps = AllSteps();
  const std::lock_guard<std::mutex> lock(steps.mutex);
  const auto found = steps.latest.find({options.process_set, options.name});
  if (found == steps.latest.end() || found->second->IsTaken()) return nullptr;
  found->second->SetTaken();
  return found->second;
}

}  // namespace

Error* StartPart(hvd_api* core, Frame* frame) {
  try {
    const Options options = OptionsOf(frame->attributes);
    std::vector<const Buffer*> inputs = BuffersOf(frame->arguments);
    if (options.ordered == 1) inputs.erase(inputs.begin());
    const Begun begun = Begin(options, inputs);
    begun.step->Start(core, options, inputs, begun.last);
    const Buffer& ticket = *BuffersOf(frame->results).front();
    std::memset(ticket.data, 0, static_cast<size_t>(BytesOf(ticket)));
    return nullptr;
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory to start an operation of horovod");
  }
}

Error* TakeStep(hvd_api*, Frame* frame) {
  try {
    const Options options = OptionsOf(frame->attributes);
    std::vector<const Buffer*> targets = BuffersOf(frame->results);
    if (options.ordered == 1) {
      std::memset(targets.front()->data, 0, static_cast<size_t>(BytesOf(*targets.front())));
      targets.erase(targets.begin());
    }
    const std::shared_ptr<Step> step = End(options);
    if (step == nullptr || !step->IsStarted())
      return MakeError(*frame->api, kInternal, "a part of this step has not been started");
    frame->future = MakeFuture(*frame->api);
    if (frame->future == nullptr) return MakeError(*frame->api, kInternal, "XLA makes no future");
    step->Take(frame->api, frame->future, targets);
    return nullptr;
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory for an operation of horovod");
  }
}

}  // namespace hvd::xla
