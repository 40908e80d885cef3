#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

// Element types. The numbers travel in messages and in the Python module: append only.
enum class DataType : uint8_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBool,
  kBfloat16,
  kUint32,
  kUint64,
  kFloat8E4m3fn,
  kFloat8E5m2,
};
constexpr int kDataTypes = 15;

// Public numbers (API: Average=0 ... Product=5).
enum class ReduceOp : uint8_t { kAverage = 0, kSum, kAdasum, kMin, kMax, kProduct };
constexpr int kReduceOps = 6;

// Every operation that is negotiated. Numbers travel in messages: append only.
// kJoin is no collective: it travels as a mark of its own, never in a request.
enum class OpKind : uint8_t {
  kAllreduce = 0,
  kAllgather,
  kBroadcast,
  kBarrier,
  kAlltoall,
  kReducescatter,
  kJoin,
};
constexpr int kOpKinds = 7;

// What arithmetic a reduction applies: prescale each input, combine in rank order, scale the
// result. Average is a Sum whose result is divided by `divisor` (floating: folded into postscale;
// integer: exact division of the wrapped sum, truncating toward zero).
struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;

  // Where inputs are combined in several passes: of those that read them, of those between, and of
  // those that make the result.
  Reduction First() const { return {dtype, op, prescale, 1.0, 1}; }
  Reduction Between() const { return {dtype, op, 1.0, 1.0, 1}; }
  Reduction Last() const { return {dtype, op, 1.0, postscale, divisor}; }
};

// Whether an operation does arithmetic with a ReduceOp.
inline bool Reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}

// Where a tensor lies. Of a GPU a rank knows a number of its own, from 0 on; ranks agree on no more
// than the kind.
constexpr int32_t kHostDevice = -1;
constexpr int32_t kStagedDevice = -2;  // on a GPU, and a copy in host memory takes part for it

enum class DeviceKind : uint8_t { kHost, kStaged, kGpu };
inline DeviceKind KindOf(int32_t device) {
  if (device >= 0) return DeviceKind::kGpu;
  return device == kStagedDevice ? DeviceKind::kStaged : DeviceKind::kHost;
}
const char* Name(DeviceKind kind);  // "a GPU tensor"

using Shape = std::vector<int64_t>;

size_t SizeOf(DataType dtype);
bool IsFloating(DataType dtype);
const char* Name(DataType dtype);          // "float32"
const char* Name(ReduceOp op);             // "Sum"
const char* Name(OpKind kind);             // "allreduce"
std::string ToString(const Shape& shape);  // "[2, 3]"

// Product of the dimensions; 1 for a 0-dim tensor; -1 when it does not fit 63 bits or any dim is
// negative.
int64_t NumElements(const Shape& shape);

}  // namespace hvd
