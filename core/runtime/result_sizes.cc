#include "runtime/result_sizes.h"

#include <string>

#include "base/text.h"

namespace hvd {

namespace {

Status Impossible(const negotiate::Request& request) {
  return Status::Aborted("a response carries impossible sizes for '" + Shown(request.name) + "'");
}

// Rows to bytes, adding up what this rank receives; false on overflow or a negative number.
bool ToBytes(const std::vector<int64_t>& rows, int64_t row_bytes, std::vector<int64_t>* bytes) {
  for (const int64_t count : rows) {
    if (count < 0 || __builtin_mul_overflow(count, row_bytes, &bytes->emplace_back())) return false;
  }
  return true;
}

bool Add(int64_t value, int64_t* sum) { return !__builtin_add_overflow(*sum, value, sum); }

// The first dimension as evenly as possible, the first ranks having one more.
std::vector<int64_t> EvenRows(int64_t rows, int members) {
  std::vector<int64_t> parts(static_cast<size_t>(members), rows / members);
  for (int64_t r = 0; r < rows % members; ++r) ++parts[static_cast<size_t>(r)];
  return parts;
}

}  // namespace

bool HasResultSizes(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall || kind == OpKind::kReducescatter;
}

Status FindResultSizes(const negotiate::Request& request, size_t tensor, const std::vector<int64_t>& sizes,
                       int members, int rank, ResultSizes* result) {
  const negotiate::TensorMeta& meta = request.tensors[tensor];
  const auto n = static_cast<size_t>(members);
  const auto me = static_cast<size_t>(rank);
  std::vector<int64_t> rows;
  switch (request.kind) {
    case OpKind::kAllgather:
      if (sizes.size() != n * request.tensors.size()) return Impossible(request);
      rows.assign(sizes.begin() + static_cast<int64_t>(tensor * n),
                  sizes.begin() + static_cast<int64_t>((tensor + 1) * n));
      break;
    case OpKind::kAlltoall:
      if (sizes.size() != n * n) return Impossible(request);
      rows = sizes;
      break;
    default:
      rows = EvenRows(meta.shape.empty() ? 0 : meta.shape[0], members);
  }
  result->shape = meta.shape.empty() ? Shape{1} : meta.shape;
  const Shape row(result->shape.begin() + 1, result->shape.end());
  const int64_t row_bytes = NumElements(row) * static_cast<int64_t>(SizeOf(meta.dtype));
  if (!ToBytes(rows, row_bytes, &result->rank_bytes)) return Impossible(request);
  result->shape[0] = 0;
  for (size_t r = 0; r < n; ++r) {
    const bool alltoall = request.kind == OpKind::kAlltoall;
    if (alltoall) result->received.push_back(rows[r * n + me]);
    const bool comes_here = request.kind != OpKind::kReducescatter || r == me;
    if (comes_here && !Add(alltoall ? rows[r * n + me] : rows[r], &result->shape[0])) {
      return Impossible(request);
    }
    const bool leaves_here = request.kind != OpKind::kAllgather || r == me;
    if (leaves_here) result->input_bytes += result->rank_bytes[alltoall ? me * n + r : r];
  }
  return Status::Ok();
}

}  // namespace hvd
