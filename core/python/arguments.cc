#include "python/bindings.h"

#include <iterator>
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

// What submit and run are given; null where it is left out.
struct Arguments {
  PyObject* kind = nullptr;
  PyObject* name = nullptr;
  PyObject* tensors = nullptr;
  PyObject* op = nullptr;
  PyObject* prescale = nullptr;
  PyObject* postscale = nullptr;
  PyObject* root = nullptr;
  PyObject* process_set = nullptr;
  PyObject* keep = nullptr;
  PyObject* splits = nullptr;
  PyObject* sampled = nullptr;
  PyObject* device = nullptr;
  PyObject* stream = nullptr;
  PyObject* ready_event = nullptr;
  PyObject* tag = nullptr;
  PyObject* timeout = nullptr;
  PyObject* notice = nullptr;
};

struct Parameter {
  const char* name;
  PyObject* Arguments::*argument;
};

// In the order of positional arguments.
constexpr Parameter kParameters[] = {
    {"kind", &Arguments::kind},         {"name", &Arguments::name},
    {"tensors", &Arguments::tensors},   {"op", &Arguments::op},
    {"prescale", &Arguments::prescale}, {"postscale", &Arguments::postscale},
    {"root", &Arguments::root},         {"process_set", &Arguments::process_set},
    {"keep", &Arguments::keep},         {"splits", &Arguments::splits},
    {"sampled", &Arguments::sampled},   {"device", &Arguments::device},
    {"stream", &Arguments::stream},     {"ready_event", &Arguments::ready_event},
    {"tag", &Arguments::tag},           {"timeout", &Arguments::timeout},
    {"notice", &Arguments::notice},
};

bool Fail(const char* message) {
  PyErr_SetString(PyExc_TypeError, message);
  return false;
}

const Parameter* ParameterCalled(PyObject* name) {
  for (const Parameter& parameter : kParameters) {
    if (PyUnicode_CompareWithASCIIString(name, parameter.name) == 0) return &parameter;
  }
  return nullptr;
}

bool Collect(PyObject* const* args, Py_ssize_t positional, PyObject* names, Arguments* arguments) {
  if (positional > static_cast<Py_ssize_t>(std::size(kParameters)))
    return Fail("too many arguments");
  for (Py_ssize_t i = 0; i < positional; ++i) arguments->*kParameters[i].argument = args[i];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    const Parameter* parameter = ParameterCalled(PyTuple_GET_ITEM(names, i));
    if (parameter == nullptr) return Fail("unknown keyword argument");
    arguments->*parameter->argument = args[positional + i];
  }
  return (arguments->kind != nullptr && arguments->name != nullptr &&
          arguments->tensors != nullptr) ||
         Fail("kind, name and tensors are required");
}

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
  int64_t sampled = 0;
  int64_t device = kHostDevice;
  int64_t notice = 0;
  if (!Read(arguments.kind, &kind) || !ReadName(arguments.name, &request.name) ||
      !ReadTensors(arguments.tensors, entry) || !Read(arguments.op, &op) ||
      !Read(arguments.prescale, &request.prescale) ||
      !Read(arguments.postscale, &request.postscale) || !Read(arguments.root, &root) ||
      !Read(arguments.process_set, &set) || !Read(arguments.sampled, &sampled) ||
      !Read(arguments.device, &device) || !Read(arguments.notice, &notice) ||
      !ReadOptionalAddress(arguments.stream, &entry->order.stream) ||
      !ReadOptionalAddress(arguments.ready_event, &entry->order.ready_event)) {
    return false;
  }
  entry->sampled = sampled != 0;
  if (device < kStagedDevice || device > std::numeric_limits<int32_t>::max()) {
    PyErr_SetString(PyExc_ValueError, "unknown device");
    return false;
  }
  request.device = static_cast<int32_t>(device);
  if (notice < 0 || notice > std::numeric_limits<uint8_t>::max()) {
    PyErr_SetString(PyExc_ValueError, "a notice is a byte");
    return false;
  }
  request.notice = static_cast<uint8_t>(notice);
  PyObject* splits = arguments.splits;
  if (splits != nullptr && splits != Py_None &&
      !ReadNumbers(splits, "splits are a sequence of integers", &request.splits))
    return false;
  if (kind == kSendKind || kind == kRecvKind) {
    entry->peer.emplace();
    entry->peer->sends = kind == kSendKind;
    entry->peer->rank = GlobalRank(static_cast<int>(root));
    if (!Read(arguments.tag, &entry->peer->tag)) return false;
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

bool ReadOperation(PyObject* const* args, Py_ssize_t count, PyObject* names, Operation* operation) {
  Arguments arguments;
  if (!Collect(args, count, names, &arguments)) return false;
  operation->keep = arguments.keep;
  return ReadEntry(arguments, &operation->entry) &&
         (arguments.timeout == Py_None || Read(arguments.timeout, &operation->timeout));
}

}  // namespace hvd::python
