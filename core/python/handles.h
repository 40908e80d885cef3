#pragma once

#include <cstdint>

#include "runtime/engine.h"

namespace hvd::python {

// Operations in flight by the number that Python holds.
int64_t Remember(HandlePtr handle);
HandlePtr Recall(int64_t number);  // null when unknown
void Forget(int64_t number);

}  // namespace hvd::python
