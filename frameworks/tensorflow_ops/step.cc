#include "tensorflow_ops/step.h"

#include <map>
#include <mutex>
#include <utility>

namespace hvd::tensorflow {

Step::Member::Member(std::shared_ptr<Step> step) : step_(std::move(step)) { step_->members_.fetch_add(1); }

Step::Member::~Member() { step_->members_.fetch_sub(1); }

// A run of the step that was not completed leaves a part of a count: then one that is not the last says that
// it is, and the last waits for others in vain for a moment. Nothing depends on it.
bool Step::Member::IsLast() const { return (step_->starts_.fetch_add(1) + 1) % step_->members_.load() == 0; }

std::unique_ptr<Step::Member> Step::MemberOf(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Step>> steps;
  if (name.empty()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Step> step = steps[name].lock();
  if (step == nullptr) steps[name] = step = std::make_shared<Step>();
  return std::make_unique<Member>(step);
}

}  // namespace hvd::tensorflow
