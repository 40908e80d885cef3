#pragma once

#include <pybind11/pybind11.h>

namespace hvd::python {

// submit, run, wait, poll and changed: plain CPython functions, because a training step calls them hundreds
// of times.
void BindCalls(pybind11::module_& module);

}  // namespace hvd::python
