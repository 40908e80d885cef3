#include "runtime/operation/queue.h"

#include <string>
#include <vector>

#include "check.h"

namespace hvd::test {
namespace {

Status Push(Queue* queue, const std::string& name, int32_t priority,
            OpKind kind = OpKind::kAllreduce) {
  Entry entry;
  entry.request.name = name;
  entry.request.kind = kind;
  entry.priority = priority;
  return queue->Push(std::make_shared<Handle>(std::move(entry)));
}

std::string Taken(Queue* queue) {
  std::vector<HandlePtr> handles;
  std::vector<HandlePtr> urged;
  std::string order;
  queue->Take(&handles, &urged);
  for (const HandlePtr& handle : handles) order += handle->name() + " ";
  return order;
}

HandlePtr Named(const std::string& name) {
  Entry entry;
  entry.request.name = name;
  return std::make_shared<Handle>(std::move(entry));
}

TEST(Queue, HandsOutTheHighestPriorityFirst) {
  Queue queue;
  ASSERT_OK(Push(&queue, "a", -1));
  ASSERT_OK(Push(&queue, "b", 3));
  ASSERT_OK(Push(&queue, "c", -1));
  ASSERT_OK(Push(&queue, "d", 0));
  EXPECT_EQ(Taken(&queue), "b d a c ");
}

TEST(Queue, KeepsTheOrderOfUnnamedOperations) {
  Queue queue;
  ASSERT_OK(Push(&queue, "", 1));
  ASSERT_OK(Push(&queue, "", 2));
  ASSERT_OK(Push(&queue, "late", -5));
  ASSERT_OK(Push(&queue, "soon", 5));
  EXPECT_EQ(Taken(&queue), "soon allreduce.noname.1 allreduce.noname.2 late ");
}

TEST(Queue, LetsNothingPassAJoin) {
  Queue queue;
  ASSERT_OK(Push(&queue, "before", -9));
  ASSERT_OK(Push(&queue, "", 0, OpKind::kJoin));
  EXPECT_EQ(Taken(&queue), "before join ");
}

TEST(Queue, NamesAreFreeAgainOnceForgotten) {
  Queue queue;
  const HandlePtr first = Named("a");
  ASSERT_OK(queue.Push(first));
  EXPECT_TRUE(queue.Push(Named("a")).code() == Code::kDuplicate);
  const HandlePtr unnamed = Named("");
  ASSERT_OK(queue.Push(unnamed));
  EXPECT_EQ(unnamed->name(), "allreduce.noname.1");
  EXPECT_TRUE(queue.Find(0, "a") == first);
  EXPECT_TRUE(queue.Find(1, "a") == nullptr);
  EXPECT_EQ(queue.in_flight(), 2u);
  EXPECT_EQ(queue.InFlight().size(), 2u);
  queue.Forget(first.get());
  ASSERT_OK(queue.Push(Named("a")));
}

// A signal handler of Python has raised while it was submitted or waited for: the program may well
// start it again.
TEST(Queue, AnAbandonedOperationHasASuccessorOfItsName) {
  Queue queue;
  const HandlePtr first = Named("a");
  const HandlePtr second = Named("a");
  const HandlePtr third = Named("a");
  ASSERT_OK(queue.Push(first));
  EXPECT_TRUE(queue.Push(second).code() == Code::kDuplicate);
  first->abandoned = true;
  ASSERT_OK(queue.Push(second));
  EXPECT_TRUE(queue.Push(third).code() == Code::kDuplicate);
  second->abandoned = true;
  ASSERT_OK(queue.Push(third));
  EXPECT_TRUE(Push(&queue, "", 0, OpKind::kJoin).code() == Code::kInvalidArgument);
  for (const HandlePtr& handle : {first, second, third}) {
    EXPECT_EQ(queue.in_flight(), 1u);
    EXPECT_TRUE(queue.Find(0, "a") == handle);
    EXPECT_EQ(Taken(&queue), "a ");
    queue.Forget(handle.get());
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.in_flight(), 0u);
  ASSERT_OK(Push(&queue, "", 0, OpKind::kJoin));
}

// Its turn may have come when the driver has not looked yet, and the program joins.
TEST(Queue, ASuccessorIsTakenBeforeAJoinThatFollows) {
  Queue queue;
  const HandlePtr first = Named("a");
  ASSERT_OK(queue.Push(first));
  first->abandoned = true;
  ASSERT_OK(queue.Push(Named("a")));
  EXPECT_EQ(Taken(&queue), "a ");
  queue.Forget(first.get());
  ASSERT_OK(Push(&queue, "", 0, OpKind::kJoin));
  EXPECT_EQ(Taken(&queue), "a join ");
}

// When the generation is lost, successors are forgotten like all others, and none is queued any
// more.
TEST(Queue, KeepsNothingOfWhatItHasDiscarded) {
  Queue queue;
  HandlePtr first = Named("a");
  HandlePtr second = Named("a");
  ASSERT_OK(queue.Push(first));
  first->abandoned = true;
  ASSERT_OK(queue.Push(second));
  queue.Urge(second);
  EXPECT_TRUE(queue.ForgetOldest() == first);
  EXPECT_TRUE(queue.ForgetOldest() == second);
  EXPECT_TRUE(queue.ForgetOldest() == nullptr);
  queue.Discard();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(first.use_count(), 1);
  EXPECT_EQ(second.use_count(), 1);
}

TEST(Queue, AnAbandonedJoinIsTakenUpAgain) {
  Queue queue;
  ASSERT_OK(Push(&queue, "", 0, OpKind::kJoin));
  EXPECT_TRUE(queue.ResumeJoin(0) == nullptr);
  const HandlePtr join = queue.InFlight().front();
  join->abandoned = true;
  EXPECT_TRUE(queue.ResumeJoin(1) == nullptr);
  EXPECT_TRUE(queue.ResumeJoin(0) == join);
  EXPECT_TRUE(queue.ResumeJoin(0) == nullptr);
}

// Before a set is removed: what is counted then is all that there will be.
TEST(Queue, TakesNothingInForASetThatIsClosed) {
  Queue queue;
  const auto push = [&queue](uint32_t set, const std::string& name) {
    Entry entry;
    entry.process_set = set;
    entry.request.name = name;
    return queue.Push(std::make_shared<Handle>(std::move(entry)));
  };
  ASSERT_OK(push(1, "a"));
  ASSERT_OK(push(1, ""));
  ASSERT_OK(push(2, "a"));
  EXPECT_EQ(queue.CloseSet(1), 2u);
  for (const char* name : {"b", ""}) {
    const Status refused = push(1, name);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_EQ(refused.message(), "process set 1 does not exist (any more)");
  }
  ASSERT_OK(push(2, "b"));
  EXPECT_EQ(queue.in_flight(), 4u);
  queue.OpenSet(1);
  ASSERT_OK(push(1, "b"));
  EXPECT_EQ(queue.CloseSet(1), 3u);
  EXPECT_EQ(queue.CloseSet(3), 0u);
}

// A program that adds and removes sets for ever keeps nothing of those that are gone.
TEST(Queue, KeepsNothingOfSetsThatAreRemoved) {
  Queue queue;
  for (uint32_t set = 1; set <= 1000; ++set) {
    Entry entry;
    entry.process_set = set;
    entry.request.name = "a";
    const auto handle = std::make_shared<Handle>(std::move(entry));
    ASSERT_OK(queue.Push(handle));
    queue.DropSet(set);
    EXPECT_TRUE(queue.Find(set, "a") == handle);  // still in flight
    queue.Forget(handle.get());
    queue.DropSet(set);
    EXPECT_TRUE(queue.Find(set, "a") == nullptr);
    EXPECT_EQ(queue.sets(), 0u);
  }
}

}  // namespace
}  // namespace hvd::test
