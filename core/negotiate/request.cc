#include <algorithm>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "negotiate/message.h"

namespace hvd::negotiate {
namespace {

// -1: more than any tensor may take.
int64_t Bytes(const Shape& shape, DataType dtype) {
  int64_t bytes;
  const int64_t elements = NumElements(shape);
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  const bool fits = elements >= 0 && !__builtin_mul_overflow(elements, size, &bytes);
  return fits && bytes <= kMaxTensorBytes ? bytes : -1;
}

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool SameParameters(const Request& a, const Request& b) {
  if (HasReduction(a.kind) && (a.reduce_op != b.reduce_op || !SameBits(a.prescale, b.prescale) ||
                               !SameBits(a.postscale, b.postscale))) {
    return false;
  }
  return !HasRoot(a.kind) || a.root == b.root;
}

bool SameButFirstDim(const TensorMeta& a, const TensorMeta& b) {
  if (a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
  return a.shape.empty() || std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

}  // namespace

bool Request::SameAs(const Request& other) const {
  if (notice != other.notice || name != other.name) return false;
  if (notice != 0) return true;
  if (kind != other.kind || tensors.size() != other.tensors.size()) return false;
  if (kind == OpKind::kBarrier) return true;
  if (KindOf(device) != KindOf(other.device) || !SameParameters(*this, other)) return false;
  if (!IsRagged(kind)) return tensors == other.tensors;
  return std::equal(tensors.begin(), tensors.end(), other.tensors.begin(), SameButFirstDim);
}

Shape SizesOf(const Request& request) {
  Shape dims;
  if (request.kind != OpKind::kAllgather) return dims;
  dims.reserve(request.tensors.size());
  for (const TensorMeta& tensor : request.tensors)
    dims.push_back(tensor.shape.empty() ? 0 : tensor.shape[0]);
  return dims;
}

int64_t BytesPerRow(const TensorMeta& tensor) {
  const size_t first = tensor.shape.empty() ? 0 : 1;
  return Bytes(Shape(tensor.shape.begin() + static_cast<int64_t>(first), tensor.shape.end()),
               tensor.dtype);
}

int64_t BytesOf(const TensorMeta& tensor) { return Bytes(tensor.shape, tensor.dtype); }

int64_t BytesOf(const Request& request) {
  int64_t sum = 0;
  for (const TensorMeta& tensor : request.tensors) {
    const int64_t bytes = BytesOf(tensor);
    const bool fits = bytes >= 0 && !__builtin_add_overflow(sum, bytes, &sum);
    if (!fits) return std::numeric_limits<int64_t>::max();
  }
  return sum;
}

std::string PublicName(OpKind kind, uint64_t ordinal) {
  return std::string(Name(kind)) + ".noname." + std::to_string(ordinal);
}

std::string Submission(const Request& request) {
  return Name(request.kind) + (request.name.empty() ? "" : " of '" + Shown(request.name) + "'");
}

}  // namespace hvd::negotiate
