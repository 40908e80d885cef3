#include "runtime/engine/set_registry.h"

#include "check.h"

namespace hvd::test {
namespace {

TEST(SetRegistry, HoldsABoundedNumberOfSetsAndGivesIdsOnce) {
  SetRegistry sets(GlobalRank(0));
  uint32_t id = 0;
  for (uint32_t i = 0; i < SetRegistry::kMostSets; ++i) {
    ASSERT_OK(sets.Add(Members{0}, &id));
    ASSERT_EQ(id, i);
  }
  for (int times = 0; times < 3; ++times) {
    const Status status = sets.Add(Members{0}, &id);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_TRUE(status.message().find("remove some") != std::string::npos);
  }
  EXPECT_EQ(sets.Included().size(), SetRegistry::kMostSets);
  sets.Remove(17);
  ASSERT_OK(sets.Add({0, 1}, &id));
  EXPECT_EQ(id, SetRegistry::kMostSets);
  EXPECT_TRUE(sets.Has(id, GlobalRank(1)) && !sets.Has(17, GlobalRank(0)));
}

// The ids of different ranks differ, and those of one follow each other.
TEST(SetRegistry, NumbersSetsOfTheirMembersByRank) {
  SetRegistry first(GlobalRank(0));
  SetRegistry last(GlobalRank(2));
  uint32_t id = 0;
  uint32_t before = 0;
  ASSERT_OK(first.Number(3, &id));
  EXPECT_EQ(id, SetRegistry::kFirstOwn);
  ASSERT_OK(last.Number(3, &before));
  ASSERT_OK(last.Number(3, &id));
  EXPECT_EQ(id, before + 1);
  EXPECT_TRUE(before > SetRegistry::kFirstOwn + (uint32_t{1} << 30));
  EXPECT_TRUE(id < ~uint32_t{0} - SetRegistry::kMostSets);
  EXPECT_TRUE(SetRegistry::MayHaveGiven(GlobalRank(2), 3, id));
  EXPECT_FALSE(SetRegistry::MayHaveGiven(GlobalRank(1), 3, id));
  EXPECT_TRUE(SetRegistry::MayHaveGiven(GlobalRank(1), 3, before - 1));
  EXPECT_FALSE(SetRegistry::MayHaveGiven(GlobalRank(2), 3, before - 1));
  for (const uint32_t other : {uint32_t{0}, SetRegistry::kFirstOwn - 1, ~uint32_t{0}}) {
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_FALSE(SetRegistry::MayHaveGiven(GlobalRank(rank), 3, other));
  }
}

TEST(SetRegistry, ClosesASetOnce) {
  SetRegistry sets(GlobalRank(0));
  EXPECT_FALSE(sets.Close(SetRegistry::kFirstOwn));
  ASSERT_OK(sets.AddAs(SetRegistry::kFirstOwn, Members{0}));
  EXPECT_TRUE(sets.Close(SetRegistry::kFirstOwn));
  EXPECT_FALSE(sets.Close(SetRegistry::kFirstOwn));
  EXPECT_TRUE(sets.Included().empty());
}

}  // namespace
}  // namespace hvd::test
