#include "python/output.h"

#include <pybind11/stl.h>

#include <memory>

#include "python/dlpack.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

dlpack::DataType DlpackType(DataType dtype) {
  const auto bits = static_cast<uint8_t>(8 * SizeOf(dtype));
  switch (dtype) {
    case DataType::kBool:
      return {dlpack::kBool, bits, 1};
    case DataType::kBfloat16:
      return {dlpack::kBfloat, bits, 1};
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
    case DataType::kUint64:
      return {dlpack::kUInt, bits, 1};
    default:
      return {IsFloating(dtype) ? dlpack::kFloat : dlpack::kInt, bits, 1};
  }
}

// What a consumer of the capsule owns: the description and a share of the memory.
struct Export {
  dlpack::ManagedTensor managed;
  Output output;
};

py::capsule MakeCapsule(const Output& output) {
  auto owned = std::make_unique<Export>();
  owned->output = output;
  dlpack::Tensor& tensor = owned->managed.tensor;
  tensor = {output.data.get(),
            {dlpack::kCpu, 0},
            static_cast<int32_t>(output.shape.size()),
            DlpackType(output.dtype),
            owned->output.shape.data(),
            nullptr,
            0};
  owned->managed.context = owned.get();
  owned->managed.deleter = [](dlpack::ManagedTensor* managed) {
    delete static_cast<Export*>(managed->context);
  };
  // A consumer renames the capsule and calls the deleter itself; an unused capsule frees it here.
  return py::capsule(&owned.release()->managed, dlpack::kCapsuleName, [](PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, dlpack::kCapsuleName) == 0) return;
    auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, dlpack::kCapsuleName));
    managed->deleter(managed);
  });
}

py::bytes BytesOf(const Output& output) {
  return {reinterpret_cast<const char*>(output.data.get()), static_cast<size_t>(output.bytes)};
}

}  // namespace

void BindOutput(py::module_& module) {
  py::class_<Output>(module, "Output")
      .def_property_readonly("shape", [](const Output& o) { return py::tuple(py::cast(o.shape)); })
      .def_property_readonly("dtype", [](const Output& o) { return static_cast<int>(o.dtype); })
      .def("__dlpack__", [](const Output& o, const py::kwargs&) { return MakeCapsule(o); })
      .def("tobytes", &BytesOf)
      .def("__dlpack_device__", [](const Output&) { return py::make_tuple(dlpack::kCpu, 0); });
}

py::object OutputsOf(const Handle& handle) {
  if (handle.outputs.empty()) return py::none();
  py::list list;
  for (const Output& output : handle.outputs) list.append(output);
  return std::move(list);
}

}  // namespace hvd::python
