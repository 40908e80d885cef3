#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace fake_gpu {

// Opaque handles of objects. A number is never used again, so a handle of a destroyed object is
// found out.
template <typename T>
class HandleTable {
 public:
  explicit HandleTable(uintptr_t base) : base_(base) {}

  // `make(number)` returns the object; the first is number 1.
  template <typename Make>
  void* Add(Make make) {
    std::lock_guard<std::mutex> lock(mutex_);
    const int number = ++last_;
    objects_[number] = make(number);
    return reinterpret_cast<void*>(base_ + static_cast<uintptr_t>(number) * kStep);
  }

  // Null where the object was destroyed, or never was one.
  std::shared_ptr<T> Find(const void* handle) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(NumberOf(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  std::shared_ptr<T> Take(const void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(NumberOf(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = found->second;
    objects_.erase(found);
    return object;
  }

  template <typename Is>
  std::vector<std::shared_ptr<T>> TakeAll(Is is) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<T>> taken;
    for (auto object = objects_.begin(); object != objects_.end();) {
      const bool takes = is(*object->second);
      if (takes) taken.push_back(object->second);
      object = takes ? objects_.erase(object) : std::next(object);
    }
    return taken;
  }

  std::vector<std::shared_ptr<T>> All() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<T>> all;
    for (const auto& object : objects_) all.push_back(object.second);
    return all;
  }

 private:
  static constexpr uintptr_t kStep = 64;

  int NumberOf(const void* handle) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - base_;
    return offset % kStep == 0 && offset / kStep <= static_cast<uintptr_t>(last_)
               ? static_cast<int>(offset / kStep)
               : 0;
  }

  const uintptr_t base_;
  mutable std::mutex mutex_;  // guards all below
  int last_ = 0;
  std::map<int, std::shared_ptr<T>> objects_;
};

}  // namespace fake_gpu
