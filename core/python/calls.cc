#include "python/bindings.h"

#include <sched.h>

#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "api/process.h"

namespace py = pybind11;

// submit, run, wait, forget, poll and changed: plain CPython functions, because a training step
// calls them hundreds of times.
namespace hvd::python {

bool Interrupted() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  const bool raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  PyGILState_Release(gil);
  return raised;
}

namespace {

constexpr double kMostSeconds = 1e9;  // longer (or not a number) is no limit

// In microseconds; -1: none.
int64_t Limit(double seconds) {
  return seconds >= 0 && seconds < kMostSeconds ? static_cast<int64_t>(seconds * 1e6) : -1;
}

bool IsOver(const Handle& handle) {
  return handle.done.load(std::memory_order_acquire) && handle.IsOver();
}

// Of an operation that is done. On a GPU it may have been aborted since.
Status StatusOf(const Handle& handle) {
  if (handle.end == nullptr || !handle.end->lost()) return handle.status;
  const std::shared_ptr<Engine> engine = api::CurrentEngine();
  const Status status = engine == nullptr ? api::NotRunning() : engine->Health();
  if (!status.ok()) return status;
  return Status::Aborted("'" + handle.name() +
                         "' was given up: its job ended before the GPU was done");
}

// Operations that their callers have left in flight, and what they use. It stays until they are
// over. Never destroyed; guarded by the interpreter lock.
struct Left {
  HandlePtr handle;
  PyObject* keep;
};
std::vector<Left>* left_in_flight = new std::vector<Left>;

void ReleaseOver() {
  std::vector<Left>& all = *left_in_flight;
  for (size_t i = 0; i < all.size();) {
    if (!IsOver(*all[i].handle)) {
      ++i;
      continue;
    }
    std::swap(all[i], all.back());
    PyObject* const keep = all.back().keep;
    all.pop_back();
    Py_XDECREF(keep);  // which may run anything
  }
}

// Null with an error set when there is no engine or the submission fails.
HandlePtr Start(Engine* engine, Entry&& entry) {
  HandlePtr handle;
  const Status status =
      engine == nullptr ? api::NotRunning() : engine->Submit(std::move(entry), &handle);
  if (status.ok()) return handle;
  SetError(status);
  return nullptr;
}

PyObject* SubmitAs(PyObject* type, PyObject* kept, PyObject* const* args, Py_ssize_t count,
                   PyObject* names) {
  if (!left_in_flight->empty()) ReleaseOver();
  Operation operation;
  if (!ReadOperation(args, count, names, &operation)) return nullptr;
  NumberedPlace place;
  py::object made = py::reinterpret_steal<py::object>(MakeHandle(type, place.number()));
  if (!made || (kept != nullptr && !Enter(type, made.ptr(), kept))) return nullptr;
  HandlePtr handle = Start(api::CurrentEngine().get(), std::move(operation.entry));
  if (handle == nullptr) {
    if (kept != nullptr) Withdraw(type, made.ptr());
    return nullptr;
  }
  place.Take(std::move(handle), operation.keep);
  return made.release().ptr();
}

// Of the operations that no adapter keeps anything for.
PyObject* own_type = nullptr;

PyObject* Submit(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return SubmitAs(own_type, nullptr, args, count, names);
}

PyObject* SubmitFor(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (count > 2) return SubmitAs(args[0], args[1], args + 2, count - 2, names);
  PyErr_SetString(PyExc_TypeError, "submit_for(handle_type, entry, kind, name, tensors, ...)");
  return nullptr;
}

PyObject* Run(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (!left_in_flight->empty()) ReleaseOver();
  Operation operation;
  if (!ReadOperation(args, count, names, &operation)) return nullptr;
  operation.entry.urgent = true;
  const std::shared_ptr<Engine> engine = api::CurrentEngine();
  const HandlePtr handle = Start(engine.get(), std::move(operation.entry));
  if (handle == nullptr) return nullptr;
  PyThreadState* released = PyEval_SaveThread();
  Status status = engine->Wait(handle, Limit(operation.timeout), Interrupted);
  PyEval_RestoreThread(released);
  if (status.ok()) status = StatusOf(*handle);
  if (status.ok()) return OutputsOf(*handle).release().ptr();
  // A timeout, or an exception of a signal handler, leaves the operation in flight: its memory must
  // outlive the caller.
  if (status.code() == Code::kTimeout) LeaveInFlight(handle, operation.keep);
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
    PyErr_Format(PyExc_ValueError, "handle %lld is unknown: it was forgotten already",
                 static_cast<long long>(number));
    return nullptr;
  }
  Status status;
  if (!handle->done.load(std::memory_order_acquire)) {
    const std::shared_ptr<Engine> engine = api::CurrentEngine();
    PyThreadState* released = PyEval_SaveThread();
    // Without an engine it was shut down while the operation was in flight, so the operation is
    // about to fail.
    while (engine == nullptr && !handle->done.load(std::memory_order_acquire)) sched_yield();
    status = engine == nullptr ? handle->status : engine->Wait(handle, Limit(seconds), Interrupted);
    PyEval_RestoreThread(released);
  }
  if (status.ok()) status = StatusOf(*handle);
  if (status.ok()) return OutputsOf(*handle).release().ptr();
  SetError(status);
  return nullptr;
}

PyObject* Poll(PyObject*, PyObject* number) {
  int64_t value = 0;
  if (!Read(number, &value)) return nullptr;
  const HandlePtr handle = Recall(value);
  if (handle == nullptr) Py_RETURN_TRUE;
  if (handle->done.load(std::memory_order_acquire)) return PyBool_FromLong(handle->IsOver());
  const std::shared_ptr<Engine> engine = api::CurrentEngine();
  return PyBool_FromLong(engine != nullptr && engine->Poll(handle) && handle->IsOver());
}

// One call for the number and the adapter's entry: between two, a signal handler may raise.
PyObject* ForgetHandle(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t number = 0;
  if (count < 1 || count > 2) {
    PyErr_SetString(PyExc_TypeError, "forget(handle, entries=None)");
    return nullptr;
  }
  if (!Read(args[0], &number)) return nullptr;
  if (count == 2 && PyDict_DelItem(args[1], args[0]) != 0) PyErr_Clear();
  Forget(number);
  Py_RETURN_NONE;
}

PyObject* AbandonHandle(PyObject*, PyObject* number) {
  int64_t value = 0;
  if (!Read(number, &value)) return nullptr;
  Abandon(value);
  Py_RETURN_NONE;
}

PyObject* NameOf(PyObject*, PyObject* number) {
  int64_t value = 0;
  if (!Read(number, &value)) return nullptr;
  const HandlePtr handle = Recall(value);
  const std::string name = handle == nullptr ? "" : handle->name();
  return PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace");
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

// What the interpreter calls are C functions: nothing may be thrown through them. But one thing
// must: when the interpreter ends while a daemon thread waits here, it unwinds that thread's stack;
// so no noexcept.
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
    {"submit_for", AsMethod(&Edge<&SubmitFor>::Call), METH_FASTCALL | METH_KEYWORDS,
     "Likewise, and keeps something for it among the entries of the handle's type."},
    {"run", AsMethod(&Edge<&Run>::Call), METH_FASTCALL | METH_KEYWORDS,
     "Starts an operation and waits for it."},
    {"wait", AsMethod(&Edge<&Wait>::Call), METH_FASTCALL, "Waits for a handle."},
    {"forget", AsMethod(&Edge<&ForgetHandle>::Call), METH_FASTCALL,
     "Lets a handle go that was waited for."},
    {"abandon", &AbandonHandle, METH_O, "Lets the name of an operation in flight be used again."},
    {"name_of", AsMethod(&Edge<&NameOf>::Call), METH_O, "The name of an operation, for messages."},
    {"poll", &Poll, METH_O, "Whether a handle is complete."},
    {"changed", &Changed, METH_O, "Whether the result of a complete operation was changed since."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

// Where there is no memory, what it uses stays for ever.
void LeaveInFlight(const HandlePtr& handle, PyObject* keep) noexcept {
  handle->abandoned.store(true);
  if (keep == nullptr) return;
  Py_INCREF(keep);
  HasMemoryFor([&] { left_in_flight->push_back({handle, keep}); });
}

void BindCalls(py::module_& module) {
  own_type = MakeHandleType(nullptr, nullptr);
  if (own_type == nullptr) throw py::error_already_set();
  PyModule_AddFunctions(module.ptr(), kMethods);
}

}  // namespace hvd::python
