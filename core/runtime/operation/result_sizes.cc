#include "runtime/operation/result_sizes.h"

#include <string>
#include <utility>

#include "base/range.h"
#include "base/text.h"

namespace hvd {

namespace {

using negotiate::Request;

Status Impossible(const Request& request, const std::string& name, const std::string& what) {
  return Status::Aborted("the response to the " + std::string(Name(request.kind)) + " of '" +
                         Shown(name) + "' says " + what);
}

// Of so many rows; false: no tensor has so many, or fewer than none.
bool ToBytes(int64_t rows, int64_t row_bytes, int64_t* bytes) {
  return rows >= 0 && !__builtin_mul_overflow(rows, row_bytes, bytes) &&
         *bytes <= negotiate::kMaxTensorBytes;
}

bool Add(int64_t value, int64_t* sum) { return !__builtin_add_overflow(*sum, value, sum); }

bool AddAll(const std::vector<int64_t>& rows, int64_t row_bytes, std::vector<int64_t>* share,
            int64_t* all_bytes) {
  for (const int64_t count : rows) {
    int64_t& bytes = share->emplace_back();
    if (!ToBytes(count, row_bytes, &bytes) || !Add(bytes, all_bytes)) return false;
  }
  return true;
}

// Of the first dimension.
std::vector<int64_t> EvenRows(int64_t rows, int members) {
  std::vector<int64_t> parts;
  parts.reserve(static_cast<size_t>(members));
  for (int member = 0; member < members; ++member)
    parts.push_back(EvenPart(rows, member, members).length());
  return parts;
}

// What goes to each member; nothing of a rank that has joined.
Status AddSent(const Request& request, const std::string& name, size_t tensor, int members,
               ResultSizes* result) {
  result->sent = request.splits;
  result->sent.resize(static_cast<size_t>(members));
  const int64_t row_bytes = negotiate::BytesPerRow(request.tensors[tensor]);
  if (row_bytes < 0 || !AddAll(result->sent, row_bytes, &result->shares.to, &result->input_bytes))
    return Impossible(request, name, "that this rank sends more than memory holds");
  return Status::Ok();
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
  const bool scatters = request.kind == OpKind::kReducescatter;
  const bool gathers = request.kind == OpKind::kAllgather;
  // Without a first dimension every rank was refused, so nobody should carry it out.
  if (meta.shape.empty()) return Impossible(request, name, "that a 0-dim tensor takes part");
  const size_t expected = gathers ? n * request.tensors.size() : 0;
  if (sizes.size() != expected) {
    return Impossible(
        request, name,
        std::to_string(sizes.size()) + " sizes instead of " + std::to_string(expected));
  }
  if (!gathers && !scatters) return AddSent(request, name, tensor, members, result);
  const auto first = sizes.begin() + static_cast<int64_t>(scatters ? 0 : tensor * n);
  const std::vector<int64_t> rows =
      scatters ? EvenRows(meta.shape[0], members)
               : std::vector<int64_t>(first, first + static_cast<int64_t>(n));
  if (gathers && rows[me] != meta.shape[0]) {
    return Impossible(request, name,
                      "that this rank sends " + std::to_string(rows[me]) +
                          " rows, but it has announced " + std::to_string(meta.shape[0]));
  }
  const int64_t row_bytes = negotiate::BytesPerRow(meta);
  std::vector<int64_t>& share = scatters ? result->shares.to : result->shares.from;
  if (row_bytes < 0 || !AddAll(rows, row_bytes, &share, &result->all_bytes)) {
    return Impossible(request, name, "sizes that no memory holds");
  }
  result->shape = meta.shape;
  result->shape[0] = 0;
  for (size_t r = 0; r < n; ++r) {
    const bool comes_here = !scatters || r == me;
    if (comes_here && !Add(rows[r], &result->shape[0])) {
      return Impossible(request, name, "more rows than a dimension can have");
    }
    if (scatters || r == me) result->input_bytes += share[r];
  }
  return Status::Ok();
}

Status AddReceived(const Request& request, const std::string& name, size_t tensor,
                   std::vector<int64_t> rows, ResultSizes* result, Position* culprit) {
  const negotiate::TensorMeta& meta = request.tensors[tensor];
  const int64_t row_bytes = negotiate::BytesPerRow(meta);
  int64_t all_rows = 0;
  int64_t all_bytes = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    int64_t& bytes = result->shares.from.emplace_back();
    // Rows without bytes are bounded, too: so the sum is out of nobody's bounds alone.
    if (ToBytes(rows[r], row_bytes, &bytes) && rows[r] <= negotiate::kMaxTensorBytes &&
        Add(rows[r], &all_rows) && Add(bytes, &all_bytes))
      continue;
    *culprit = Position(static_cast<int>(r));
    return Status::Aborted("to the alltoall of '" + Shown(name) + "' it brings " +
                           std::to_string(rows[r]) + " rows of " + std::to_string(row_bytes) +
                           " bytes, which no memory holds");
  }
  result->shape = meta.shape;
  result->shape[0] = all_rows;
  result->received = std::move(rows);
  return Status::Ok();
}

}  // namespace hvd
