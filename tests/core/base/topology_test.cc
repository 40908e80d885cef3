#include "base/topology.h"

#include <algorithm>
#include <random>
#include <set>

#include "check.h"

namespace hvd::test {
namespace {

// Counts over all members, as the definitions say.
struct Reference {
  std::vector<int> hosts;

  bool Together(int a, int b) const { return hosts[a] == hosts[b]; }
  int LocalRank(int member) const {
    int before = 0;
    for (int other = 0; other < member; ++other) before += Together(other, member);
    return before;
  }
  int LocalSize(int member) const {
    return static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[member]));
  }
  // Hosts are ordered by their first members.
  int FirstOf(int member) const {
    return static_cast<int>(std::find(hosts.begin(), hosts.end(), hosts[member]) - hosts.begin());
  }
  int CrossRank(int member) const {
    int before = 0;
    for (int other = 0; other < static_cast<int>(hosts.size()); ++other) {
      before += LocalRank(other) == LocalRank(member) && FirstOf(other) < FirstOf(member);
    }
    return before;
  }
  int CrossSize(int member) const {
    int all = 0;
    for (int other = 0; other < static_cast<int>(hosts.size()); ++other) {
      all += LocalRank(other) == LocalRank(member);
    }
    return all;
  }
};

std::vector<int> AnyHosts(std::mt19937* random, int size) {
  std::vector<int> hosts;
  const int different = 1 + static_cast<int>((*random)() % 6);
  const bool in_runs = (*random)() % 2 == 0;
  for (int i = 0; i < size; ++i) {
    // Numbers with gaps, in any order.
    const int host = in_runs ? i * different / size : static_cast<int>((*random)() % different);
    hosts.push_back((7 * host + 3) % 101);
  }
  return hosts;
}

void ExpectLike(const Reference& reference, const Topology& topology, bool shares) {
  const int size = static_cast<int>(reference.hosts.size());
  ASSERT_EQ(topology.size(), size);
  EXPECT_EQ(topology.hosts(),
            static_cast<int>(std::set<int>(reference.hosts.begin(), reference.hosts.end()).size()));
  for (int member = 0; member < size; ++member) {
    const Position position(member);
    EXPECT_EQ(topology.LocalRank(position), reference.LocalRank(member));
    EXPECT_EQ(topology.LocalSize(position), reference.LocalSize(member));
    EXPECT_EQ(topology.CrossRank(position), reference.CrossRank(member));
    EXPECT_EQ(topology.CrossSize(position), reference.CrossSize(member));
    const std::vector<Position>& locals = topology.OnHost(topology.HostOf(position));
    EXPECT_EQ(locals[static_cast<size_t>(topology.LocalRank(position))], position);
    for (int other = 0; other < size; ++other) {
      EXPECT_EQ(topology.ShareMemory(position, Position(other)),
                shares && reference.Together(member, other));
      EXPECT_EQ(topology.HostOf(position) < topology.HostOf(Position(other)),
                reference.FirstOf(member) < reference.FirstOf(other));
    }
  }
  EXPECT_EQ(topology.AllShareMemory(), shares && topology.hosts() <= 1);
}

TEST(Topology, OfAnyLayoutIsWhatCountingGives) {
  std::mt19937 random(11);
  for (int run = 0; run < 300; ++run) {
    const Reference reference{AnyHosts(&random, 1 + static_cast<int>(random() % 24))};
    const bool shares = random() % 2 == 0;
    ExpectLike(reference, Topology(reference.hosts, shares), shares);
  }
}

TEST(Topology, OfAProcessSetIsThatOfItsMembersAlone) {
  std::mt19937 random(12);
  for (int run = 0; run < 300; ++run) {
    const int size = 1 + static_cast<int>(random() % 24);
    const std::vector<int> hosts = AnyHosts(&random, size);
    std::vector<int> ranks;
    Reference reference;
    for (int rank = 0; rank < size; ++rank) {
      if (random() % 3 == 0) continue;
      ranks.push_back(rank);
      reference.hosts.push_back(hosts[rank]);
    }
    ExpectLike(reference, Topology(hosts, true).Of(Members(ranks)), true);
  }
}

TEST(Topology, OfOneHost) {
  const Topology alone = Topology::OneHost(1, true);
  EXPECT_TRUE(alone.AllShareMemory());
  EXPECT_EQ(alone.CrossSize(Position(0)), 1);
  const Topology links = Topology::OneHost(4, false);
  EXPECT_EQ(links.hosts(), 1);
  EXPECT_EQ(links.LocalSize(Position(3)), 4);
  EXPECT_FALSE(links.AllShareMemory());
  EXPECT_FALSE(links.ShareMemory(Position(0), Position(1)));
}

TEST(Topology, DescribesARankByItsHostWhereThereAreSeveral) {
  const Topology two({7, 3, 7}, true, {"first", "second"});
  EXPECT_EQ(two.Describe(GlobalRank(0)), "rank 0 on first");
  EXPECT_EQ(two.Describe(GlobalRank(1)), "rank 1 on second");
  EXPECT_EQ(two.Describe(GlobalRank(2)), "rank 2 on first");
  EXPECT_TRUE(two.OnOneHost(GlobalRank(0), GlobalRank(2)));
  EXPECT_FALSE(two.OnOneHost(GlobalRank(0), GlobalRank(1)));
  EXPECT_EQ(Topology({0, 1}, true).Describe(GlobalRank(1)), "rank 1");
  EXPECT_EQ(Topology({0, 0}, true, {"only"}).Describe(GlobalRank(1)), "rank 1");
  EXPECT_EQ(Topology().Describe(GlobalRank(1)), "rank 1");
}

// Every member is below exactly one child of each node above it, and a child is told of by its
// own place.
void CheckTree(const Topology& topology, int few) {
  for (Position member(0); member.value() < topology.size(); member = Next(member)) {
    const Topology::TreePlace place = topology.TreePlaceOf(member, few);
    EXPECT_EQ(place.parent.known(), member.value() != 0);
    Positions below;
    for (const auto& child : place.children) {
      EXPECT_TRUE(child.below.Has(child.at));
      EXPECT_TRUE(below.Without(child.below) == below);
      below.Add(child.below);
      if (child.at == member) {
        EXPECT_EQ(child.below.size(), 1);
        continue;
      }
      const Topology::TreePlace its = topology.TreePlaceOf(child.at, few);
      EXPECT_EQ(its.parent, member);
      EXPECT_EQ(its.children.empty(), child.below.size() == 1);
    }
    if (member.value() == 0) EXPECT_TRUE(below == Positions::Range(0, topology.size()));
    if (!place.children.empty()) EXPECT_EQ(place.children[0].at, member);
  }
}

TEST(Topology, TreeOfHosts) {
  const Topology topology({7, 7, 4, 4, 4, 9, 7}, true);
  CheckTree(topology, 1);
  const Topology::TreePlace root = topology.TreePlaceOf(Position(0), 1);
  ASSERT_EQ(root.children.size(), size_t{5});  // 0, 1 and 6 here, the leaders 2 and 5
  EXPECT_EQ(root.children[2].at, Position(6));
  EXPECT_TRUE(root.children[3].below == Positions::Range(2, 3));
  EXPECT_EQ(root.children[4].at, Position(5));
  EXPECT_EQ(topology.TreePlaceOf(Position(4)).parent, Position(2));
  EXPECT_TRUE(topology.TreePlaceOf(Position(5)).children.empty());
}

TEST(Topology, TreeOfEachShape) {
  for (int size = 1; size < 40; ++size) {
    for (const int hosts : {1, 2, 3, 7}) {
      std::vector<int> mixed;
      std::vector<int> blocks;
      for (int m = 0; m < size; ++m) {
        mixed.push_back(m * m % hosts);
        blocks.push_back(m * hosts / size);
      }
      for (const bool shares : {false, true}) {
        for (const int few : {1, 4, Topology::kFewHosts}) {
          CheckTree(Topology(mixed, shares), few);
          CheckTree(Topology(blocks, shares), few);
        }
      }
    }
  }
}

TEST(Topology, FewHostsAreAStar) {
  const Topology topology({0, 0, 1, 1, 2, 2, 3, 3}, true);
  EXPECT_EQ(topology.TreePlaceOf(Position(6), 1).parent, Position(4));
  EXPECT_EQ(topology.TreePlaceOf(Position(6)).parent, Position(0));
  EXPECT_EQ(topology.TreePlaceOf(Position(0)).children.size(), size_t{5});
  EXPECT_EQ(Topology::OneHost(9, false).TreePlaceOf(Position(7)).parent, Position(6));
  EXPECT_EQ(Topology::OneHost(8, false).TreePlaceOf(Position(7)).parent, Position(0));
}

// The most children are those of the root: its own ranks, and the logarithm of the hosts.
TEST(Topology, TreeOfManyRanksIsFlatAndNarrow) {
  std::vector<int> hosts;
  for (int m = 0; m < 10000; ++m) hosts.push_back(m / 8);
  const Topology topology(hosts, true);
  EXPECT_EQ(topology.TreePlaceOf(Position(0)).children.size(), size_t{8 + 11});
  EXPECT_EQ(Topology::OneHost(10000, false).TreePlaceOf(Position(0)).children.size(),
            size_t{1 + 14});
}

}  // namespace
}  // namespace hvd::test
