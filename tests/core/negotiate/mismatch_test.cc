#include <functional>

#include "check.h"
#include "desk.h"
#include "negotiate/agreement.h"

namespace hvd::negotiate {
namespace {

// What three ranks get told when rank 1 sends `odd` and the others `usual`; the operation after it
// must work.
std::string Error(const Request& usual, const Request& odd, uint64_t ordinal = 0) {
  Desk desk(3);
  for (int member : {0, 1, 2}) {
    const Status status = desk.Say(member, {Full(member == 1 ? odd : usual, ordinal)});
    if (!status.ok()) return status.message();
  }
  const Decision decision = desk.TakeOne(0);
  for (int member : {0, 1, 2}) {
    if (!desk.Say(member, {Full(Allreduce("next"))}).ok()) return "the next operation was refused";
  }
  if (desk.TakeOne().name != "next") return "the next operation did not run";
  return decision.error;
}

TEST(Mismatch, Shapes) {
  EXPECT_EQ(
      Error(Allreduce("w", {4}), Allreduce("w", {3})),
      "Mismatched ALLREDUCE tensor shapes for tensor 'w': ranks 0, 2 sent [4], rank 1 sent [3]. "
      "Every rank must submit the same shape.");
  EXPECT_EQ(
      Error(Broadcast("w", 0, {}), Broadcast("w", 0, {2, 3})),
      "Mismatched BROADCAST tensor shapes for tensor 'w': ranks 0, 2 sent [], rank 1 sent [2, 3]. "
      "Every rank must submit the same shape.");
  EXPECT_EQ(Error(Allgather("w", {1, 2, 3}), Allgather("w", {7, 2, 4})),
            "Mismatched ALLGATHER tensor shapes for tensor 'w': ranks 0, 2 sent [*, 2, 3], rank 1 "
            "sent [*, 2, 4]. "
            "Only the first dimension may differ between ranks.");
  EXPECT_EQ(
      Error(Allgather("w", {1}), Allgather("w", {2, 1})),
      "Mismatched ALLGATHER tensor shapes for tensor 'w': ranks 0, 2 sent [*], rank 1 sent [*, 1]. "
      "Only the first dimension may differ between ranks.");
}

TEST(Mismatch, ShapesOfAlltoallAndReducescatter) {
  EXPECT_EQ(Error(Alltoall("w", {6, 3}, {1, 2, 3}), Alltoall("w", {9, 4}, {9, 0, 0})),
            "Mismatched ALLTOALL tensor shapes for tensor 'w': ranks 0, 2 sent [*, 3], rank 1 sent "
            "[*, 4]. "
            "Only the first dimension may differ between ranks.");
  EXPECT_EQ(Error(Reducescatter("w", {6}), Reducescatter("w", {5})),
            "Mismatched REDUCESCATTER tensor shapes for tensor 'w': ranks 0, 2 sent [6], rank 1 "
            "sent [5]. "
            "Every rank must submit the same shape.");
}

TEST(Mismatch, ParametersOfReducescatter) {
  Request odd = Reducescatter("w");
  odd.reduce_op = ReduceOp::kMax;
  EXPECT_EQ(Error(Reducescatter("w"), odd),
            "Mismatched reduction operation for tensor 'w': ranks 0, 2 sent Sum, rank 1 sent Max. "
            "Every rank must use the same op.");
  odd = Reducescatter("w");
  odd.prescale = 0.5;
  EXPECT_EQ(
      Error(Reducescatter("w"), odd),
      "Mismatched prescale and/or postscale factors for tensor 'w': ranks 0, 2 sent prescale 1 "
      "postscale 1, rank 1 sent prescale 0.5 postscale 1. Every rank must use the same factors.");
}

TEST(Mismatch, WhatAnAllgatherIsReducedBy) {
  Request odd = Allgather("w", {1});
  odd.reduce_op = ReduceOp::kAverage;
  EXPECT_EQ(Error(Allgather("w", {1}), odd),
            "Mismatched reduction operation for tensor 'w': ranks 0, 2 sent Sum, rank 1 sent "
            "Average. Every rank must use the same op.");
}

TEST(Mismatch, DataTypes) {
  EXPECT_EQ(Error(Allreduce("w"), Allreduce("w", {4}, DataType::kFloat64)),
            "Mismatched data types for tensor 'w': ranks 0, 2 sent float32, rank 1 sent float64. "
            "Every rank must submit the same data type.");
}

TEST(Mismatch, Operations) {
  EXPECT_EQ(
      Error(Allreduce("w"), Broadcast("w", 0)),
      "Mismatched operations for tensor 'w': ranks 0, 2 sent allreduce, rank 1 sent broadcast. "
      "Every rank must submit the same operation under one name.");
  EXPECT_EQ(Error(Allreduce(""), Barrier(), 1),
            "Mismatched operations for unnamed operation 1: ranks 0, 2 sent allreduce, rank 1 sent "
            "barrier. "
            "Give the operations names, or submit them in the same order everywhere. The operation "
            "has no "
            "name, so it "
            "was matched by its order among the unnamed operations of each rank.");
}

TEST(Mismatch, ReductionOperation) {
  Request odd = Allreduce("w");
  odd.reduce_op = ReduceOp::kMax;
  EXPECT_EQ(Error(Allreduce("w"), odd),
            "Mismatched reduction operation for tensor 'w': ranks 0, 2 sent Sum, rank 1 sent Max. "
            "Every rank must use the same op.");
}

TEST(Mismatch, Factors) {
  Request odd = Allreduce("w");
  odd.postscale = 1.0 + 1e-15;
  EXPECT_EQ(
      Error(Allreduce("w"), odd),
      "Mismatched prescale and/or postscale factors for tensor 'w': ranks 0, 2 sent prescale 1 "
      "postscale 1, "
      "rank 1 sent prescale 1 postscale 1.0000000000000011. Every rank must use the same factors.");
}

TEST(Mismatch, Roots) {
  EXPECT_EQ(Error(Broadcast("w", 0), Broadcast("w", 1)),
            "Mismatched BROADCAST root ranks for tensor 'w': ranks 0, 2 sent root rank 0, rank 1 "
            "sent root rank 1. "
            "Every rank must name the same root rank.");
  EXPECT_EQ(Error(Broadcast("w", 3), Broadcast("w", 3)),
            "Root rank 3 of tensor 'w' is not in the process set, which has ranks 0, 1, 2.");
  EXPECT_EQ(Error(Broadcast("w", -1), Broadcast("w", -1)),
            "Root rank -1 of tensor 'w' is not in the process set, which has ranks 0, 1, 2.");
}

TEST(Mismatch, Devices) {
  Request odd = Allreduce("w");
  odd.device = 2;
  EXPECT_EQ(
      Error(Allreduce("w"), odd),
      "Mismatched ALLREDUCE CPU/GPU device selection for tensor 'w': ranks 0, 2 sent a CPU tensor, "
      "rank 1 sent a "
      "GPU tensor. The tensor must be on the CPU on every rank, or on a GPU on every rank.");
  // Every rank has a GPU of another number: no mismatch.
  Desk desk(3);
  for (int member : {0, 1, 2}) {
    odd.device = member;
    ASSERT_OK(desk.Say(member, {Full(odd)}));
  }
  EXPECT_EQ(desk.TakeOne().error, "");
}

TEST(Mismatch, Groups) {
  Request usual = Allreduce("g", {1});
  usual.tensors.push_back({DataType::kInt32, {2, 2}});
  Request shape = usual;
  shape.tensors[1].shape = {4};
  EXPECT_EQ(Error(usual, shape),
            "Mismatched ALLREDUCE tensor shapes for tensor 1 (counted from 0) of group 'g': ranks "
            "0, 2 sent "
            "[2, 2], "
            "rank 1 sent [4]. Every rank must submit the same shape.");
  Request fewer = usual;
  fewer.tensors.pop_back();
  EXPECT_EQ(Error(usual, fewer),
            "Mismatched number of tensors for group 'g': ranks 0, 2 sent 2, rank 1 sent 1. "
            "Every rank must submit the same tensors in a group.");
}

TEST(Mismatch, WhatNobodyCanRun) {
  EXPECT_EQ(Error(Allgather("g", {}), Allgather("g", {})),
            "The allgather of tensor 'g' has a 0-dim tensor, and there is no first dimension to "
            "gather along. "
            "Reshape it to [1].");
  EXPECT_EQ(Error(Alltoall("g", {}, {0, 0, 0}), Alltoall("g", {}, {0, 0, 0})),
            "The alltoall of tensor 'g' has a 0-dim tensor, and there is no first dimension to "
            "split along. "
            "Reshape it to [1].");
  Request group = Reducescatter("g", {3});
  group.tensors.push_back({DataType::kFloat32, {}});
  EXPECT_EQ(Error(group, group),
            "The reducescatter of tensor 1 (counted from 0) of group 'g' has a 0-dim tensor, and "
            "there is no "
            "first dimension to scatter along. Reshape it to [1].");
  Request adasum = Reducescatter("w");
  adasum.reduce_op = ReduceOp::kAdasum;
  EXPECT_EQ(Error(adasum, adasum),
            "The reducescatter of tensor 'w' cannot use Adasum, which combines whole tensors. "
            "Use an allreduce with Adasum, or another op.");
  Request two = Alltoall("g", {3}, {1, 1, 1});
  two.tensors.push_back({DataType::kFloat32, {3}});
  EXPECT_EQ(Error(two, two),
            "The alltoall of group 'g' has 2 tensors, but one set of splits. "
            "Submit one alltoall for each tensor.");
  Request none = Allreduce("w");
  none.tensors.clear();
  EXPECT_EQ(Error(none, none), "The allreduce tensor 'w' has no tensors.");
}

TEST(Mismatch, UnnamedHavePublicNames) {
  EXPECT_TRUE(Error(Allreduce(""), Allreduce("", {5}), 1)
                  .find("for tensor 'allreduce.noname.1': ranks 0, 2") != std::string::npos);
}

TEST(Mismatch, TheNextOneBlamesTheRightRank) {
  Desk desk(3);
  for (int odd : {2, 0, 1}) {
    for (int member : {1, 0, 2}) {
      ASSERT_OK(desk.Say(member, {Full(Allreduce("w", {member == odd ? 9 : 4}))}));
    }
    EXPECT_TRUE(desk.TakeOne(0).error.find("rank " + std::to_string(odd) + " sent [9]") !=
                std::string::npos);
  }
}

TEST(Mismatch, TextIsBoundedWhenEveryRankDiffers) {
  Desk desk(300);
  for (int member = 0; member < 300; ++member) {
    ASSERT_OK(desk.Say(member, {Full(Allreduce(std::string(kMaxNameBytes, 'x'), {member}))}));
  }
  const std::string error = desk.TakeOne().error;
  EXPECT_TRUE(error.find("rank 7 sent [7], and others sent 292 more") != std::string::npos);
  EXPECT_TRUE(error.size() < kMaxErrorBytes);
}

TEST(RankList, Abbreviates) {
  EXPECT_EQ(RankList(Members{3}.ranks()), "rank 3");
  EXPECT_EQ(RankList(Members{0, 1, 5}.ranks()), "ranks 0, 1, 5");
  std::vector<int> many;
  for (int rank = 0; rank < 128; ++rank) many.push_back(rank);
  many.insert(many.end(), {130, 132, 133});
  EXPECT_EQ(RankList(Members(many).ranks()), "ranks 0-127, 130, 132, 133");
  std::vector<int> even;
  for (int rank = 0; rank < 40; rank += 2) even.push_back(rank);
  EXPECT_EQ(RankList(Members(even).ranks()),
            "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 4 more");
}

}  // namespace
}  // namespace hvd::negotiate
