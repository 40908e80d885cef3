#include "base/types.h"

#include <iterator>

namespace hvd {

namespace {

struct TypeRow {
  const char* name;
  size_t size;
  bool floating;
};

// In the order of DataType.
constexpr TypeRow kTypes[] = {
    {"uint8", 1, false},  {"int8", 1, false},         {"uint16", 2, false},
    {"int16", 2, false},  {"int32", 4, false},        {"int64", 8, false},
    {"float16", 2, true}, {"float32", 4, true},       {"float64", 8, true},
    {"bool", 1, false},   {"bfloat16", 2, true},      {"uint32", 4, false},
    {"uint64", 8, false}, {"float8_e4m3fn", 1, true}, {"float8_e5m2", 1, true},
};
static_assert(std::size(kTypes) == kDataTypes);

}  // namespace

size_t SizeOf(DataType dtype) { return kTypes[static_cast<int>(dtype)].size; }
bool IsFloating(DataType dtype) { return kTypes[static_cast<int>(dtype)].floating; }
const char* Name(DataType dtype) { return kTypes[static_cast<int>(dtype)].name; }

const char* Name(ReduceOp op) {
  constexpr const char* kNames[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  static_assert(std::size(kNames) == kReduceOps);
  return kNames[static_cast<int>(op)];
}

const char* Name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kHost:
      return "a CPU tensor";
    case DeviceKind::kStaged:
      return "a GPU tensor by way of host memory";
    case DeviceKind::kGpu:
      return "a GPU tensor";
  }
  return "";
}

const char* Name(OpKind kind) {
  constexpr const char* kNames[] = {"allreduce", "allgather",     "broadcast", "barrier",
                                    "alltoall",  "reducescatter", "join"};
  static_assert(std::size(kNames) == kOpKinds);
  return kNames[static_cast<int>(kind)];
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

int64_t NumElements(const Shape& shape) {
  int64_t product = 1;
  bool empty = false;
  bool overflow = false;
  for (int64_t dim : shape) {
    if (dim < 0) return -1;
    empty |= dim == 0;
    overflow |= __builtin_mul_overflow(product, dim, &product);
  }
  if (empty) return 0;
  return overflow ? -1 : product;
}

}  // namespace hvd
