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

// One for each adapter, for as long as the process lives. Guarded by the interpreter lock.
struct HandleType {
  PyTypeObject* type;
  PyObject* entries;
  PyObject* dropped;
};
std::vector<HandleType>* types = new std::vector<HandleType>;

// `handle` itself has no references any more: nobody may see it.
void NoteDropped(const HandleType& type, PyObject* handle) {
  PyObject* number = PyLong_FromLongLong(PyLong_AsLongLong(handle));
  if (number != nullptr && PyDict_Contains(type.entries, number) == 1)
    Py_XDECREF(PyObject_CallMethod(type.dropped, "append", "O", number));
  Py_XDECREF(number);
}

void Deallocate(PyObject* handle) {
  PyTypeObject* type = Py_TYPE(handle);
  PyObject *error, *value, *traceback;
  PyErr_Fetch(&error, &value, &traceback);  // it may go while an exception is under way
  for (const HandleType& known : *types) {
    if (known.type == type) NoteDropped(known, handle);
  }
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
  Py_INCREF(type);
  Py_INCREF(entries);
  Py_INCREF(dropped);
  types->push_back({reinterpret_cast<PyTypeObject*>(type), entries, dropped});
  return type;
}

}  // namespace hvd::python
