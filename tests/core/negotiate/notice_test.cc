#include <array>

#include "check.h"
#include "desk.h"

namespace hvd::negotiate {
namespace {

Request Notice(const std::string& name, uint8_t bits) {
  Request request;
  request.name = name;
  request.notice = bits;
  return request;
}

// What three ranks are told, and that the operation of this name works afterwards.
int Told(Desk* desk, const std::array<Announcement, 3>& announcements) {
  for (int member : {0, 1, 2}) {
    if (!desk->Say(member, {announcements[static_cast<size_t>(member)]}).ok()) return -1;
  }
  const Decision decision = desk->TakeOne();
  if (decision.id != kNoId || decision.known || decision.error.empty()) return -2;
  return decision.notice;
}

TEST(Notice, IsInPlaceOfAnyOperation) {
  for (const Request& usual : {Allreduce("w"), Allgather("w", {3}), Broadcast("w", 2)}) {
    Desk desk(3);
    EXPECT_EQ(Told(&desk, {Full(Notice("w", 4)), Full(usual), Full(usual)}), 4 | kNoNotice);
    EXPECT_EQ(Told(&desk, {Full(Notice("w", 4)), Full(Notice("w", 8)), Full(usual)}),
              4 | 8 | kNoNotice);
    EXPECT_EQ(Told(&desk, {Full(Notice("w", 4)), Full(Notice("w", 4)), Full(Notice("w", 8))}),
              4 | 8);
    EXPECT_EQ(Told(&desk, {Full(Notice("w", 2)), Full(Notice("w", 2)), Full(Notice("w", 2))}), 2);
    EXPECT_EQ(Told(&desk, {Full(usual), Full(usual), Full(usual)}), -2);
  }
}

TEST(Notice, IsInPlaceOfWhatHasAnId) {
  Desk desk(3);
  for (int member : {0, 1, 2}) ASSERT_OK(desk.Say(member, {Full(Allreduce("w"))}));
  EXPECT_EQ(desk.TakeOne().id, 0u);
  EXPECT_EQ(Told(&desk, {Cached(0), Full(Notice("w", 6)), Cached(0)}), 6 | kNoNotice);
  for (int member : {0, 1, 2}) ASSERT_OK(desk.Say(member, {Cached(0)}));
  EXPECT_TRUE(desk.TakeOne().known);
}

TEST(Notice, OutweighsADisagreement) {
  Desk desk(3);
  EXPECT_EQ(Told(&desk, {Full(Allreduce("w", {1})), Full(Notice("w", 2)), Full(Allreduce("w"))}),
            2 | kNoNotice);
}

TEST(Notice, OfAnUnnamedOperation) {
  Desk desk(3);
  EXPECT_EQ(Told(&desk, {Full(Allreduce(""), 1), Full(Notice("", 2), 1), Full(Barrier(), 1)}),
            2 | kNoNotice);
}

TEST(Notice, OfSomeWhileOthersHaveJoined) {
  Desk desk(3);
  ASSERT_OK(desk.Join(0));
  ASSERT_OK(desk.Say(1, {Full(Notice("w", 2))}));
  ASSERT_OK(desk.Say(2, {Full(Notice("w", 16))}));
  const Decision decision = desk.TakeOne(0);
  EXPECT_EQ(int{decision.notice}, 2 | 16);
  EXPECT_FALSE(decision.request.has_value());
}

}  // namespace
}  // namespace hvd::negotiate
