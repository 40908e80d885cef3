#include "base/positions.h"

#include <random>
#include <set>

#include "check.h"

namespace hvd::test {
namespace {

std::set<int> Numbers(const Positions& positions) {
  std::set<int> numbers;
  for (const Positions::Run& run : positions.runs()) {
    for (int i = run.first; i < run.end(); ++i) numbers.insert(i);
  }
  return numbers;
}

// Runs that touch are one, and each knows how many come before it.
bool Sound(const Positions& positions) {
  int before = 0;
  int end = -1;
  for (const Positions::Run& run : positions.runs()) {
    if (run.count < 1 || run.first <= end || run.before != before) return false;
    before += run.count;
    end = run.end();
  }
  return positions.size() == before && positions.empty() == (before == 0);
}

TEST(Positions, AreASet) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    Positions positions[2];
    std::set<int> expected[2];
    for (int which : {0, 1}) {
      for (int runs = static_cast<int>(random() % 6); runs > 0; --runs) {
        const int first = static_cast<int>(random() % 40);
        const int count = static_cast<int>(random() % 6);
        positions[which].Add(Positions::Range(first, count));
        for (int i = 0; i < count; ++i) expected[which].insert(first + i);
      }
      ASSERT_TRUE(Sound(positions[which]));
      ASSERT_TRUE(Numbers(positions[which]) == expected[which]);
    }
    std::set<int> rest = expected[0];
    for (const int number : expected[1]) rest.erase(number);
    const Positions without = positions[0].Without(positions[1]);
    ASSERT_TRUE(Sound(without) && Numbers(without) == rest);
    EXPECT_EQ(positions[1].Includes(positions[0]), rest.empty());
    Positions both = positions[0];
    both.Add(positions[1]);
    expected[0].insert(expected[1].begin(), expected[1].end());
    ASSERT_TRUE(Sound(both) && Numbers(both) == expected[0]);
    int place = 0;
    for (int number = 0; number < 50; ++number) {
      const bool has = expected[0].count(number) > 0;
      EXPECT_EQ(both.Has(Position(number)), has);
      EXPECT_EQ(both.PlaceOf(Position(number)), has ? place++ : -1);
    }
  }
}

TEST(Positions, AreRanksOfASet) {
  const Members members{3, 5, 8, 9};
  EXPECT_TRUE((Positions{0, 2, 3}).RanksIn(members) == (Members{3, 8, 9}).ranks());
  EXPECT_TRUE((Positions{2, 1}) == Positions::Range(1, 2));
  EXPECT_FALSE((Positions{2, 1}) == Positions::Range(1, 3));
}

}  // namespace
}  // namespace hvd::test
