#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "python/bindings.h"

// Tensors of a framework, described by the table of C functions that DLPack 1.3 has each offer
// ("C exchange API"). To ask a tensor of PyTorch for its address, type and shape by attributes
// takes as long as a small allreduce.
namespace py = pybind11;

namespace hvd::python {
namespace {

struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct DlExchange {
  uint32_t major;
  uint32_t minor;
  void* previous;
  void* unused[3];
  int (*describe)(void* object, DlTensor* tensor);  // may be null
};

constexpr const char* kExchangeName = "dlpack_exchange_api";
constexpr int32_t kCpu = 1;

struct ElementType {
  uint8_t code;
  uint8_t bits;
  DataType type;
};

// Those that every operation of the core takes.
constexpr ElementType kTypes[] = {
    {2, 32, DataType::kFloat32},      {4, 16, DataType::kBfloat16},   {2, 16, DataType::kFloat16},
    {2, 64, DataType::kFloat64},      {0, 64, DataType::kInt64},      {0, 32, DataType::kInt32},
    {0, 16, DataType::kInt16},        {0, 8, DataType::kInt8},        {1, 8, DataType::kUint8},
    {1, 16, DataType::kUint16},       {1, 32, DataType::kUint32},     {1, 64, DataType::kUint64},
    {10, 8, DataType::kFloat8E4m3fn}, {12, 8, DataType::kFloat8E5m2},
};
constexpr int kNoType = -1;

int TypeOf(const DlTensor& tensor) {
  for (const ElementType& each : kTypes) {
    if (tensor.code == each.code && tensor.bits == each.bits && tensor.lanes == 1)
      return static_cast<int>(each.type);
  }
  return kNoType;
}

// Its elements, or -1 where they do not follow each other in memory.
int64_t ContiguousElements(const DlTensor& tensor) {
  int64_t elements = 1;
  for (int32_t i = tensor.dimensions - 1; i >= 0; --i) {
    if (tensor.strides != nullptr && tensor.shape[i] != 1 && tensor.strides[i] != elements)
      return -1;
    elements *= tensor.shape[i];
  }
  return elements;
}

uintptr_t AddressOf(const DlTensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
}

PyObject* ShapeOf(const DlTensor& tensor) {
  PyObject* shape = PyTuple_New(tensor.dimensions);
  for (int32_t i = 0; shape != nullptr && i < tensor.dimensions; ++i) {
    PyObject* extent = PyLong_FromLongLong(tensor.shape[i]);
    if (extent == nullptr) {
      Py_DECREF(shape);
      return nullptr;
    }
    PyTuple_SET_ITEM(shape, i, extent);
  }
  return shape;
}

PyObject* SpecOf(const DlTensor& tensor, int type, int64_t elements) {
  PyObject* const shape = ShapeOf(tensor);
  if (shape == nullptr) return nullptr;
  const auto bytes = static_cast<long long>(elements * tensor.bits / 8);
  const auto address = static_cast<unsigned long long>(AddressOf(tensor));
  return Py_BuildValue("KKiNLL", address, address, type, shape, bytes, bytes);
}

// The latest descriptions. A program describes the same tensors in each step, and to make a tuple
// of numbers takes longer than to find that it would be the same. Needs the interpreter lock.
class Descriptions {
 public:
  // A new reference; null with an error set.
  PyObject* Of(const DlTensor& tensor, int type, int64_t elements) {
    if (tensor.dimensions > kMostDimensions) return SpecOf(tensor, type, elements);
    const uintptr_t address = AddressOf(tensor);
    Known& known = known_[(address / kApart) % known_.size()];
    const bool same = known.spec != nullptr && known.address == address && known.type == type &&
                      known.dimensions == tensor.dimensions &&
                      std::equal(known.shape, known.shape + known.dimensions, tensor.shape);
    if (!same) {
      PyObject* const spec = SpecOf(tensor, type, elements);
      if (spec == nullptr) return nullptr;
      Py_XDECREF(known.spec);
      known = {spec, address, type, tensor.dimensions, {}};
      std::copy_n(tensor.shape, tensor.dimensions, known.shape);
    }
    Py_INCREF(known.spec);
    return known.spec;
  }

 private:
  static constexpr int32_t kMostDimensions = 5;  // those of weights of a convolution
  static constexpr uintptr_t kApart = 64;        // the allocators of frameworks align so
  struct Known {
    PyObject* spec = nullptr;
    uintptr_t address = 0;
    int type = kNoType;
    int32_t dimensions = 0;
    int64_t shape[kMostDimensions] = {};
  };
  std::array<Known, 256> known_;
};

// What `describer` was given; lives as long as the process.
struct Described {
  const DlExchange* exchange;
  PyObject* types;      // a tuple
  PyObject* otherwise;  // called with any other tensor
  Descriptions descriptions = {};
};

bool IsOneOf(PyObject* types, PyTypeObject* type) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i) {
    if (PyTuple_GET_ITEM(types, i) == reinterpret_cast<PyObject*>(type)) return true;
  }
  return false;
}

// Whether the elements are to be read with the other sign, of which DLPack knows nothing. Errors
// count as such.
bool IsNegated(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  PyObject* const answer = PyObject_CallMethodNoArgs(object, name);
  if (answer == nullptr) PyErr_Clear();
  Py_XDECREF(answer);
  return answer != Py_False;
}

PyObject* Describe(PyObject* self, PyObject* object) {
  auto* const how = static_cast<Described*>(PyCapsule_GetPointer(self, nullptr));
  DlTensor tensor;
  if (!IsOneOf(how->types, Py_TYPE(object))) return PyObject_CallOneArg(how->otherwise, object);
  if (how->exchange->describe(object, &tensor) != 0) {
    PyErr_Clear();
    return PyObject_CallOneArg(how->otherwise, object);
  }
  const int type = TypeOf(tensor);
  const int64_t elements = ContiguousElements(tensor);
  if (tensor.device_type != kCpu || tensor.data == nullptr || type == kNoType || elements <= 0 ||
      IsNegated(object)) {
    return PyObject_CallOneArg(how->otherwise, object);
  }
  return how->descriptions.Of(tensor, type, elements);
}

PyMethodDef describe_method = {"describe", &Describe, METH_O, "See TensorGlue."};

py::object Describer(const py::capsule& exchange, const py::tuple& types,
                     const py::object& otherwise) {
  const auto* const table =
      static_cast<const DlExchange*>(PyCapsule_GetPointer(exchange.ptr(), kExchangeName));
  if (table == nullptr) throw py::error_already_set();
  if (table->major != 1 || table->minor < 3 || table->describe == nullptr) return otherwise;
  auto* const how = new Described{table, types.inc_ref().ptr(), otherwise.inc_ref().ptr()};
  const py::capsule self(static_cast<void*>(how));
  PyObject* const made = PyCFunction_NewEx(&describe_method, self.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

}  // namespace

void BindDlpack(py::module_& module) {
  module.def("describer", &Describer, py::arg("exchange"), py::arg("types"), py::arg("otherwise"),
             "A function that describes tensors of `types`; any other it hands to `otherwise`.");
}

}  // namespace hvd::python
