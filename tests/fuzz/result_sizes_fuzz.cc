// The table of sizes that comes with a response, or what the others say before an alltoall: the
// table is taken only if this rank's part of it is what the rank has announced, and every number
// that sizes memory is what 128-bit arithmetic says.

#include <numeric>

#include "random_messages.h"
#include "runtime/operation/entry.h"
#include "runtime/operation/result_sizes.h"
#include "target.h"

namespace hvd {
namespace {

using namespace fuzz;
using negotiate::Request;
using Wide = __int128;

Request OwnRequest(Input* input, int members) {
  Request request = AnyRequest(input);
  constexpr OpKind kKinds[] = {OpKind::kAllgather, OpKind::kAlltoall, OpKind::kReducescatter};
  request.kind = kKinds[input->Below(3)];
  request.prescale = request.postscale = 1;
  if (request.reduce_op == ReduceOp::kAdasum) request.reduce_op = ReduceOp::kSum;
  if (request.kind != OpKind::kAlltoall || input->Below(8) == 0) return request;
  request.tensors.resize(1);
  request.splits.resize(static_cast<size_t>(members));
  for (int64_t& rows : request.splits) rows = static_cast<int64_t>(input->Number() >> 1);
  return request;
}

// Whether this rank would have announced it at all. Memory is not looked at here.
bool IsSound(const Request& request, int members) {
  Entry entry;
  entry.request = request;
  for (const negotiate::TensorMeta& tensor : request.tensors) {
    const int64_t bytes = negotiate::BytesOf(tensor);
    if (bytes < 0) return false;
    static const std::byte somewhere{};
    entry.buffers.push_back({&somewhere, bytes, nullptr, 0});
  }
  const bool stands_in = request.kind == OpKind::kAlltoall && request.splits.empty();
  return !request.tensors.empty() &&
         (stands_in || CheckEntry(entry, static_cast<size_t>(members)).ok());
}

// The table that a sound sequencer would send, changed in one place as the input says.
std::vector<int64_t> Table(Input* input, const Request& request, int members, int rank) {
  const auto n = static_cast<size_t>(members);
  const auto me = static_cast<size_t>(rank);
  std::vector<int64_t> sizes;
  if (request.kind == OpKind::kAllgather) sizes.resize(n * request.tensors.size());
  for (int64_t& size : sizes) size = static_cast<int64_t>(input->Number());
  const Shape mine = negotiate::SizesOf(request);
  for (size_t i = 0; i < mine.size() && !sizes.empty(); ++i) {
    sizes[i * n + me] = mine[i];
  }
  if (input->Below(4) == 0 && !sizes.empty()) sizes[input->Below(sizes.size())] = input->Signed();
  if (input->Below(16) == 0) sizes.resize(input->Below(20));
  return sizes;
}

// What the members say that they send to this rank.
std::vector<int64_t> Rows(Input* input, int members) {
  std::vector<int64_t> rows(static_cast<size_t>(members));
  for (int64_t& one : rows)
    one = input->Below(4) == 0 ? input->Signed() : static_cast<int64_t>(input->Number() >> 20);
  return rows;
}

void CheckResult(const Request& request, size_t tensor, const std::vector<int64_t>& sizes,
                 int members, int rank, const ResultSizes& result) {
  const auto n = static_cast<size_t>(members);
  const int64_t row = negotiate::BytesPerRow(request.tensors[tensor]);
  Wide all = 0;
  for (const std::vector<int64_t>& share : {result.shares.to, result.shares.from}) {
    for (const int64_t bytes : share) {
      REQUIRE(bytes >= 0 && (row == 0 ? bytes == 0 : bytes % row == 0));
      all += bytes;
    }
  }
  REQUIRE(all == result.all_bytes || request.kind == OpKind::kAlltoall);
  // What leaves this rank is its own memory.
  REQUIRE(result.input_bytes >= 0 &&
          result.input_bytes <= negotiate::BytesOf(request.tensors[tensor]));
  Wide rows = 0;
  for (size_t r = 0; r < n; ++r) {
    if (request.kind == OpKind::kAllgather) rows += sizes[tensor * n + r];
    if (request.kind == OpKind::kAlltoall) rows += sizes[r];
  }
  if (request.kind == OpKind::kReducescatter) {
    const int64_t first = request.tensors[tensor].shape[0];
    rows = first / members + (rank < first % members ? 1 : 0);
  }
  REQUIRE(result.shape.size() == request.tensors[tensor].shape.size() && rows == result.shape[0]);
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  fuzz::Input input(data, size);
  const int members = 1 + static_cast<int>(input.Below(4));
  const int rank = static_cast<int>(input.Below(static_cast<size_t>(members)));
  const negotiate::Request request = OwnRequest(&input, members);
  if (!IsSound(request, members)) return 0;
  const size_t tensor = input.Below(request.tensors.size());
  std::vector<int64_t> sizes = Table(&input, request, members, rank);
  ResultSizes result;
  Status status = FindResultSizes(request, "w", tensor, sizes, members, rank, &result);
  if (status.ok() && request.kind == OpKind::kAlltoall) {
    REQUIRE(sizes.empty() && result.input_bytes <= negotiate::BytesOf(request.tensors[tensor]));
    sizes = Rows(&input, members);
    Position culprit;
    status = AddReceived(request, "w", tensor, sizes, &result, &culprit);
    REQUIRE(status.ok() != (culprit.known() && culprit.value() < members));
  }
  if (status.ok()) {
    CheckResult(request, tensor, sizes, members, rank, result);
  } else {
    REQUIRE(status.code() == Code::kAborted && fuzz::Contains(status.message(), "'w'"));
  }
  return 0;
}
