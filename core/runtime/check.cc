#include "runtime/check.h"

#include <cmath>
#include <string>

namespace hvd {

namespace {

using negotiate::Request;
using negotiate::TensorMeta;

// The text is made only when there is something to say: this runs for every operation.
Status Refuse(const Request& request, const std::string& why) {
  return Status::Invalid(std::string(Name(request.kind)) + " of '" + request.name + "': " + why);
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
  const bool average = request.kind == OpKind::kAllreduce && request.reduce_op == ReduceOp::kAverage;
  if (average && meta.dtype == DataType::kBool) {
    return Refuse(request, "Average is not defined for bool; use Sum (or) or Min (and)");
  }
  return Status::Ok();
}

}  // namespace

Status CheckEntry(const Entry& entry) {
  const Request& request = entry.request;
  if (request.name.size() > negotiate::kMaxNameBytes) {
    return Status::Invalid("a tensor name has at most " + std::to_string(negotiate::kMaxNameBytes) +
                           " bytes");
  }
  if (request.tensors.size() > negotiate::kMaxTensors || request.tensors.size() != entry.buffers.size()) {
    return Refuse(request, "too many tensors");
  }
  if (request.reduce_op == ReduceOp::kAdasum && request.kind == OpKind::kAllreduce) {
    return Refuse(request, "Adasum is not available in this version; use Sum or Average");
  }
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
    return Refuse(request, "prescale_factor and postscale_factor must be finite");
  }
  for (const TensorMeta& meta : request.tensors) HVD_RETURN_IF_ERROR(CheckTensor(request, meta));
  return Status::Ok();
}

}  // namespace hvd
