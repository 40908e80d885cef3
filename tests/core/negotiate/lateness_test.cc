#include "negotiate/lateness.h"

#include "check.h"
#include "desk.h"

namespace hvd::negotiate {
namespace {

constexpr Micros kMilli = 1000;
constexpr Micros kSecond = 1000000;

void Note(Lateness* lateness, int member, Micros since, Micros now) {
  if (std::string* name = lateness->Note(Position(member), since, now)) *name = "w";
}

// Steps of 100 ms for so many seconds, in each of which `member` is late by `late`; gives the last
// report.
const Lateness::Straggler* Run(Lateness* lateness, int member, Micros late, int seconds,
                               Micros start) {
  const Lateness::Straggler* found = nullptr;
  for (int step = 0; step < 10 * seconds; ++step) {
    const Micros ready = start + step * 100 * kMilli + 50 * kMilli;
    Note(lateness, member, ready - late, ready);
    const Lateness::Straggler* taken = lateness->Take(ready);
    if (taken != nullptr) found = taken;
  }
  return found;
}

TEST(Lateness, NamesTheStragglerWithItsMedian) {
  Lateness lateness;
  const Lateness::Straggler* found = Run(&lateness, 2, 40 * kMilli, 11, 0);
  ASSERT_TRUE(found != nullptr);
  EXPECT_EQ(found->member, Position(2));
  EXPECT_EQ(found->median, 40 * kMilli);
  EXPECT_EQ(found->percent, 40);
  const std::string text = Describe(*found, GlobalRank(7));
  for (const char* part :
       {"rank 7 is late: p50 40.0 ms", "at most 40.0 ms on 'w'", "40 % of the time"}) {
    EXPECT_TRUE(text.find(part) != std::string::npos);
  }
}

// A wait that began long before it was noted, as at a checkpoint, began before the window.
TEST(Lateness, NobodyIsWaitedForLongerThanAllOfTheTime) {
  Lateness lateness;
  Note(&lateness, 2, 0, 43 * kSecond);
  for (int wait = 0; wait < 10; ++wait) {
    const Micros end = 43 * kSecond + (wait + 1) * kMilli;
    Note(&lateness, 2, end - kMilli / 2, end);
  }
  const Lateness::Straggler* found = lateness.Take(54 * kSecond);
  ASSERT_TRUE(found != nullptr);
  EXPECT_TRUE(found->percent > 70 && found->percent <= 100);

  Lateness later;
  Note(&later, 1, 0, kSecond);
  later.Take(12 * kSecond);
  Note(&later, 2, 2 * kSecond, 55 * kSecond);
  for (int wait = 0; wait < 10; ++wait) {
    const Micros end = 55 * kSecond + (wait + 1) * kMilli;
    Note(&later, 2, end - kMilli / 2, end);
  }
  found = later.Take(56 * kSecond);
  ASSERT_TRUE(found != nullptr);
  EXPECT_TRUE(found->percent > 90 && found->percent <= 100);
}

TEST(Lateness, SaysSoAtMostOnceAMinute) {
  Lateness lateness;
  int reports = 0;
  for (int window = 0; window < 30; ++window) {
    reports += Run(&lateness, 0, 60 * kMilli, 10, window * 10 * kSecond) != nullptr ? 1 : 0;
  }
  EXPECT_TRUE(reports >= 4 && reports <= 5);
}

TEST(Lateness, JitterPausesAndTurnsAreNoStraggler) {
  Lateness little;
  EXPECT_TRUE(Run(&little, 0, 10 * kMilli, 40, 0) == nullptr);

  Lateness turns;
  for (int step = 0; step < 600; ++step) {
    const Micros ready = (step + 1) * 100 * kMilli;
    Note(&turns, step % 2, ready - 50 * kMilli, ready);
    EXPECT_TRUE(turns.Take(ready) == nullptr);
  }

  Lateness pause;
  Note(&pause, 0, 0, kMilli);
  Note(&pause, 0, kSecond, 21 * kSecond);
  EXPECT_TRUE(pause.Take(22 * kSecond) == nullptr);
}

TEST(Lateness, OverlappingWaitsCountOnce) {
  Lateness lateness;
  for (int step = 0; step < 110; ++step) {
    const Micros ready = (step + 1) * 100 * kMilli;
    for (int tensor = 0; tensor < 50; ++tensor) Note(&lateness, 1, ready - 30 * kMilli, ready);
  }
  const Lateness::Straggler* found = lateness.Take(11 * kSecond);
  ASSERT_TRUE(found != nullptr);
  EXPECT_TRUE(found->percent >= 29 && found->percent <= 31);
}

TEST(Lateness, TheSequencerKnowsWhoAnnouncedLast) {
  Desk desk(3);
  for (int step = 0; step < 110; ++step) {
    const Micros start = step * 100 * kMilli;
    const std::string name = "w" + std::to_string(step);
    ASSERT_OK(desk.Say(0, {Full(Allreduce(name))}, 0, start));
    ASSERT_OK(desk.Say(2, {Full(Allreduce(name))}, 0, start + 10 * kMilli));
    ASSERT_OK(desk.Say(1, {Full(Allreduce(name))}, 0, start + 60 * kMilli));
  }
  const std::string text = desk.root.TakeStraggler(11 * kSecond);
  EXPECT_TRUE(text.find("rank 1 is late: p50 50.0 ms") == 0);
  EXPECT_EQ(desk.root.TakeStraggler(22 * kSecond), "");
}

}  // namespace
}  // namespace hvd::negotiate
