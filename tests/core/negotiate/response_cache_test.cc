#include "negotiate/response_cache.h"

#include "check.h"
#include "requests.h"

namespace hvd::negotiate {
namespace {

TEST(ResponseCache, FindsWhatItLearned) {
  ResponseCache cache(5000);
  EXPECT_EQ(cache.Find(Allreduce("w")), kNoId);
  for (uint32_t id = 0; id < 5000; ++id) {
    ASSERT_OK(cache.Learn(id, Allreduce("layer." + std::to_string(id / 2), {id % 2 + 1, 7})));
  }
  for (uint32_t id = 0; id < 5000; ++id) {
    ASSERT_EQ(cache.Find(Allreduce("layer." + std::to_string(id / 2), {id % 2 + 1, 7})), id);
  }
  EXPECT_EQ(cache.At(7).name, "layer.3");
  EXPECT_EQ(cache.size(), size_t{5000});
  EXPECT_EQ(cache.Find(Allreduce("layer.2500", {1, 7})), kNoId);
}

TEST(ResponseCache, EveryAgreedFieldMatters) {
  ResponseCache cache(100);
  ASSERT_OK(cache.Learn(0, Allreduce("w", {2, 3})));
  ASSERT_OK(cache.Learn(1, Broadcast("w", 1, {2, 3})));
  std::vector<Request> others(10, Allreduce("w", {2, 3}));
  others[0].name = "v";
  others[1].kind = OpKind::kAllgather;
  others[2].reduce_op = ReduceOp::kMax;
  others[3].prescale = 2;
  others[4].postscale = 0.5;
  others[5].device = 0;
  others[6].tensors[0].dtype = DataType::kFloat64;
  others[7].tensors[0].shape = {3, 2};
  others[8].tensors.push_back(others[8].tensors[0]);
  others[9].root = GlobalRank(1);
  for (const Request& other : others) EXPECT_EQ(cache.Find(other), kNoId);
  EXPECT_EQ(cache.Find(Broadcast("w", 2, {2, 3})), kNoId);
  EXPECT_EQ(cache.Find(Broadcast("w", 1, {2, 3})), 1u);
}

TEST(ResponseCache, WhatMayDifferDoesNot) {
  ResponseCache cache(100);
  ASSERT_OK(cache.Learn(0, Allgather("g", {2, 3})));
  EXPECT_EQ(cache.Find(Allgather("g", {9, 3})), 0u);
  EXPECT_EQ(cache.Find(Allgather("g", {2, 4})), kNoId);
  EXPECT_EQ(cache.Find(Allgather("g", {2})), kNoId);
  EXPECT_EQ(cache.Find(Allgather("g", {})), kNoId);
  Request gpu = Allreduce("w");
  gpu.device = 0;
  ASSERT_OK(cache.Learn(1, gpu));
  gpu.device = 3;
  EXPECT_EQ(cache.Find(gpu), 1u);
  Request gather = Allgather("g", {2, 3});
  gather.root = GlobalRank(5);
  EXPECT_EQ(cache.Find(gather), 0u);
}

TEST(ResponseCache, UnnamedShareAnIdPerDescription) {
  ResponseCache cache(100);
  ASSERT_OK(cache.Learn(0, Allreduce("", {3})));
  ASSERT_OK(cache.Learn(1, Barrier()));
  EXPECT_EQ(cache.Find(Allreduce("", {3})), 0u);
  EXPECT_EQ(cache.Find(Barrier()), 1u);
  EXPECT_EQ(cache.Find(Allreduce("", {4})), kNoId);
}

TEST(ResponseCache, RefusesAStreamThatDoesNotFit) {
  ResponseCache cache(2);
  ASSERT_OK(cache.Learn(0, Allreduce("a")));
  ASSERT_OK(cache.Learn(0, Allreduce("a")));
  EXPECT_FALSE(cache.Learn(0, Allreduce("b")).ok());
  EXPECT_FALSE(cache.Learn(1, Allreduce("a")).ok());
  EXPECT_FALSE(cache.Learn(2, Allreduce("c")).ok());
  EXPECT_FALSE(cache.Learn(kNoId, Allreduce("c")).ok());
  ASSERT_OK(cache.Learn(1, Allreduce("b")));
  EXPECT_FALSE(cache.Learn(2, Allreduce("c")).ok());
  EXPECT_EQ(cache.Find(Allreduce("b")), 1u);
}

TEST(ResponseCache, HasABoundWhateverIsAskedFor) {
  for (const size_t asked : {ResponseCache::kMostIds, ResponseCache::kMostIds + 1, ~size_t{0}}) {
    EXPECT_EQ(ResponseCache(asked).capacity(), ResponseCache::kMostIds);
  }
}

}  // namespace
}  // namespace hvd::negotiate
