// What a node says of urgency, against a model that knows every child's announcements by heart.

#include <algorithm>
#include <map>

#include "check.h"
#include "negotiate/merge/urgency.h"
#include "random.h"

namespace hvd::negotiate {
namespace {

struct Model {
  struct Child {
    std::vector<size_t> announced;  // operations
    uint64_t some = 0;
    uint64_t all = 0;
    bool joined = false;
  };

  explicit Model(size_t count) : children(count) {}

  bool Blocked(const Child& child, size_t operation, uint64_t count) const {
    const auto found = std::find(child.announced.rbegin(), child.announced.rend(), operation);
    if (found == child.announced.rend()) return child.joined;
    return static_cast<uint64_t>(child.announced.rend() - found) <= count;
  }

  // Of the operations that are complete and not decided, and of those before it.
  void Look() {
    for (const auto& [at, operation] : complete) {
      const size_t it = operation;
      bool some_blocked = false;
      bool all_blocked = true;
      for (const Child& child : children) {
        some_blocked |= Blocked(child, it, child.some);
        all_blocked &= Blocked(child, it, child.all);
      }
      if (some_blocked) some = std::max(some, at);
      if (all_blocked) all = std::max(all, at);
    }
  }

  std::vector<Child> children;
  std::map<uint64_t, size_t> complete;
  uint64_t some = 0;
  uint64_t all = 0;
};

void Run(uint64_t seed) {
  Random random(seed);
  const size_t children = 1 + random.Below(6);
  const size_t operations = 1 + random.Below(12);
  Urgency urgency(children);
  Model model(children);
  std::vector<size_t> has(operations, 0);
  std::vector<bool> done(operations, false);
  uint64_t completed = 0;
  for (size_t operation = 0; operation < operations; ++operation) urgency.Open(operation);
  for (int step = 0; step < 150; ++step) {
    const size_t c = random.Below(children);
    Model::Child& child = model.children[c];
    const size_t operation = random.Below(operations);
    const uint64_t what = random.Below(4);
    if (what == 0) {
      child.all = std::max<uint64_t>(child.all, random.Below(child.announced.size() + 1));
      child.some = std::max<uint64_t>(child.some, random.Below(child.announced.size() + 1));
      child.some = std::max(child.some, child.all);
      urgency.Urge(c, child.some, child.all);
    } else if (what == 1 && done[operation]) {
      // Decided: it may be announced again.
      for (auto at = model.complete.begin(); at != model.complete.end();)
        at = at->second == operation ? model.complete.erase(at) : std::next(at);
      for (Model::Child& other : model.children)
        std::replace(other.announced.begin(), other.announced.end(), operation, operations);
      urgency.Release(operation);
      done[operation] = false;
      has[operation] = 0;
    } else if (!urgency.Has(c, operation)) {
      urgency.Announce(c, operation);
      child.announced.push_back(operation);
      if (++has[operation] == children) {
        urgency.Complete(operation);
        done[operation] = true;
        model.complete[++completed] = operation;
      }
    }
    model.Look();
    ASSERT_EQ(urgency.some(), model.some);
    ASSERT_EQ(urgency.all(), model.all);
    ASSERT_EQ(urgency.announced(), completed);
  }
}

TEST(Urgency, IsThatOfTheModel) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) Run(seed);
}

TEST(Urgency, WhoHasJoinedIsBlockedOnEverything) {
  Urgency urgency(2);
  urgency.Open(0);
  urgency.Announce(0, 0);
  urgency.Complete(0);  // the other one has joined
  EXPECT_EQ(urgency.some(), 1u);
  EXPECT_EQ(urgency.all(), 0u);
  urgency.Urge(0, 1, 1);
  EXPECT_EQ(urgency.all(), 1u);
}

}  // namespace
}  // namespace hvd::negotiate
