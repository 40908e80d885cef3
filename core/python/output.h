#pragma once

#include <pybind11/pybind11.h>

#include "runtime/engine/engine.h"

namespace hvd::python {

void BindOutput(pybind11::module_& module);

// A list of the core's outputs, or None when it allocated none.
pybind11::object OutputsOf(const Handle& handle);

}  // namespace hvd::python
