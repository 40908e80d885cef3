#include "xla_ops/step.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
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
  std::string name;
  int32_t number;              // by which the end of a step knows it
  std::vector<int64_t> bytes;  // of each tensor
  std::unique_ptr<std::byte[]> data;
  std::vector<hvd_tensor> tensors;  // in `data`; their shapes are XLA's, until it is submitted
  bool done = false;
  Failure failure;  // once it is done
};

constexpr int64_t kAlignment = 64;

int64_t RoomFor(int64_t bytes) { return (bytes + kAlignment) / kAlignment * kAlignment; }

class Step;

// What the core has of a part until it is done.
struct Travelling {
  std::shared_ptr<Step> step;
  std::shared_ptr<Part> part;
};

class Step {
 public:
  // `before`: the step before, of which the core may still have parts if it or its program has
  // failed; may be null.
  Step(size_t parts, std::shared_ptr<Step> before) : before_(std::move(before)), parts_(parts) {
    if (before_ != nullptr) before_->before_ = nullptr;  // that one has waited for its own
  }

  size_t size() const { return parts_.size(); }
  bool IsTaken() const { return taken_; }
  std::shared_ptr<Step> before() const { return before_; }

  // Puts a part in its place. Returns what was there: a program has failed, and this is another
  // one.
  std::shared_ptr<Part> Put(size_t at, const std::shared_ptr<Part>& part) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(parts_[at], part);
  }

  bool IsStarted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::find(parts_.begin(), parts_.end(), nullptr) == parts_.end();
  }

  // Whether these are all of its parts; then it is taken. Under the lock of the steps.
  bool SetTaken(const std::vector<const Buffer*>& tickets) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bool same = !taken_ && tickets.size() == parts_.size();
    for (size_t at = 0; same && at < parts_.size(); ++at) {
      same = parts_[at] != nullptr &&
             std::memcmp(tickets[at]->data, &parts_[at]->number, sizeof(int32_t)) == 0;
    }
    taken_ = taken_ || same;
    return same;
  }

  // Until the core has done with all that has been started.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] {
      return std::all_of(parts_.begin(), parts_.end(),
                         [](const auto& part) { return part == nullptr || part->done; });
    });
  }

  // Until the core has done with one that is, or was, part of it.
  void WaitFor(const Part& part) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return part.done; });
  }

  // The results go to `targets`, then the future is completed.
  void Take(const Api* api, Future* future, const std::vector<const Buffer*>& targets) {
    const Part* failed = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const Buffer* target : targets) targets_.push_back(target->data);
      api_ = api;
      future_ = future;
      if (!IsOver()) return;
      future_ = nullptr;
      failed = Failed();
    }
    Deliver(future, failed);
  }

  // Called by the core, through which nothing may be thrown.
  static void PartIsDone(void* given, const hvd_result* result) noexcept {
    const std::unique_ptr<Travelling> ended(static_cast<Travelling*>(given));
    ended->step->SetDone(ended->part.get(), FailureOf(*result));
  }

 private:
  void SetDone(Part* part, Failure failure) {
    Future* future = nullptr;
    const Part* failed = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      part->failure = std::move(failure);
      part->done = true;
      changed_.notify_all();
      if (future_ == nullptr || !IsOver()) return;
      future = std::exchange(future_, nullptr);
      failed = Failed();
    }
    Deliver(future, failed);
  }

  // Under the lock, of a step that is taken; null: none.
  const Part* Failed() const {
    for (const auto& part : parts_) {
      if (part->done && part->failure.code != 0) return part.get();
    }
    return nullptr;
  }

  // Other ranks may never start the parts behind one that has failed.
  bool IsOver() const {
    return Failed() != nullptr ||
           std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->done; });
  }

  void Deliver(Future* future, const Part* failed) {
    if (failed != nullptr) return Fail(*api_, future, failed->failure);
    auto target = targets_.begin();
    for (const auto& part : parts_) {
      const std::byte* place = part->data.get();
      for (const int64_t bytes : part->bytes) {
        if (bytes > 0) std::memcpy(*target, place, static_cast<size_t>(bytes));
        place += RoomFor(bytes);
        ++target;
      }
      part->data.reset();  // the step stays until the next one begins
    }
    Complete(*api_, future);
  }

  // Both are guarded by the lock of the steps.
  std::shared_ptr<Step> before_;
  bool taken_ = false;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Part>> parts_;  // null: not started
  const Api* api_ = nullptr;
  Future* future_ = nullptr;  // null: not taken, or completed
  std::vector<void*> targets_;
};

// By process set and name: the latest step. It stays until the next one of its name begins, as the
// core may have parts of one that has failed.
struct Steps {
  std::mutex mutex;
  std::map<std::pair<int64_t, std::string>, std::shared_ptr<Step>> latest;
  int32_t parts = 0;  // started so far
};

Steps& AllSteps() {
  static Steps& steps = *new Steps;  // the core may call back while the process ends
  return steps;
}

std::shared_ptr<Part> MakePart(const Options& options, const std::vector<const Buffer*>& inputs) {
  auto part = std::make_shared<Part>();
  part->name = options.name + "." + std::to_string(options.part);
  int64_t room = 0;
  for (const Buffer* input : inputs) {
    part->bytes.push_back(BytesOf(*input));
    room += RoomFor(part->bytes.back());
  }
  part->data.reset(new std::byte[static_cast<size_t>(room)]);
  std::byte* place = part->data.get();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t bytes = part->bytes[i];
    if (bytes > 0) std::memcpy(place, inputs[i]->data, static_cast<size_t>(bytes));
    part->tensors.push_back({place, bytes, place, bytes, CoreType(*inputs[i]),
                             static_cast<int32_t>(inputs[i]->dims), inputs[i]->shape});
    place += RoomFor(bytes);
  }
  return part;
}

struct Begun {
  std::unique_ptr<Travelling> travelling;
  std::shared_ptr<Step> before;      // may be null
  std::shared_ptr<Part> instead_of;  // may be null; see Put
  bool last;
};

// All that may throw comes before the part is in its place, where others wait for it.
Begun Begin(const Options& options, const std::vector<const Buffer*>& inputs) {
  auto travelling = std::make_unique<Travelling>();
  travelling->part = MakePart(options, inputs);
  const auto count = static_cast<size_t>(options.parts);
  Steps& steps = AllSteps();
  const std::lock_guard<std::mutex> lock(steps.mutex);
  std::shared_ptr<Step>& step = steps.latest[{options.process_set, options.name}];
  if (step == nullptr || step->size() != count || step->IsTaken())
    step = std::make_shared<Step>(count, step);
  travelling->step = step;
  travelling->part->number = steps.parts = (steps.parts + 1) & INT32_MAX;
  auto instead_of = step->Put(static_cast<size_t>(options.part), travelling->part);
  return {std::move(travelling), step->before(), std::move(instead_of), step->IsStarted()};
}

void Submit(hvd_api* core, const Options& options, Begun begun) noexcept {
  const Travelling now = *begun.travelling;  // the core may be done before it returns
  // For its names to be free.
  if (begun.before != nullptr) begun.before->Wait();
  if (begun.instead_of != nullptr) now.step->WaitFor(*begun.instead_of);
  hvd_operation operation{};
  operation.kind = static_cast<int32_t>(OpKind::kAllreduce);
  operation.reduce_op = static_cast<int32_t>(options.reduce_op);
  operation.prescale = options.prescale;
  operation.postscale = options.postscale;
  operation.process_set = static_cast<uint32_t>(options.process_set);
  operation.name = now.part->name.c_str();
  operation.tensors = now.part->tensors.data();
  operation.tensor_count = static_cast<int32_t>(now.part->tensors.size());
  operation.urgent = begun.last ? 1 : 0;  // the others may wait for what comes soon
  core->submit(core, &operation, &Step::PartIsDone, begun.travelling.release());
}

std::shared_ptr<Step> End(const Options& options, const std::vector<const Buffer*>& tickets) {
  Steps& steps = AllSteps();
  const std::lock_guard<std::mutex> lock(steps.mutex);
  const auto found = steps.latest.find({options.process_set, options.name});
  if (found == steps.latest.end() || !found->second->SetTaken(tickets)) return nullptr;
  return found->second;
}

}  // namespace

Error* StartPart(hvd_api* core, Frame* frame) {
  try {
    const Options options = OptionsOf(frame->attributes);
    std::vector<const Buffer*> inputs = BuffersOf(frame->arguments);
    if (options.ordered == 1) inputs.erase(inputs.begin());
    const Buffer& ticket = *BuffersOf(frame->results).front();
    Begun begun = Begin(options, inputs);
    std::memcpy(ticket.data, &begun.travelling->part->number, sizeof(int32_t));
    Submit(core, options, std::move(begun));
    return nullptr;
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory to start an operation of horovod");
  }
}

Error* TakeStep(hvd_api*, Frame* frame) {
  try {
    const Options options = OptionsOf(frame->attributes);
    std::vector<const Buffer*> tickets = BuffersOf(frame->arguments);
    std::vector<const Buffer*> targets = BuffersOf(frame->results);
    if (options.ordered == 1) {
      std::memset(targets.front()->data, 0, static_cast<size_t>(BytesOf(*targets.front())));
      targets.erase(targets.begin());
      tickets.erase(tickets.begin());
    }
    const std::shared_ptr<Step> step = End(options, tickets);
    if (step == nullptr) {
      const std::string told = "two compiled functions, or two calls of one, run '" + options.name +
                               "' at the same time; give each operation a name of its own";
      return MakeError(*frame->api, kFailedPrecondition, told.c_str());
    }
    frame->future = MakeFuture(*frame->api);
    if (frame->future == nullptr) return MakeError(*frame->api, kInternal, "XLA makes no future");
    step->Take(frame->api, frame->future, targets);
    return nullptr;
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory for an operation of horovod");
  }
}

}  // namespace hvd::xla
