#include "runtime/check.h"

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
  int64_t bytes;
  const int64_t elements = NumElements(meta.shape);
  if (elements < 0 || __builtin_mul_overflow(elements, static_cast<int64_t>(SizeOf(meta.dtype)), &bytes)) {
    return Refuse(request, "the shape " + ToString(meta.shape) + " is negative or too large");
  }
  return Reduces(request.kind) ? CheckReduction(request, meta) : Status::Ok();
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

Status CheckEntry(const Entry& entry, size_t members) {
  const Request& request = entry.request;
  if (request.tensors.size() > negotiate::kMaxTensors || request.tensors.size() != entry.buffers.size()) {
    return Refuse(request, "too many tensors");
  }
  if (request.kind == OpKind::kJoin && !request.tensors.empty()) return Refuse(request, "it has no tensors");
  if (request.kind == OpKind::kAlltoall) HVD_RETURN_IF_ERROR(CheckSplits(request, members));
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
    return Refuse(request, "prescale_factor and postscale_factor must be finite");
  }
  for (const TensorMeta& meta : request.tensors) HVD_RETURN_IF_ERROR(CheckTensor(request, meta));
  return Status::Ok();
}

}  // namespace hvd
