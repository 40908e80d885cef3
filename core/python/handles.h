#pragma once

#include <cstdint>

#include "runtime/engine/engine.h"

namespace hvd::python {

// Operations in flight by the number that Python holds.

// A number for an operation that is about to start: once it has started, nothing may fail for want of memory,
// for its tensors must outlive it. Given back when it is destroyed before an operation has taken it.
class NumberedPlace {
 public:
  NumberedPlace();
  ~NumberedPlace();
  NumberedPlace(const NumberedPlace&) = delete;
  NumberedPlace& operator=(const NumberedPlace&) = delete;

  int64_t number() const { return number_; }
  void Take(HandlePtr handle) noexcept;

 private:
  int64_t number_;
  bool taken_ = false;
};

HandlePtr Recall(int64_t number);  // null when unknown
void Forget(int64_t number);

}  // namespace hvd::python
