#include "python/calls.h"

#include <sched.h>

#include <exception>
#include <new>

#include "api/process.h"
#include "python/errors.h"
#include "python/handles.h"
#include "python/output.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

constexpr double kMostSeconds = 1e9;  // longer (or not a number) is no limit
constexpr int kParameters = 12;
constexpr int kKeep = 8;
constexpr const char* kNames[kParameters] = {"kind",     "name",      "tensors", "op",
                                             "prescale", "postscale", "root",    "process_set",
                                             "keep",     "splits",    "sampled", "on_device"};

// Positional and keyword arguments by the order of kNames; null where left out.
struct Arguments {
  PyObject* value[kParameters] = {};

  bool Collect(PyObject* const* args, Py_ssize_t positional, PyObject* names) {
    if (positional > kParameters) return Fail("too many arguments");
    for (Py_ssize_t i = 0; i < positional; ++i) value[i] = args[i];
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
      const int place = PlaceOf(PyTuple_GET_ITEM(names, i));
      if (place < 0) return Fail("unknown keyword argument");
      value[place] = args[positional + i];
    }
    return (value[0] != nullptr && value[1] != nullptr && value[2] != nullptr) ||
           Fail("kind, name and tensors are required");
  }

 private:
  static int PlaceOf(PyObject* name) {
    for (int i = 0; i < kParameters; ++i) {
      if (PyUnicode_CompareWithASCIIString(name, kNames[i]) == 0) return i;
    }
    return -1;
  }

  static bool Fail(const char* message) {
    PyErr_SetString(PyExc_TypeError, message);
    return false;
  }
};

// Readers of one argument: false with a Python error set.
bool Read(PyObject* object, int64_t* value) {
  if (object == nullptr) return true;
  *value = PyLong_AsLongLong(object);
  return *value != -1 || PyErr_Occurred() == nullptr;
}

bool Read(PyObject* object, double* value) {
  if (object == nullptr) return true;
  *value = PyFloat_AsDouble(object);
  return *value != -1.0 || PyErr_Occurred() == nullptr;
}

bool ReadName(PyObject* object, std::string* name) {
  if (object == Py_None) return true;
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "a tensor name is a string or None, not %.100s", Py_TYPE(object)->tp_name);
    return false;
  }
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text == nullptr) return false;
  name->assign(text, static_cast<size_t>(length));
  if (length == 0)
    PyErr_SetString(PyExc_ValueError, "a tensor name is not empty; pass None for an unnamed operation");
  return length != 0;
}

bool ReadAddress(PyObject* object, void** address) {
  *address = PyLong_AsVoidPtr(object);
  return *address != nullptr || PyErr_Occurred() == nullptr;
}

bool ReadNumbers(PyObject* object, const char* what, std::vector<int64_t>* numbers) {
  PyObject* items = PySequence_Fast(object, what);
  if (items == nullptr) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  numbers->resize(static_cast<size_t>(count));
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < count; ++i) ok = Read(PySequence_Fast_GET_ITEM(items, i), &(*numbers)[i]);
  Py_DECREF(items);
  return ok;
}

bool ReadTensor(PyObject* object, Entry* entry) {
  if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 6) {
    PyErr_SetString(
        PyExc_TypeError,
        "a tensor is a tuple (input address, output address, dtype, shape, input bytes, output bytes)");
    return false;
  }
  void* input;
  void* output;
  int64_t dtype = -1;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  negotiate::TensorMeta meta;
  if (!ReadAddress(PyTuple_GET_ITEM(object, 0), &input) ||
      !ReadAddress(PyTuple_GET_ITEM(object, 1), &output) || !Read(PyTuple_GET_ITEM(object, 2), &dtype) ||
      !Read(PyTuple_GET_ITEM(object, 4), &input_bytes) || !Read(PyTuple_GET_ITEM(object, 5), &output_bytes) ||
      !ReadNumbers(PyTuple_GET_ITEM(object, 3), "a shape is a sequence of integers", &meta.shape)) {
    return false;
  }
  if (dtype < 0 || dtype >= kDataTypes) {
    PyErr_SetString(PyExc_ValueError, "unknown dtype");
    return false;
  }
  meta.dtype = static_cast<DataType>(dtype);
  entry->request.tensors.push_back(std::move(meta));
  entry->buffers.push_back(
      {static_cast<const std::byte*>(input), input_bytes, static_cast<std::byte*>(output), output_bytes});
  return true;
}

bool ReadTensors(PyObject* object, Entry* entry) {
  PyObject* tensors = PySequence_Fast(object, "tensors is a sequence of tuples");
  if (tensors == nullptr) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(tensors);
  entry->request.tensors.reserve(static_cast<size_t>(count));
  entry->buffers.reserve(static_cast<size_t>(count));
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < count; ++i) ok = ReadTensor(PySequence_Fast_GET_ITEM(tensors, i), entry);
  Py_DECREF(tensors);
  return ok;
}

bool ReadEntry(const Arguments& arguments, Entry* entry) {
  negotiate::Request& request = entry->request;
  int64_t kind = 0;
  int64_t op = static_cast<int64_t>(ReduceOp::kSum);
  int64_t root = 0;
  int64_t set = 0;
  if (!Read(arguments.value[0], &kind) || !ReadName(arguments.value[1], &request.name) ||
      !ReadTensors(arguments.value[2], entry) || !Read(arguments.value[3], &op) ||
      !Read(arguments.value[4], &request.prescale) || !Read(arguments.value[5], &request.postscale) ||
      !Read(arguments.value[6], &root) || !Read(arguments.value[7], &set)) {
    return false;
  }
  int64_t sampled = 0;
  int64_t on_device = 0;
  if (!Read(arguments.value[10], &sampled) || !Read(arguments.value[11], &on_device)) return false;
  entry->sampled = sampled != 0;
  // Of a device only the kind: its number is this rank's own, and every rank must make the same plans.
  request.device = on_device != 0 ? 0 : -1;
  PyObject* splits = arguments.value[9];
  if (splits != nullptr && splits != Py_None &&
      !ReadNumbers(splits, "splits are a sequence of integers", &request.splits))
    return false;
  if (kind < 0 || kind >= kOpKinds || op < 0 || op >= kReduceOps) {
    PyErr_SetString(PyExc_ValueError, "unknown operation or reduction");
    return false;
  }
  if (root != static_cast<int32_t>(root) || set != static_cast<uint32_t>(set)) {
    PyErr_SetString(PyExc_ValueError, "the root rank or the process set does not exist");
    return false;
  }
  request.kind = static_cast<OpKind>(kind);
  request.reduce_op = static_cast<ReduceOp>(op);
  request.root = GlobalRank(static_cast<int32_t>(root));
  entry->process_set = static_cast<uint32_t>(set);
  return true;
}

// Runs Python's signal handlers; true when one raised.
bool Interrupted() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(gil);
  return raised;
}

// Null with an error set when there is no engine or the submission fails.
HandlePtr Start(PyObject* const* args, Py_ssize_t count, PyObject* names, bool urgent, PyObject** keep,
                std::shared_ptr<Engine>* engine) {
  Arguments arguments;
  Entry entry;
  if (!arguments.Collect(args, count, names) || !ReadEntry(arguments, &entry)) return nullptr;
  entry.urgent = urgent;
  *keep = arguments.value[kKeep];
  *engine = api::CurrentEngine();
  HandlePtr handle;
  const Status status = *engine == nullptr ? api::NotRunning() : (*engine)->Submit(std::move(entry), &handle);
  if (status.ok()) return handle;
  SetError(status);
  return nullptr;
}

PyObject* Submit(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* keep;
  std::shared_ptr<Engine> engine;
  NumberedPlace place;
  py::object number = py::reinterpret_steal<py::object>(PyLong_FromLongLong(place.number()));
  if (!number) return nullptr;
  HandlePtr handle = Start(args, count, names, false, &keep, &engine);
  if (handle == nullptr) return nullptr;
  place.Take(std::move(handle));
  return number.release().ptr();
}

PyObject* Run(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* keep = nullptr;
  std::shared_ptr<Engine> engine;
  const HandlePtr handle = Start(args, count, names, true, &keep, &engine);
  if (handle == nullptr) return nullptr;
  PyThreadState* released = PyEval_SaveThread();
  const Status status = engine->Wait(handle, -1, Interrupted);
  PyEval_RestoreThread(released);
  if (status.ok()) return OutputsOf(*handle).release().ptr();
  // An exception of a signal handler leaves the operation in flight: its memory must outlive the caller.
  if (status.code() == Code::kTimeout) Py_XINCREF(keep);
  SetError(status);
  return nullptr;
}

PyObject* Wait(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t number = 0;
  double seconds = -1;
  if (count < 1 || count > 2) {
    PyErr_SetString(PyExc_TypeError, "wait(handle, timeout=None)");
    return nullptr;
  }
  if (!Read(args[0], &number) || (count == 2 && args[1] != Py_None && !Read(args[1], &seconds)))
    return nullptr;
  const HandlePtr handle = Recall(number);
  if (handle == nullptr) {
    PyErr_Format(PyExc_ValueError, "handle %lld is unknown: it was waited for already",
                 static_cast<long long>(number));
    return nullptr;
  }
  Status status;
  if (!handle->done.load(std::memory_order_acquire)) {
    const std::shared_ptr<Engine> engine = api::CurrentEngine();
    PyThreadState* released = PyEval_SaveThread();
    // Without an engine it was shut down while the operation was in flight, so the operation is about to
    // fail.
    while (engine == nullptr && !handle->done.load(std::memory_order_acquire)) sched_yield();
    const bool limited = seconds >= 0 && seconds < kMostSeconds;
    const int64_t timeout_us = limited ? static_cast<int64_t>(seconds * 1e6) : -1;
    status = engine == nullptr ? handle->status : engine->Wait(handle, timeout_us, Interrupted);
    PyEval_RestoreThread(released);
  } else {
    status = handle->status;
  }
  if (status.code() != Code::kTimeout) Forget(number);
  if (status.ok()) return OutputsOf(*handle).release().ptr();
  SetError(status);
  return nullptr;
}

PyObject* Poll(PyObject*, PyObject* number) {
  int64_t value = 0;
  if (!Read(number, &value)) return nullptr;
  const HandlePtr handle = Recall(value);
  return PyBool_FromLong(handle == nullptr || handle->done.load(std::memory_order_acquire));
}

PyObject* Changed(PyObject*, PyObject* number) {
  int64_t value = 0;
  if (!Read(number, &value)) return nullptr;
  const HandlePtr handle = Recall(value);
  return PyBool_FromLong(handle != nullptr && handle->Changed());
}

template <typename Function>
PyCFunction AsMethod(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// What the interpreter calls are C functions: nothing may be thrown through them. But one thing must: when
// the interpreter ends while a daemon thread waits here, it unwinds that thread's stack; so no noexcept.
template <auto kFunction>
struct Edge;

template <typename... Arguments, PyObject* (*kFunction)(Arguments...)>
struct Edge<kFunction> {
  static PyObject* Call(Arguments... arguments) {
    try {
      return kFunction(arguments...);
    } catch (py::error_already_set& error) {
      error.restore();
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  }
};

PyMethodDef kMethods[] = {
    {"submit", AsMethod(&Edge<&Submit>::Call), METH_FASTCALL | METH_KEYWORDS,
     "Starts an operation and returns its handle."},
    {"run", AsMethod(&Edge<&Run>::Call), METH_FASTCALL | METH_KEYWORDS,
     "Starts an operation and waits for it."},
    {"wait", AsMethod(&Edge<&Wait>::Call), METH_FASTCALL, "Waits for a handle."},
    {"poll", &Poll, METH_O, "Whether a handle is complete."},
    {"changed", &Changed, METH_O, "Whether the result of a complete operation was changed since."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void BindCalls(py::module_& module) { PyModule_AddFunctions(module.ptr(), kMethods); }

}  // namespace hvd::python
