#pragma once

#include <pybind11/pybind11.h>

namespace hvd::python {

// submit, wait, poll and run: plain CPython functions, because a training step calls them hundreds of times.
void BindCalls(pybind11::module_& module);

}  // namespace hvd::python
