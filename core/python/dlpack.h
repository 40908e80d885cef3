#pragma once

#include <cstdint>

// The part of the DLPack ABI (version 0.x, https://dmlc.github.io/dlpack) that a CPU tensor needs.
namespace hvd::dlpack {

constexpr int32_t kCpu = 1;

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
