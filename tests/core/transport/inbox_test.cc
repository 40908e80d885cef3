// What an Inbox keeps, and the bounds of it.

#include "transport/inbox.h"

#include <numeric>
#include <random>

#include "check.h"
#include "transport/tcp/transport.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sets go in any order; some stay.
TEST(Inbox, ForgottenSetsTakeSpaceByTheGapsBetweenThem) {
  constexpr uint32_t kSets = 5000;
  const std::vector<uint32_t> alive{0, 17, 18, 900, kSets - 1};
  std::vector<uint32_t> ids(kSets);
  std::iota(ids.begin(), ids.end(), 0u);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(5));
  const auto lives = [&](uint32_t id) {
    return std::find(alive.begin(), alive.end(), id) != alive.end();
  };
  Inbox inbox;
  for (const uint32_t id : ids) {
    if (!lives(id)) inbox.Forget(id);
    if (!lives(id)) inbox.Forget(id);
  }
  EXPECT_TRUE(inbox.forgotten_ranges() <= alive.size() + 1);
  for (uint32_t id = 0; id <= kSets; ++id)
    EXPECT_EQ(inbox.Forgotten({id, 1, 0}), id < kSets && !lives(id));
}

TEST(Inbox, ParkedFramesHaveABound) {
  Inbox inbox({3, 1000});
  for (uint32_t i = 0; i < 3; ++i) ASSERT_OK(inbox.Park({5, 1, i}, {}));
  const Status refused = inbox.Park({6, 1, 3}, {});
  EXPECT_EQ(refused.code(), Code::kAborted);
  EXPECT_TRUE(Contains(refused.message(), "4 frames") &&
              Contains(refused.message(), "process set 6"));
  inbox.Forget(5);
  for (uint32_t i = 0; i < 3; ++i) ASSERT_OK(inbox.Park({6, 1, i}, {}));
  Transfer transfer;
  ASSERT_OK(inbox.Post({{6, 1, 1}, nullptr, 0, &transfer}));
  EXPECT_TRUE(transfer.done);
  ASSERT_OK(inbox.Park({6, 1, 9}, {}));
}

TEST(Inbox, ParkedBytesHaveABound) {
  Inbox inbox({100, 1000});
  ASSERT_OK(inbox.Park({5, 1, 0}, std::vector<std::byte>(600)));
  ASSERT_OK(inbox.Park({6, 1, 0}, std::vector<std::byte>(400)));
  ASSERT_OK(inbox.Park({6, 1, 1}, {}));
  EXPECT_TRUE(Contains(inbox.Park({6, 1, 2}, std::vector<std::byte>(1)).message(), "1001 bytes"));
  inbox.Forget(5);
  ASSERT_OK(inbox.Park({6, 1, 2}, std::vector<std::byte>(600)));
  std::vector<std::byte> buffer(600);
  Transfer transfer;
  ASSERT_OK(inbox.Post({{6, 1, 2}, buffer.data(), buffer.size(), &transfer}));
  ASSERT_OK(inbox.Park({6, 1, 3}, std::vector<std::byte>(600)));
  EXPECT_FALSE(inbox.Park({6, 1, 4}, std::vector<std::byte>(1)).ok());
}

// A peer that sends without end what nobody waits for is refused by its rank.
TEST(Inbox, AFloodNamesItsSender) {
  constexpr uint32_t kMost = 1 << 16;
  const auto links = Mesh(2, UnixPair);
  std::unique_ptr<tcp::TcpTransport> ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_OK(tcp::TcpTransport::Make({1, GlobalRank(rank), 2, tcp::Integrity::kChecksum},
                                      links[rank], &ranks[rank]));
  }
  Transfer awaited;
  std::byte byte;
  ranks[0]->Recv(GlobalRank(1), {2, 1, 0}, &byte, 1, &awaited);
  std::vector<Transfer> sent(kMost + 1);
  for (uint32_t i = 0; i <= kMost; ++i)
    ranks[1]->Send(GlobalRank(0), {7, 1, i}, nullptr, 0, &sent[i]);
  Status status;
  for (bool sends = true, receives = true; status.ok() && (sends || receives);) {
    ASSERT_OK(ranks[1]->Progress(&sends));
    status = ranks[0]->Progress(&receives);
  }
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_EQ(ranks[0]->lost_peer(), GlobalRank(1));
  EXPECT_TRUE(Contains(status.message(), "from rank 1: it has sent 65537 frames"));
  EXPECT_TRUE(Contains(status.message(), "process set 7"));
}

}  // namespace
}  // namespace hvd::test
