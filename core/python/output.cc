#include "python/bindings.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <memory>

namespace py = pybind11;

// The part of the DLPack ABI (version 0.x, https://dmlc.github.io/dlpack) that a dense tensor
// needs.
namespace hvd::dlpack {

constexpr int32_t kCpu = 1;
constexpr int32_t kCuda = 2;
constexpr int32_t kRocm = 10;

enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // null = C order
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

constexpr char kCapsuleName[] = "dltensor";

}  // namespace hvd::dlpack

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
    case DataType::kFloat8E4m3fn:  // as bytes: DLPack names these types since its version 1.1 only
    case DataType::kFloat8E5m2:
    case DataType::kUint16:
    case DataType::kUint32:
    case DataType::kUint64:
      return {dlpack::kUInt, bits, 1};
    default:
      return {IsFloating(dtype) ? dlpack::kFloat : dlpack::kInt, bits, 1};
  }
}

DeviceFree* FreeOf(const Output& output) { return std::get_deleter<DeviceFree>(output.data); }

dlpack::Device DlpackDevice(const Output& output) {
  if (output.device < 0) return {dlpack::kCpu, 0};
  const DeviceFree* const free = FreeOf(output);
  return {free != nullptr && free->rocm ? dlpack::kRocm : dlpack::kCuda, output.device};
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
            DlpackDevice(output),
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
    auto* managed =
        static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, dlpack::kCapsuleName));
    managed->deleter(managed);
  });
}

py::bytes BytesOf(const Output& output) {
  if (output.device >= 0) throw py::value_error("the bytes are on a GPU");
  return {reinterpret_cast<const char*>(output.data.get()), static_cast<size_t>(output.bytes)};
}

// What the core has allocated is freed behind the work of that stream from then on.
void Follow(const Output& output, uintptr_t stream) {
  if (output.end == nullptr) return;
  void* const follower = reinterpret_cast<void*>(stream);
  WithoutLock([&] { return output.end->HaveWait(output.device, follower); });
  DeviceFree* const free = FreeOf(output);
  if (free == nullptr) return;
  free->stream = follower;
  free->end.reset();
}

}  // namespace

void BindOutput(py::module_& module) {
  py::class_<Output>(module, "Output")
      .def_property_readonly("shape", [](const Output& o) { return py::tuple(py::cast(o.shape)); })
      .def_property_readonly("dtype", [](const Output& o) { return static_cast<int>(o.dtype); })
      .def("__dlpack__", [](const Output& o, const py::kwargs&) { return MakeCapsule(o); })
      .def("tobytes", &BytesOf)
      .def_property_readonly("device", [](const Output& o) { return o.device; })
      .def("follow", &Follow, py::arg("stream"))
      .def("__dlpack_device__", [](const Output& o) {
        const dlpack::Device device = DlpackDevice(o);
        return py::make_tuple(device.type, device.id);
      });
}

py::object OutputsOf(const Handle& handle) {
  if (handle.outputs.empty()) return py::none();
  py::list list;
  for (const Output& output : handle.outputs) list.append(output);
  return std::move(list);
}

}  // namespace hvd::python
