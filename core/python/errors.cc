#include "python/bindings.h"

#include <string>

#include "base/text.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// Looked up when needed: an exception is rare, and the module must import without its package.
py::object ExceptionOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kDuplicate:
    case Code::kNotInitialized:
      return py::reinterpret_borrow<py::object>(PyExc_ValueError);
    case Code::kTimeout:
      return py::reinterpret_borrow<py::object>(PyExc_TimeoutError);
    case Code::kMismatch:
      return py::module_::import("horovod.common.exceptions").attr("TensorMismatchError");
    case Code::kNotice:
      return py::module_::import("horovod.common.exceptions").attr("Notice");
    default:
      return py::module_::import("horovod.common.exceptions").attr("HorovodInternalError");
  }
}

}  // namespace

void SetError(const Status& status) {
  // A signal handler may have raised while the thread waited: that exception is the one to see.
  if (PyErr_Occurred() != nullptr) return;
  const std::string text = Escaped(status.message(), true);
  try {
    PyErr_SetString(ExceptionOf(status.code()).ptr(), text.c_str());
  } catch (py::error_already_set&) {
    // The package cannot be imported, as while the interpreter ends. The callers are C functions.
    PyErr_SetString(PyExc_RuntimeError, text.c_str());
  }
}

void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  SetError(status);
  throw py::error_already_set();
}

}  // namespace hvd::python
