#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <tuple>

#include "base/link.h"
#include "base/status.h"
#include "runtime/engine/engine.h"

// What the files of this folder have for each other. All of it needs the interpreter lock, unless
// it says otherwise.
namespace hvd::python {

// Parts of the module.
void BindCalls(pybind11::module_& module);
void BindDlpack(pybind11::module_& module);
void BindLinks(pybind11::module_& module);
void BindOutput(pybind11::module_& module);

// A link as bootstrap hands it over: descriptor, peer, role, keys to send and to receive. Throws
// for other keys.
using PyLink = std::tuple<int, int, int, pybind11::bytes, pybind11::bytes>;
Link LinkOf(const PyLink& given);
// That to the launcher, over which `frames` went before.
Link LauncherOf(int fd, const pybind11::bytes& key, uint64_t frames);

// The engine; throws where there is none.
std::shared_ptr<Engine> NeedEngine();

// Sets the Python exception of a status (horovod.common.exceptions, or a built-in).
void SetError(const Status& status);

// Throws it through pybind11.
void ThrowIfError(const Status& status);
// Likewise what `call` gives, during which others may have the interpreter lock.
template <typename Call>
void WithoutLock(Call call) {
  Status status;
  {
    const pybind11::gil_scoped_release release;
    status = call();
  }
  ThrowIfError(status);
}

// What submit and run are asked.
struct Operation {
  Entry entry;
  PyObject* keep = nullptr;  // must outlive the operation; borrowed, may be null
  double timeout = -1;       // how many seconds to wait for it
};

// Reads their arguments, as CPython hands them over. False: the Python error is set.
bool ReadOperation(PyObject* const* args, Py_ssize_t count, PyObject* names, Operation* operation);

// What is no OpKind, as nobody negotiates it: the kinds of a message, for Python.
constexpr int kSendKind = kOpKinds;
constexpr int kRecvKind = kOpKinds + 1;

// Likewise of one argument, which keeps its value where `object` is null.
bool Read(PyObject* object, int64_t* value);
bool Read(PyObject* object, double* value);

// Operations in flight by the number that Python holds. Needs no interpreter lock.
//
// A number for an operation that is about to start: once it has started, nothing may fail for want
// of memory, for its tensors must outlive it. Given back when it is destroyed before an operation
// has taken it.
class NumberedPlace {
 public:
  NumberedPlace();
  ~NumberedPlace();
  NumberedPlace(const NumberedPlace&) = delete;
  NumberedPlace& operator=(const NumberedPlace&) = delete;

  int64_t number() const { return number_; }
  // `keep` stays until the number is forgotten, whatever the program drops; may be null. Needs the
  // interpreter lock.
  void Take(HandlePtr handle, PyObject* keep) noexcept;

 private:
  int64_t number_;
  bool taken_ = false;
};

// Runs Python's signal handlers; true when one raised, now or before.
bool Interrupted();

HandlePtr Recall(int64_t number);  // null when unknown
void Forget(int64_t number);       // once the operation is over; needs the interpreter lock
// Nobody holds it any more, so its name may be used again: see Queue::Push.
void Abandon(int64_t number) noexcept;
// Likewise, and nobody will wait for it: it is forgotten, with what it uses, once it is over. Needs
// the interpreter lock.
void Leave(int64_t number) noexcept;
void LeaveInFlight(const HandlePtr& handle, PyObject* keep) noexcept;

// A new type of integers, which are the handles of an adapter: `submit_for` starts an operation and
// puts what is to be kept for it into `entries`, by its number, before anything of Python runs.
// Handles that go are appended to `dropped` if they are still keys of `entries`: the program may
// have the number elsewhere, but it has probably lost it. With null for both, an operation is left
// to itself when its handle goes.
//
// In C++, for a class of Python's is one that the garbage collector counts and goes through: with a
// thousand handles in flight that was a fifth of the time of their operations.
PyObject* MakeHandleType(PyObject* entries, PyObject* dropped);

// The parts of `submit_for`. Each needs the interpreter lock. `type`: of handles, or a dictionary
// of entries, whose handles are plain numbers.
PyObject* MakeHandle(PyObject* type, int64_t number);
bool Enter(PyObject* type, PyObject* handle, PyObject* entry);
void Withdraw(PyObject* type, PyObject* handle);

// A list of the core's outputs, or None when it allocated none.
pybind11::object OutputsOf(const Handle& handle);

}  // namespace hvd::python
