#include "python/handles.h"

#include <pthread.h>

#include <mutex>
#include <unordered_map>
#include <utility>

namespace hvd::python {

namespace {

struct Handles {
  std::mutex mutex;  // guards what follows
  std::unordered_map<int64_t, HandlePtr> by_number;
  int64_t last = 1000;  // Python keeps one object for each small integer, so those are never dropped
};

// Never destroyed: threads may use it while the interpreter ends. Replaced, not cleaned, in a forked child,
// where its lock may be held for ever.
Handles* handles = new Handles;

}  // namespace

NumberedPlace::NumberedPlace() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { handles = new Handles; });
  const std::lock_guard<std::mutex> lock(handles->mutex);
  handles->by_number.emplace(handles->last + 1, nullptr);
  number_ = ++handles->last;
}

NumberedPlace::~NumberedPlace() {
  if (!taken_) Forget(number_);
}

void NumberedPlace::Take(HandlePtr handle) noexcept {
  taken_ = true;
  const std::lock_guard<std::mutex> lock(handles->mutex);
  const auto place = handles->by_number.find(number_);
  if (place != handles->by_number.end()) place->second = std::move(handle);  // else: forked in between
}

HandlePtr Recall(int64_t number) {
  const std::lock_guard<std::mutex> lock(handles->mutex);
  const auto found = handles->by_number.find(number);
  return found == handles->by_number.end() ? nullptr : found->second;
}

void Forget(int64_t number) {
  const std::lock_guard<std::mutex> lock(handles->mutex);
  handles->by_number.erase(number);
}

}  // namespace hvd::python
