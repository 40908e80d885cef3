#include <algorithm>

#include "check.h"
#include "desk.h"
#include "negotiate/sequencer.h"

namespace hvd::negotiate {
namespace {

constexpr Micros kSecond = 1000000;

TEST(Stall, NothingOldNothingSaid) {
  Desk desk(2);
  EXPECT_EQ(StallReport(desk.root.Pending(100 * kSecond), 100 * kSecond, 10 * kSecond), "");
  ASSERT_OK(desk.Say(0, {Full(Allreduce("w"))}, 0, 95 * kSecond));
  EXPECT_EQ(StallReport(desk.root.Pending(100 * kSecond), 100 * kSecond, 10 * kSecond), "");
}

TEST(Stall, NamesTheAbsentAndWhatTheyWaitFor) {
  Desk desk(3);
  for (int member : {0, 1}) ASSERT_OK(desk.Say(member, {Full(Allreduce("gradient"))}, 0, kSecond));
  ASSERT_OK(desk.Say(2, {Full(Barrier(), 1)}, 0, 20 * kSecond));
  EXPECT_EQ(StallReport(desk.root.Pending(21 * kSecond), 21 * kSecond, 10 * kSecond),
            "1 operation has waited for at least 10 s because not all ranks have submitted it:\n"
            "  allreduce 'gradient', 20 s: submitted by ranks 0, 1, not by rank 2.\n"
            "    rank 2 waits for barrier 'barrier.noname.1'.");
  EXPECT_EQ(StallReminder(desk.root.Pending(31 * kSecond), 31 * kSecond, 10 * kSecond),
            "2 operations still wait, as reported before: allreduce 'gradient', 30 s: submitted by "
            "ranks 0, 1, not by rank 2.");
  EXPECT_EQ(StallReminder(desk.root.Pending(5 * kSecond), 5 * kSecond, 10 * kSecond), "");
}

TEST(Stall, AJoinWaitsForWhoDoesNothing) {
  Desk desk(3);
  ASSERT_OK(desk.Join(0, {}, kSecond));
  ASSERT_OK(desk.Join(2, {}, 2 * kSecond));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("gradient"))}, 0, 30 * kSecond));
  EXPECT_EQ(desk.Take(30 * kSecond + 10'000).size(), size_t{1});
  EXPECT_EQ(StallReport(desk.root.Pending(35 * kSecond), 35 * kSecond, 10 * kSecond), "");
  EXPECT_EQ(StallReport(desk.root.Pending(41 * kSecond), 41 * kSecond, 10 * kSecond),
            "1 operation has waited for at least 10 s because not all ranks have submitted it:\n"
            "  join, 10 s: submitted by ranks 0, 2, not by rank 1.\n"
            "    rank 1 waits for no operation.");
}

TEST(Stall, SuspectsAnotherNameForTheSameTensor) {
  Desk desk(2);
  ASSERT_OK(desk.Say(0, {Full(Allreduce("other")), Full(Allreduce("layer1.weight"))}));
  ASSERT_OK(desk.Say(1, {Full(Allreduce("unlike")), Full(Allreduce("layer1.wieght"))}));
  const std::string report =
      StallReport(desk.root.Pending(11 * kSecond), 11 * kSecond, 10 * kSecond);
  EXPECT_TRUE(
      report.find(
          "'layer1.weight', 11 s: submitted by rank 0, not by rank 1.\n    rank 1 submitted "
          "'layer1.wieght' instead, whose name is the most like it.") != std::string::npos);
  EXPECT_TRUE(
      report.find("'other', 11 s: submitted by rank 0, not by rank 1.\n    rank 1 waits for") !=
      std::string::npos);
}

TEST(Stall, AtMostTwelveLines) {
  Desk desk(40);
  for (int member = 0; member < 39; ++member) {
    for (int i = 0; i < 20; ++i)
      ASSERT_OK(desk.Say(member, {Full(Allreduce("tensor of layer " + std::to_string(i * 7919)))}));
    ASSERT_OK(
        desk.Say(member, {Full(Allreduce(std::string(30, static_cast<char>('A' + member))))}));
  }
  const std::string report =
      StallReport(desk.root.Pending(11 * kSecond), 11 * kSecond, 10 * kSecond);
  EXPECT_TRUE(std::count(report.begin(), report.end(), '\n') < 12);
  EXPECT_TRUE(report.find("59 operations have waited") == 0);
  EXPECT_TRUE(report.find("... and 55 more") != std::string::npos);
  EXPECT_TRUE(report.find("All of them lack rank 39.") != std::string::npos);
}

}  // namespace
}  // namespace hvd::negotiate
