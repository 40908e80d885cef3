#include "runtime/operation/check.h"

#include "runtime/operation/result_sizes.h"

#include <cmath>
#include <string>

#include "base/text.h"

namespace hvd {

namespace {

using negotiate::Request;
using negotiate::TensorMeta;

// The text is made only when there is something to say: this runs for every operation.
Status Refuse(const Request& request, const std::string& why) {
  return Status::Invalid(std::string(Name(request.kind)) + " of '" + Shown(request.name) + "': " + why);
}

bool Reduces(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter; }

Status CheckReduction(const Request& request, const TensorMeta& meta) {
  if (request.reduce_op == ReduceOp::kAverage && meta.dtype == DataType::kBool) {
    return Refuse(request, "Average is not defined for bool; use Sum (or) or Min (and)");
  }
  if (request.reduce_op != ReduceOp::kAdasum) return Status::Ok();
  if (request.kind != OpKind::kAllreduce) return Refuse(request, "only allreduce has op=Adasum");
  if (IsFloating(meta.dtype)) return Status::Ok();
  return Refuse(request,
                std::string("Adasum is defined for floating-point tensors, not for ") + Name(meta.dtype));
}

Status CheckTensor(const Request& request, const TensorMeta& meta) {
  if (meta.shape.size() > negotiate::kMaxDims) {
    return Refuse(request, "a tensor has at most " + std::to_string(negotiate::kMaxDims) + " dimensions");
  }
  if (negotiate::BytesOf(meta) < 0) {
    return Refuse(request, "the shape " + ToString(meta.shape) + " is negative or too large");
  }
  // An empty tensor takes no memory, but its rows may: those of other ranks.
  const bool has_rows = HasResultSizes(request.kind) && !meta.shape.empty();
  if (has_rows && (negotiate::BytesPerRow(meta) < 0 || meta.shape[0] > negotiate::kMaxTensorBytes)) {
    return Refuse(request, "the rows of the shape " + ToString(meta.shape) + " are too large or too many");
  }
  return Reduces(request.kind) ? CheckReduction(request, meta) : Status::Ok();
}

Status CheckMemory(const Request& request, const TensorMeta& meta, const char* what, const void* data,
                   int64_t bytes) {
  const int64_t needed = negotiate::BytesOf(meta);
  if (bytes == needed && (data != nullptr || needed == 0)) return Status::Ok();
  const std::string given = data == nullptr ? "no memory" : std::to_string(bytes) + " bytes";
  return Refuse(request, std::string("the ") + what + " has " + given + ", but " + Name(meta.dtype) + " " +
                             ToString(meta.shape) + " takes " + std::to_string(needed));
}

Status CheckBuffer(const Request& request, const TensorMeta& meta, const TensorBuffer& buffer) {
  HVD_RETURN_IF_ERROR(CheckMemory(request, meta, "input", buffer.input, buffer.input_bytes));
  if (buffer.output == nullptr) return Status::Ok();
  if (!HasResultSizes(request.kind)) {
    return CheckMemory(request, meta, "output", buffer.output, buffer.output_bytes);
  }
  return Refuse(request, "its result has a size of its own, so it takes no output: the core allocates it");
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

}  // namespace

Status CheckRequest(const Request& request) {
  if (request.tensors.size() > negotiate::kMaxTensors) return Refuse(request, "too many tensors");
  if (request.kind == OpKind::kJoin && !request.tensors.empty()) return Refuse(request, "it has no tensors");
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

}  // namespace hvd
