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

}  // namespace
}  // namespace hvd::test
