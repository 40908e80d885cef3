// What a response says of the sizes of a result is checked against what this rank has submitted.

#include "runtime/operation/result_sizes.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "runtime/requests.h"

namespace hvd::test {
namespace {

using negotiate::Request;
using Sizes = std::vector<int64_t>;

// What a table means for position 1 of 3.
Status Find(const Request& request, const Sizes& sizes, ResultSizes* result) {
  *result = {};
  return FindResultSizes(request, "w", 0, sizes, 3, 1, result);
}

TEST(ResultSizes, TakesATableThatHoldsThisRanksOwnRows) {
  ResultSizes result;
  ASSERT_OK(Find(RequestOf(OpKind::kAllgather, {4, 2}), {1, 4, 0}, &result));
  EXPECT_EQ(result.input_bytes, 32);
  EXPECT_EQ(result.all_bytes, 40);
  EXPECT_EQ(ToString(result.shape), "[5, 2]");
  ASSERT_OK(Find(RequestOf(OpKind::kReducescatter, {8}), {}, &result));
  EXPECT_EQ(result.input_bytes, 32);
  EXPECT_EQ(ToString(result.shape), "[3]");
}

TEST(ResultSizes, OfAnAlltoallAreKnownInTwoSteps) {
  const Request request = RequestOf(OpKind::kAlltoall, {9, 2}, {1, 2, 3});
  ResultSizes result;
  ASSERT_OK(Find(request, {}, &result));
  EXPECT_EQ(result.input_bytes, 48);
  EXPECT_TRUE(result.shares.to == (Sizes{8, 16, 24}));
  Position culprit;
  ASSERT_OK(AddReceived(request, "w", 0, {5, 2, 1}, &result, &culprit));
  EXPECT_TRUE(result.shares.from == (Sizes{40, 16, 8}));
  EXPECT_TRUE(result.received == (Sizes{5, 2, 1}));
  EXPECT_EQ(ToString(result.shape), "[8, 2]");
  // A rank that has joined sends nothing.
  ASSERT_OK(Find(RequestOf(OpKind::kAlltoall, {0, 2}), {}, &result));
  EXPECT_TRUE(result.shares.to == (Sizes{0, 0, 0}));
}

TEST(ResultSizes, RefusesRowsThatNoMemoryHolds) {
  const auto blames = [](const Shape& shape, const Sizes& rows) {
    const Request request = RequestOf(OpKind::kAlltoall, shape, {0, 0, 0});
    ResultSizes result;
    ASSERT_OK(Find(request, {}, &result));
    Position culprit;
    const Status status = AddReceived(request, "w", 0, rows, &result, &culprit);
    EXPECT_TRUE(status.code() == Code::kAborted && Contains(status.message(), "'w'"));
    EXPECT_EQ(culprit, Position(2));
  };
  blames({9}, {1, 2, -1});
  blames({9}, {1, 2, INT64_MAX});
  blames({9}, {1, 2, negotiate::kMaxTensorBytes / 4 + 1});
  blames({9, 0}, {1, 2, negotiate::kMaxTensorBytes + 1});  // rows without bytes
}

TEST(ResultSizes, RefusesATableThatDisagreesWithThisRanksOwnTensor) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  const Request gather = RequestOf(OpKind::kAllgather, {4, 2});
  const Request exchange = RequestOf(OpKind::kAlltoall, {9}, {1, 2, 3});
  const std::vector<std::pair<Request, Sizes>> forged = {
      {gather, {1, 16384, 0}},                  // more than it has: foreign memory would leave
      {gather, {1, 3, 0}},                      // less
      {gather, {1, -4, 0}},                     //
      {gather, {1, 4}},                         // too few
      {gather, {1, 4, 0, 0}},                   // too many
      {gather, {-1, 4, 0}},                     // another rank's
      {gather, {kHuge, 4, 0}},                  // bytes that overflow
      {gather, {kHuge / 8, 4, kHuge}},          // a sum that overflows
      {exchange, {0, 0, 0, 1, 2, 3, 0, 0, 0}},  // it has none
      {RequestOf(OpKind::kReducescatter, {8}), {8}},
      {RequestOf(OpKind::kAllgather, {}), {1, 1, 1}},
      {RequestOf(OpKind::kReducescatter, {}), {}},
      // Nothing here takes no memory, but a row would take more than there is.
      {RequestOf(OpKind::kAllgather, {0, int64_t{1} << 50}), {5, 0, 5}},
  };
  for (const auto& [request, sizes] : forged) {
    ResultSizes result;
    const Status status = Find(request, sizes, &result);
    if (!EXPECT_TRUE(status.code() == Code::kAborted))
      std::printf("  %s\n", ToString(sizes).c_str());
    EXPECT_TRUE(Contains(status.message(), "'w'"));
  }
}

}  // namespace
}  // namespace hvd::test
