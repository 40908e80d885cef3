#include "backend/nccl/reduction.h"

#include <cstring>

#include "backend/nccl/nccl_library.h"
#include "base/float8.h"
#include "base/half.h"

namespace hvd::nccl {

namespace {

// Types of 16 and 8 bits hold few factors, and NCCL multiplies in the element type.
bool Holds(DataType dtype, double factor) {
  const auto single = static_cast<float>(factor);
  if (dtype == DataType::kFloat16) return ToFloat(ToFloat16(single)) == factor;
  if (dtype == DataType::kBfloat16) return ToFloat(ToBfloat16(single)) == factor;
  if (dtype == DataType::kFloat8E4m3fn) return ToFloat(ToFloat8E4m3fn(single)) == factor;
  if (dtype == DataType::kFloat8E5m2) return ToFloat(ToFloat8E5m2(single)) == factor;
  return dtype == DataType::kFloat64 || IsFloating(dtype);
}

bool IsLinear(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAverage; }

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

void StoreFactor(DataType dtype, double factor, std::byte* to) {
  const auto single = static_cast<float>(factor);
  switch (dtype) {
    case DataType::kFloat16:
      return Store(ToFloat16(single), to);
    case DataType::kBfloat16:
      return Store(ToBfloat16(single), to);
    case DataType::kFloat8E4m3fn:
      return Store(ToFloat8E4m3fn(single), to);
    case DataType::kFloat8E5m2:
      return Store(ToFloat8E5m2(single), to);
    case DataType::kFloat64:
      return Store(factor, to);
    default:
      return Store(single, to);
  }
}

// bool: Sum and Max are "or", Product and Min are "and".
int OpOf(ReduceOp op, DataType dtype) {
  const bool boolean = dtype == DataType::kBool;
  switch (op) {
    case ReduceOp::kMin:
      return kMin;
    case ReduceOp::kMax:
      return kMax;
    case ReduceOp::kProduct:
      return boolean ? kMin : kProd;
    default:
      return boolean ? kMax : kSum;
  }
}

}  // namespace

int TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kInt8:
      return kInt8;
    case DataType::kUint8:
    case DataType::kBool:
      return kUint8;
    case DataType::kInt32:
      return kInt32;
    case DataType::kUint32:
      return kUint32;
    case DataType::kInt64:
      return kInt64;
    case DataType::kUint64:
      return kUint64;
    case DataType::kFloat16:
      return kHalf;
    case DataType::kFloat32:
      return kFloat;
    case DataType::kFloat64:
      return kDouble;
    case DataType::kBfloat16:
      return kBfloat;
    case DataType::kFloat8E4m3fn:
      return kFloat8e4m3;
    case DataType::kFloat8E5m2:
      return kFloat8e5m2;
    case DataType::kUint16:
    case DataType::kInt16:
      break;
  }
  return -1;
}

bool IsFloat8Reduction(OpKind kind, DataType dtype) {
  return Reduces(kind) && IsFloating(dtype) && SizeOf(dtype) == 1;
}

bool Carries(OpKind kind, DataType dtype, ReduceOp op, double prescale, double postscale) {
  if (kind == OpKind::kBarrier || kind == OpKind::kJoin) return false;
  if (!Reduces(kind)) return true;  // bytes
  if (op == ReduceOp::kAdasum || TypeOf(dtype) < 0) return false;
  // One over the number of ranks is off by up to 6 % in eight bits, and 0 among many ranks.
  if (op == ReduceOp::kAverage && IsFloat8Reduction(kind, dtype)) return false;
  if (prescale == 1.0 && postscale == 1.0) return true;
  return IsLinear(op) && Holds(dtype, prescale * postscale);
}

Arithmetic ArithmeticOf(const Reduction& reduction) {
  const bool average = reduction.divisor != 1;
  const double factor = reduction.prescale * reduction.postscale;
  Arithmetic arithmetic;
  arithmetic.dtype = TypeOf(reduction.dtype);
  arithmetic.op = average ? kAvg : OpOf(reduction.op, reduction.dtype);
  arithmetic.scales = factor != 1.0;
  if (arithmetic.scales) {
    StoreFactor(reduction.dtype, factor / static_cast<double>(reduction.divisor),
                arithmetic.factor);
  }
  return arithmetic;
}

}  // namespace hvd::nccl
