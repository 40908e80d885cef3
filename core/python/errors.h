#pragma once

#include "base/status.h"

namespace hvd::python {

// Sets the Python exception of a status (horovod.common.exceptions, or a built-in). Needs the GIL.
void SetError(const Status& status);

// Throws it through pybind11.
void ThrowIfError(const Status& status);

}  // namespace hvd::python
