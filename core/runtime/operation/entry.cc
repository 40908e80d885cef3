#include "runtime/operation/entry.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "base/float8.h"
#include "base/half.h"
#include "base/text.h"
#include "negotiate/agreement.h"
#include "runtime/operation/result_sizes.h"

namespace hvd {

namespace {

constexpr size_t kAlignment = 64;

using negotiate::Request;
using negotiate::TensorMeta;

// The text is made only when there is something to say: this runs for every operation.
Status Refuse(const Request& request, const std::string& why) {
  return Status::Invalid(negotiate::Submission(request) + ": " + why);
}

Status CheckReduction(const Request& request, const TensorMeta& meta) {
  if (request.reduce_op == ReduceOp::kAverage && meta.dtype == DataType::kBool) {
    return Refuse(request, "Average is not defined for bool; use Sum (or) or Min (and)");
  }
  if (request.reduce_op != ReduceOp::kAdasum) return Status::Ok();
  if (request.kind != OpKind::kAllreduce) return Refuse(request, "only allreduce has op=Adasum");
  if (IsFloating(meta.dtype)) return Status::Ok();
  return Refuse(request, std::string("Adasum is defined for floating-point tensors, not for ") +
                             Name(meta.dtype));
}

Status CheckTensor(const Request& request, const TensorMeta& meta) {
  if (meta.shape.size() > negotiate::kMaxDims) {
    return Refuse(request,
                  "a tensor has at most " + std::to_string(negotiate::kMaxDims) + " dimensions");
  }
  if (negotiate::BytesOf(meta) < 0) {
    return Refuse(request, "the shape " + ToString(meta.shape) + " is negative or too large");
  }
  // An empty tensor takes no memory, but its rows may: those of other ranks.
  const bool has_rows = HasResultSizes(request.kind) && !meta.shape.empty();
  if (has_rows &&
      (negotiate::BytesPerRow(meta) < 0 || meta.shape[0] > negotiate::kMaxTensorBytes)) {
    return Refuse(request,
                  "the rows of the shape " + ToString(meta.shape) + " are too large or too many");
  }
  return Reduces(request.kind) ? CheckReduction(request, meta) : Status::Ok();
}

Status CheckMemory(const Request& request, const TensorMeta& meta, const char* what,
                   const void* data, int64_t bytes, int64_t needed) {
  if (bytes == needed && (data != nullptr || needed == 0)) return Status::Ok();
  const std::string given = data == nullptr ? "no memory" : std::to_string(bytes) + " bytes";
  return Refuse(request, std::string("the ") + what + " has " + given + ", but " +
                             Name(meta.dtype) + " " + ToString(meta.shape) + " takes " +
                             std::to_string(needed));
}

Status CheckBuffer(const Request& request, const TensorMeta& meta, const TensorBuffer& buffer) {
  const int64_t needed = negotiate::BytesOf(meta);
  HVD_RETURN_IF_ERROR(
      CheckMemory(request, meta, "input", buffer.input, buffer.input_bytes, needed));
  if (buffer.output == nullptr) return Status::Ok();
  // How large the result is, only negotiation tells: see TensorBuffer.
  if (HasResultSizes(request.kind)) return Status::Ok();
  return CheckMemory(request, meta, "output", buffer.output, buffer.output_bytes, needed);
}

Status CheckSplits(const Request& request, size_t members) {
  if (request.tensors.size() != 1 || request.tensors[0].shape.empty()) {
    return Refuse(request, "one tensor with a first dimension is needed");
  }
  if (request.splits.size() != members) {
    return Refuse(request, "Number of entries in splits does not equal number of workers: " +
                               std::to_string(request.splits.size()) + " instead of " +
                               std::to_string(members));
  }
  int64_t sum = 0;
  for (const int64_t rows : request.splits) {
    if (rows < 0 || __builtin_add_overflow(sum, rows, &sum)) {
      return Refuse(request, "splits must not be negative");
    }
  }
  if (sum <= request.tensors[0].shape[0]) return Status::Ok();
  return Refuse(request, "splits add up to " + std::to_string(sum) + " rows, but the tensor has " +
                             std::to_string(request.tensors[0].shape[0]));
}

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
uint8_t BoolIdentity(ReduceOp op) {
  return op == ReduceOp::kMin || op == ReduceOp::kProduct ? 1 : 0;
}

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
    case DataType::kFloat8E4m3fn:  // which has no infinity: its largest changes nothing either
      return FillWith(ToFloat8E4m3fn(Identity<float>(op)), output);
    case DataType::kFloat8E5m2:
      return FillWith(ToFloat8E5m2(Identity<float>(op)), output);
    case DataType::kFloat32:
      return FillWith(Identity<float>(op), output);
    case DataType::kFloat64:
      return FillWith(Identity<double>(op), output);
    case DataType::kBool:
      return FillWith(BoolIdentity(op), output);
  }
}

}  // namespace

Status Output::Describe(DataType dtype, Shape shape, Output* output) {
  const int64_t bytes = negotiate::BytesOf({dtype, shape});
  if (bytes < 0)
    return {Code::kUnavailable, "a result of shape " + ToString(shape) + " does not fit memory"};
  output->dtype = dtype;
  output->shape = std::move(shape);
  output->bytes = bytes;
  return Status::Ok();
}

Status Output::Allocate(DataType dtype, Shape shape, Output* output) {
  HVD_RETURN_IF_ERROR(Describe(dtype, std::move(shape), output));
  const size_t rounded = (static_cast<size_t>(output->bytes) / kAlignment + 1) * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) {
    return {Code::kUnavailable, "no memory for a result of shape " + ToString(output->shape) +
                                    " of " + Name(dtype) + " (" + std::to_string(output->bytes) +
                                    " bytes)"};
  }
  output->data = std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), std::free);
  return Status::Ok();
}

Status CheckRequest(const Request& request) {
  if (request.tensors.size() > negotiate::kMaxTensors) return Refuse(request, "too many tensors");
  if (request.kind == OpKind::kJoin && !request.tensors.empty())
    return Refuse(request, "it has no tensors");
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
    return Refuse(request, "prescale_factor and postscale_factor must be finite");
  }
  for (const TensorMeta& meta : request.tensors) HVD_RETURN_IF_ERROR(CheckTensor(request, meta));
  return Status::Ok();
}

Status CheckEntry(const Entry& entry, size_t members) {
  const Request& request = entry.request;
  if (request.tensors.size() != entry.buffers.size()) return Refuse(request, "too many tensors");
  if (request.kind == OpKind::kAlltoall) HVD_RETURN_IF_ERROR(CheckSplits(request, members));
  HVD_RETURN_IF_ERROR(CheckRequest(request));
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    HVD_RETURN_IF_ERROR(CheckBuffer(request, request.tensors[t], entry.buffers[t]));
  }
  return Status::Ok();
}

Status CheckMessage(const Entry& entry, const Members& members) {
  const PeerOperation& peer = *entry.peer;
  const std::string what = peer.sends ? "send: " : "recv: ";
  if (entry.request.tensors.size() != 1 || entry.buffers.size() != 1)
    return Status::Invalid(what + "a message is one tensor");
  if (KindOf(entry.request.device) == DeviceKind::kGpu)
    return Status::Invalid(what + "the tensor must lie in host memory, or have a copy there");
  const bool anybody = !peer.rank.known() && !peer.sends;
  if (!anybody && !members.Has(peer.rank)) {
    return Status::Invalid(what + Name(peer.rank) + " does not belong to process set " +
                           std::to_string(entry.process_set) + ", whose ranks are " +
                           negotiate::RankList(members.ranks()));
  }
  const negotiate::TensorMeta& meta = entry.request.tensors.front();
  const TensorBuffer& buffer = entry.buffers.front();
  HVD_RETURN_IF_ERROR(CheckTensor(entry.request, meta));
  if (IsNote(peer.tag) && buffer.input_bytes > static_cast<int64_t>(kMostNoteBytes))
    return Status::Invalid(what + "such a tag is for the engine's own notes");
  const int64_t needed = negotiate::BytesOf(meta);
  if (peer.sends)
    return CheckMemory(entry.request, meta, "input", buffer.input, buffer.input_bytes, needed);
  return CheckMemory(entry.request, meta, "output", buffer.output, buffer.output_bytes, needed);
}

Status MakeNeutral(uint32_t process_set, const Request& request, Entry* entry,
                   std::vector<Output>* memory) {
  entry->process_set = process_set;
  entry->request = request;
  entry->request.splits.clear();  // somebody else's: it sends no rows
  entry->neutral = true;
  const bool brings_rows = Reduces(request.kind) || request.kind == OpKind::kBroadcast;
  for (TensorMeta& tensor : entry->request.tensors) {
    if (!brings_rows && !tensor.shape.empty()) tensor.shape[0] = 0;
    Output& own = memory->emplace_back();
    HVD_RETURN_IF_ERROR(Output::Allocate(tensor.dtype, tensor.shape, &own));
    if (Reduces(request.kind)) FillIdentity(request.reduce_op, own);
    // Of the other kinds the executor allocates the output, whose size is another.
    TensorBuffer& buffer = entry->buffers.emplace_back();
    buffer = TensorBuffer::InPlace(own.data.get(), negotiate::BytesOf(tensor));
    if (HasResultSizes(request.kind)) buffer.output = nullptr;
  }
  return Status::Ok();
}

}  // namespace hvd
