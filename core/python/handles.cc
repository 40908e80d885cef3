#include "python/bindings.h"

#include <pthread.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hvd::python {

namespace {

struct Numbered {
  HandlePtr handle;
  PyObject* keep;  // owned; may be null
};

struct Handles {
  std::mutex mutex;  // guards what follows
  std::unordered_map<int64_t, Numbered> by_number;
  int64_t last =
      1000;  // Python keeps one object for each small integer, so those are never dropped
};

// Never destroyed: threads may use it while the interpreter ends. Replaced, not cleaned, in a
// forked child, where its lock may be held for ever.
Handles* handles = new Handles;

// One for each adapter, for as long as the process lives, and one with null for both, whose handles
// are all that Python has of an operation. Guarded by the interpreter lock.
struct HandleType {
  PyTypeObject* type;
  PyObject* entries;
  PyObject* dropped;
};
std::vector<HandleType>* types = new std::vector<HandleType>;

const HandleType* Known(const PyObject* type) {
  for (const HandleType& known : *types) {
    if (reinterpret_cast<const PyObject*>(known.type) == type) return &known;
  }
  return nullptr;
}

// `handle` itself has no references any more: nobody may see it.
void NoteDropped(const HandleType& type, PyObject* handle) {
  const long long value = PyLong_AsLongLong(handle);
  if (type.entries == nullptr) return Leave(value);
  PyObject* number = PyLong_FromLongLong(value);
  if (number != nullptr && PyDict_Contains(type.entries, number) == 1) {
    Abandon(value);
    Py_XDECREF(PyObject_CallMethod(type.dropped, "append", "O", number));
  }
  Py_XDECREF(number);
}

void Deallocate(PyObject* handle) {
  PyTypeObject* type = Py_TYPE(handle);
  PyObject *error, *value, *traceback;
  PyErr_Fetch(&error, &value, &traceback);  // it may go while an exception is under way
  const HandleType* const known = Known(reinterpret_cast<PyObject*>(type));
  if (known != nullptr) NoteDropped(*known, handle);
  PyErr_Clear();
  PyErr_Restore(error, value, traceback);
  type->tp_free(handle);
  Py_DECREF(type);
}

}  // namespace

NumberedPlace::NumberedPlace() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { handles = new Handles; });
  const std::lock_guard<std::mutex> lock(handles->mutex);
  handles->by_number.emplace(handles->last + 1, Numbered{nullptr, nullptr});
  number_ = ++handles->last;
}

NumberedPlace::~NumberedPlace() {
  if (!taken_) Forget(number_);
}

void NumberedPlace::Take(HandlePtr handle, PyObject* keep) noexcept {
  taken_ = true;
  const std::lock_guard<std::mutex> lock(handles->mutex);
  const auto place = handles->by_number.find(number_);
  if (place == handles->by_number.end()) return;  // forked in between
  Py_XINCREF(keep);
  place->second = {std::move(handle), keep};
}

HandlePtr Recall(int64_t number) {
  const std::lock_guard<std::mutex> lock(handles->mutex);
  const auto found = handles->by_number.find(number);
  return found == handles->by_number.end() ? nullptr : found->second.handle;
}

void Forget(int64_t number) {
  Numbered forgotten{};
  {
    const std::lock_guard<std::mutex> lock(handles->mutex);
    const auto found = handles->by_number.find(number);
    if (found == handles->by_number.end()) return;
    forgotten = std::move(found->second);
    handles->by_number.erase(found);
  }
  Py_XDECREF(forgotten.keep);  // which may run anything
}

void Abandon(int64_t number) noexcept {
  const HandlePtr handle = Recall(number);
  if (handle != nullptr) handle->abandoned.store(true);
}

void Leave(int64_t number) noexcept {
  const HandlePtr handle = Recall(number);
  if (handle == nullptr) return;
  if (handle->done.load(std::memory_order_acquire) && handle->IsOver()) return Forget(number);
  PyObject* keep = nullptr;
  {
    const std::lock_guard<std::mutex> lock(handles->mutex);
    const auto found = handles->by_number.find(number);
    if (found != handles->by_number.end()) keep = std::exchange(found->second.keep, nullptr);
  }
  LeaveInFlight(handle, keep);
  Py_XDECREF(keep);
  Forget(number);
}

// A number of this type, which is what an operation has as long as somebody holds it.
PyObject* MakeHandle(PyObject* type, int64_t number) {
  PyObject* const plain = PyLong_FromLongLong(number);
  if (plain == nullptr || PyDict_Check(type)) return plain;
  PyObject* const handle = PyObject_CallOneArg(type, plain);
  Py_DECREF(plain);
  return handle;
}

// Before it begins. What it needs must be known from then on: when a signal handler of the program
// raises, Python never hears of the number.
bool Enter(PyObject* type, PyObject* handle, PyObject* entry) {
  if (PyDict_Check(type)) return PyDict_SetItem(type, handle, entry) == 0;
  const HandleType* const known = Known(type);
  if (known == nullptr || known->entries == nullptr) return true;
  PyObject* const number = PyLong_FromLongLong(PyLong_AsLongLong(handle));
  if (number == nullptr) return false;
  const int failed = PyDict_SetItem(known->entries, number, entry);
  Py_DECREF(number);
  return failed == 0;
}

// It has not begun. Keeps the error that is set.
void Withdraw(PyObject* type, PyObject* handle) {
  const HandleType* const known = Known(type);
  PyObject* const entries = known == nullptr ? type : known->entries;
  if (entries == nullptr || !PyDict_Check(entries)) return;
  PyObject *error, *value, *traceback;
  PyErr_Fetch(&error, &value, &traceback);
  PyObject* const number = PyLong_FromLongLong(PyLong_AsLongLong(handle));
  if (number != nullptr) (void)PyDict_DelItem(entries, number);
  Py_XDECREF(number);
  PyErr_Clear();
  PyErr_Restore(error, value, traceback);
}

PyObject* MakeHandleType(PyObject* entries, PyObject* dropped) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(&Deallocate)},
      {Py_tp_doc, const_cast<char*>("An operation in flight; hvd.synchronize waits for it.")},
      {0, nullptr}};
  PyType_Spec spec = {"horovod._core.Handle", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* bases = PyTuple_Pack(1, &PyLong_Type);
  if (bases == nullptr) return nullptr;
  PyObject* type = PyType_FromSpecWithBases(&spec, bases);
  Py_DECREF(bases);
  if (type == nullptr) return nullptr;
  if (entries != nullptr && PyObject_SetAttrString(type, "entries", entries) != 0) {
    Py_DECREF(type);
    return nullptr;
  }
  Py_INCREF(type);
  Py_XINCREF(entries);
  Py_XINCREF(dropped);
  types->push_back({reinterpret_cast<PyTypeObject*>(type), entries, dropped});
  return type;
}

}  // namespace hvd::python
