#include "runtime/operation/result_sizes.h"

#include <string>

#include "base/text.h"

namespace hvd {

namespace {

using negotiate::Request;

Status Impossible(const Request& request, const std::string& name, const std::string& what) {
  return Status::Aborted("the response to the " + std::string(Name(request.kind)) + " of '" +
                         Shown(name) + "' says " + what);
}

// Rows to bytes, and what they add up to; false on overflow or a negative number.
bool ToBytes(const std::vector<int64_t>& rows, int64_t row_bytes, ResultSizes* result) {
  for (const int64_t count : rows) {
    int64_t& bytes = result->rank_bytes.emplace_back();
    if (count < 0 || __builtin_mul_overflow(count, row_bytes, &bytes)) return false;
    if (bytes > negotiate::kMaxTensorBytes) return false;
    if (__builtin_add_overflow(result->all_bytes, bytes, &result->all_bytes)) return false;
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

// The rows that this rank has announced: one number for an allgather, one for each member for an
// alltoall (none of a rank that has joined, which sends nothing).
Shape OwnRows(const Request& request, size_t tensor, int members) {
  if (request.kind == OpKind::kAllgather) return {request.tensors[tensor].shape[0]};
  if (!request.splits.empty()) return request.splits;
  return Shape(static_cast<size_t>(members), 0);
}

}  // namespace

bool HasResultSizes(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall || kind == OpKind::kReducescatter;
}

Status FindResultSizes(const Request& request, const std::string& name, size_t tensor,
                       const std::vector<int64_t>& sizes, int members, int rank,
                       ResultSizes* result) {
  const negotiate::TensorMeta& meta = request.tensors[tensor];
  const auto n = static_cast<size_t>(members);
  const auto me = static_cast<size_t>(rank);
  const bool alltoall = request.kind == OpKind::kAlltoall;
  const bool scatters = request.kind == OpKind::kReducescatter;
  // Without a first dimension every rank was refused, so nobody should carry it out.
  if (meta.shape.empty()) return Impossible(request, name, "that a 0-dim tensor takes part");
  const size_t expected = scatters ? 0 : alltoall ? n * n : n * request.tensors.size();
  if (sizes.size() != expected) {
    return Impossible(
        request, name,
        std::to_string(sizes.size()) + " sizes instead of " + std::to_string(expected));
  }
  const auto first = sizes.begin() + static_cast<int64_t>(alltoall || scatters ? 0 : tensor * n);
  const std::vector<int64_t> rows =
      scatters ? EvenRows(meta.shape[0], members)
               : std::vector<int64_t>(first, first + (alltoall ? n * n : n));
  if (!scatters) {
    const Shape mine = OwnRows(request, tensor, members);
    const auto said = rows.begin() + static_cast<int64_t>(alltoall ? me * n : me);
    const Shape theirs(said, said + static_cast<int64_t>(mine.size()));
    if (theirs != mine) {
      return Impossible(request, name,
                        "that this rank sends " + ToString(theirs) +
                            " rows, but it has announced " + ToString(mine));
    }
  }
  const int64_t row_bytes = negotiate::BytesPerRow(meta);
  if (row_bytes < 0 || !ToBytes(rows, row_bytes, result)) {
    return Impossible(request, name, "sizes that no memory holds");
  }
  result->shape = meta.shape;
  result->shape[0] = 0;
  for (size_t r = 0; r < n; ++r) {
    const int64_t coming = alltoall ? rows[r * n + me] : rows[r];
    if (alltoall) result->received.push_back(coming);
    const bool comes_here = !scatters || r == me;
    if (comes_here && !Add(coming, &result->shape[0])) {
      return Impossible(request, name, "more rows than a dimension can have");
    }
    const bool leaves_here = request.kind != OpKind::kAllgather || r == me;
    if (leaves_here) result->input_bytes += result->rank_bytes[alltoall ? me * n + r : r];
  }
  return Status::Ok();
}

}  // namespace hvd
