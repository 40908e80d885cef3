#include "runtime/operation/stand_in.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "runtime/operation/result_sizes.h"

namespace hvd {

namespace {

bool Reduces(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter; }

template <typename T>
T Identity(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if (op == ReduceOp::kProduct) return 1;
  if (op == ReduceOp::kMin) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  if (op == ReduceOp::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  return 0;
}

template <typename T>
void FillWith(T value, const Output& output) {
  const int64_t count = NumElements(output.shape);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(output.data.get() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

// bool: Sum and Max are "or", Product and Min are "and".
uint8_t BoolIdentity(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kProduct ? 1 : 0; }

void FillIdentity(ReduceOp op, const Output& output) {
  switch (output.dtype) {
    case DataType::kUint8:
      return FillWith(Identity<uint8_t>(op), output);
    case DataType::kInt8:
      return FillWith(Identity<int8_t>(op), output);
    case DataType::kUint16:
      return FillWith(Identity<uint16_t>(op), output);
    case DataType::kInt16:
      return FillWith(Identity<int16_t>(op), output);
    case DataType::kUint32:
      return FillWith(Identity<uint32_t>(op), output);
    case DataType::kInt32:
      return FillWith(Identity<int32_t>(op), output);
    case DataType::kUint64:
      return FillWith(Identity<uint64_t>(op), output);
    case DataType::kInt64:
      return FillWith(Identity<int64_t>(op), output);
    case DataType::kFloat16:
      return FillWith(ToFloat16(Identity<float>(op)), output);
    case DataType::kBfloat16:
      return FillWith(ToBfloat16(Identity<float>(op)), output);
    case DataType::kFloat32:
      return FillWith(Identity<float>(op), output);
    case DataType::kFloat64:
      return FillWith(Identity<double>(op), output);
    case DataType::kBool:
      return FillWith(BoolIdentity(op), output);
  }
}

}  // namespace

Status MakeStandIn(uint32_t process_set, const negotiate::Request& request, uint64_t ordinal,
                   HandlePtr* handle) {
  Entry entry;
  entry.process_set = process_set;
  entry.request = request;
  entry.request.splits.clear();  // somebody else's: a stand-in sends no rows
  entry.stand_in = true;
  std::vector<Output> memory;
  const bool brings_rows = Reduces(request.kind) || request.kind == OpKind::kBroadcast;
  for (negotiate::TensorMeta& tensor : entry.request.tensors) {
    if (!brings_rows && !tensor.shape.empty()) tensor.shape[0] = 0;
    Output& own = memory.emplace_back();
    HVD_RETURN_IF_ERROR(Output::Allocate(tensor.dtype, tensor.shape, &own));
    if (Reduces(request.kind)) FillIdentity(request.reduce_op, own);
    // Of the other kinds the executor allocates the output, whose size is another.
    TensorBuffer& buffer = entry.buffers.emplace_back();
    buffer = TensorBuffer::InPlace(own.data.get(), negotiate::BytesOf(tensor));
    if (HasResultSizes(request.kind)) buffer.output = nullptr;
  }
  *handle = std::make_shared<Handle>(std::move(entry));
  (*handle)->ordinal = ordinal;
  (*handle)->kept = std::move(memory);
  return Status::Ok();
}

}  // namespace hvd
