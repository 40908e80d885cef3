#include "python/bindings.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

// The arguments of submit and run, read without pybind11: a training step has hundreds of them.
namespace hvd::python {

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

namespace {

constexpr int kParameters = 16;
constexpr int kKeep = 8;
constexpr int kTag = 14;
constexpr int kTimeout = 15;
constexpr const char* kNames[kParameters] = {
    "kind", "name",   "tensors", "op",     "prescale", "postscale",   "root", "process_set",
    "keep", "splits", "sampled", "device", "stream",   "ready_event", "tag",  "timeout"};

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
bool ReadName(PyObject* object, std::string* name) {
  if (object == Py_None) return true;
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "a tensor name is a string or None, not %.100s",
                 Py_TYPE(object)->tp_name);
    return false;
  }
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text == nullptr) return false;
  name->assign(text, static_cast<size_t>(length));
  if (length == 0)
    PyErr_SetString(PyExc_ValueError,
                    "a tensor name is not empty; pass None for an unnamed operation");
  return length != 0;
}

bool ReadAddress(PyObject* object, void** address) {
  *address = PyLong_AsVoidPtr(object);
  return *address != nullptr || PyErr_Occurred() == nullptr;
}

bool ReadOptionalAddress(PyObject* object, void** address) {
  return object == nullptr || ReadAddress(object, address);
}

bool ReadNumbers(PyObject* object, const char* what, std::vector<int64_t>* numbers) {
  PyObject* items = PySequence_Fast(object, what);
  if (items == nullptr) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  numbers->resize(static_cast<size_t>(count));
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < count; ++i)
    ok = Read(PySequence_Fast_GET_ITEM(items, i), &(*numbers)[i]);
  Py_DECREF(items);
  return ok;
}

bool ReadTensor(PyObject* object, Entry* entry) {
  if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 6) {
    PyErr_SetString(PyExc_TypeError,
                    "a tensor is a tuple (input address, output address, dtype, shape, input "
                    "bytes, output bytes)");
    return false;
  }
  void* input;
  void* output;
  int64_t dtype = -1;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  negotiate::TensorMeta meta;
  if (!ReadAddress(PyTuple_GET_ITEM(object, 0), &input) ||
      !ReadAddress(PyTuple_GET_ITEM(object, 1), &output) ||
      !Read(PyTuple_GET_ITEM(object, 2), &dtype) ||
      !Read(PyTuple_GET_ITEM(object, 4), &input_bytes) ||
      !Read(PyTuple_GET_ITEM(object, 5), &output_bytes) ||
      !ReadNumbers(PyTuple_GET_ITEM(object, 3), "a shape is a sequence of integers", &meta.shape)) {
    return false;
  }
  if (dtype < 0 || dtype >= kDataTypes) {
    PyErr_SetString(PyExc_ValueError, "unknown dtype");
    return false;
  }
  meta.dtype = static_cast<DataType>(dtype);
  entry->request.tensors.push_back(std::move(meta));
  entry->buffers.push_back({static_cast<const std::byte*>(input), input_bytes,
                            static_cast<std::byte*>(output), output_bytes});
  return true;
}

bool ReadTensors(PyObject* object, Entry* entry) {
  PyObject* tensors = PySequence_Fast(object, "tensors is a sequence of tuples");
  if (tensors == nullptr) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(tensors);
  entry->request.tensors.reserve(static_cast<size_t>(count));
  entry->buffers.reserve(static_cast<size_t>(count));
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < count; ++i)
    ok = ReadTensor(PySequence_Fast_GET_ITEM(tensors, i), entry);
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
      !Read(arguments.value[4], &request.prescale) ||
      !Read(arguments.value[5], &request.postscale) || !Read(arguments.value[6], &root) ||
      !Read(arguments.value[7], &set)) {
    return false;
  }
  int64_t sampled = 0;
  int64_t device = kHostDevice;
  if (!Read(arguments.value[10], &sampled) || !Read(arguments.value[11], &device) ||
      !ReadOptionalAddress(arguments.value[12], &entry->order.stream) ||
      !ReadOptionalAddress(arguments.value[13], &entry->order.ready_event)) {
    return false;
  }
  entry->sampled = sampled != 0;
  if (device < kStagedDevice || device > std::numeric_limits<int32_t>::max()) {
    PyErr_SetString(PyExc_ValueError, "unknown device");
    return false;
  }
  request.device = static_cast<int32_t>(device);
  PyObject* splits = arguments.value[9];
  if (splits != nullptr && splits != Py_None &&
      !ReadNumbers(splits, "splits are a sequence of integers", &request.splits))
    return false;
  if (kind == kSendKind || kind == kRecvKind) {
    entry->peer.emplace();
    entry->peer->sends = kind == kSendKind;
    entry->peer->rank = GlobalRank(static_cast<int>(root));
    if (!Read(arguments.value[kTag], &entry->peer->tag)) return false;
    kind = 0;
  }
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

}  // namespace

bool ReadOperation(PyObject* const* args, Py_ssize_t count, PyObject* names, Entry* entry,
                   PyObject** keep, double* timeout) {
  Arguments arguments;
  if (!arguments.Collect(args, count, names) || !ReadEntry(arguments, entry)) return false;
  PyObject* const seconds = arguments.value[kTimeout];
  if (seconds != Py_None && !Read(seconds, timeout)) return false;
  *keep = arguments.value[kKeep];
  return true;
}

}  // namespace hvd::python
