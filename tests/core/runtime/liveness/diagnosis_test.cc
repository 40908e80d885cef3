#include "runtime/liveness/diagnosis.h"

#include "check.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

constexpr int64_t kHearOutUs = 1000000;
constexpr GlobalRank kOwn(1);

// Of rank 1 in a job of 4, which has no watch link to anybody.
struct Known {
  Peers peers;
  Departures departures{4};
  Topology job{{0, 0, 1, 1}, true, {"red", "blue"}};
  std::string stuck;  // what this rank waits for, whoever has left
  Diagnosis diagnosis{kOwn, &job, &peers, &departures,
                      [this](const Departure&, bool) { return stuck; }};
};

Suspicion Of(GlobalRank culprit, CauseKind kind, bool broken, int64_t age_us = 0) {
  return {About(kind, culprit, "rank 1 saw it end"), NowMicros() - age_us, broken};
}

TEST(Diagnosis, ASuspicionWaitsUntilTheWatchLinksAreHeardOut) {
  Known known;
  const auto [near, far] = UnixPair();
  const Descriptor other(far);
  const Link link{near, GlobalRank(2), LinkRole::kWatch, {}, {}};
  known.peers.push_back(
      std::make_unique<WatchedPeer>(link, Descriptor(near), known.job.Describe(link.peer), 0));
  EXPECT_FALSE(
      known.diagnosis.Settle(Of(GlobalRank(2), CauseKind::kLink, false), kHearOutUs).settled);
  const auto old = known.diagnosis.Settle(
      Of(GlobalRank(2), CauseKind::kLink, false, 2 * kHearOutUs), kHearOutUs);
  ASSERT_TRUE(old.settled && old.cause);
  EXPECT_TRUE(old.cause->culprit == kOwn && old.cause->other == GlobalRank(2));
}

TEST(Diagnosis, OfARankThatIsNotWatchedNewsTakeLonger) {
  const Known known;
  const auto at = [&](bool broken, int64_t age_us, int64_t hear_out_us) {
    return known.diagnosis.Settle(Of(GlobalRank(2), CauseKind::kLink, broken, age_us), hear_out_us);
  };
  EXPECT_FALSE(at(false, 2 * kHearOutUs, kHearOutUs).settled);
  EXPECT_FALSE(at(true, 2 * kHearOutUs, kHearOutUs).settled);
  const auto old = at(false, 10 * kHearOutUs, kHearOutUs);
  ASSERT_TRUE(old.settled && old.cause);
  EXPECT_TRUE(old.cause->culprit == kOwn && old.cause->other == GlobalRank(2));
  EXPECT_TRUE(old.cause->reason.str().find("rank 2 on blue broke although both are alive") !=
              std::string::npos);
  // Who leaves itself cannot hear whether that one has left too.
  const auto leaving = at(false, 0, 0);
  EXPECT_TRUE(leaving.settled && !leaving.cause);
  EXPECT_TRUE(at(true, 0, 0).cause);
}

TEST(Diagnosis, OfItselfARankKnowsBest) {
  const Known known;
  const auto own = known.diagnosis.Settle(Of(kOwn, CauseKind::kFault, true), kHearOutUs);
  EXPECT_TRUE(own.settled && own.cause && own.cause->kind == CauseKind::kFault);
}

TEST(Diagnosis, WhoHasSaidGoodbyeMayCloseItsLinks) {
  Known known;
  known.departures.Add({GlobalRank(3), 1, false});
  const auto closed =
      known.diagnosis.Settle(Of(GlobalRank(3), CauseKind::kLink, false), kHearOutUs);
  EXPECT_TRUE(closed.settled && !closed.cause);
  // Unless this rank has stopped for want of it.
  const auto needed = known.diagnosis.Settle(Of(GlobalRank(3), CauseKind::kLink, true), kHearOutUs);
  ASSERT_TRUE(needed.settled && needed.cause);
  EXPECT_TRUE(needed.cause->kind == CauseKind::kLeft && needed.cause->culprit == GlobalRank(3));
}

TEST(Diagnosis, TheHostOfARankIsNamed) {
  Known known;
  const auto [near, far] = UnixPair();
  const WatchedPeer here(Link(), Descriptor(near), known.job.Describe(GlobalRank(0)), 0);
  EXPECT_EQ(here.Describe(), "rank 0 on red");
  const Link link{-1, GlobalRank(3), LinkRole::kWatch, {}, {}};
  WatchedPeer there(link, Descriptor(far), known.job.Describe(link.peer), 0);
  there.pid = 4711;
  const std::string silence = there.Describe() + " has not responded for 6.0 s";
  const std::string text = known.diagnosis.OfSilence(there, silence).reason.str();
  EXPECT_TRUE(text.find("rank 3 on blue (pid 4711) has not responded") == 0);
  EXPECT_TRUE(text.find("whether that host runs") != std::string::npos);
  there.owed_us = 0;  // as its connections show
  EXPECT_TRUE(known.diagnosis.OfSilence(there, silence).reason.str().find("Its host answers") !=
              std::string::npos);
  known.departures.Add({GlobalRank(3), 1, false});
  known.stuck = "it is missed.";
  EXPECT_TRUE(known.diagnosis.OfDepartures()->reason.str().find("rank 3 on blue") == 0);
}

// Both ends of a broken link say so as it is seen, also one whose peer hears nothing.
TEST(Diagnosis, ALinkThatCarriesNothingIsNamedWithBothEnds) {
  const Known known;
  LinkSign sign;
  sign.peer = GlobalRank(2);
  sign.owed_us = 7000000;
  const Cause lost = known.diagnosis.OfSilentLink(sign, false);
  EXPECT_TRUE(lost.kind == CauseKind::kLink && lost.link == LinkRole::kData);
  EXPECT_TRUE(lost.culprit == kOwn && lost.other == GlobalRank(2));
  EXPECT_TRUE(lost.reason.str().find("rank 2 on blue carries nothing: rank 1 has waited 7.0 s for "
                                     "blue to acknowledge") != std::string::npos);
  EXPECT_TRUE(lost.reason.str().find("MTU") == std::string::npos);
  EXPECT_TRUE(known.diagnosis.OfSilentLink(sign, true).reason.str().find("MTU") !=
              std::string::npos);
}

TEST(Diagnosis, AConnectionThatEndsAfterNothingWasAcknowledgedLeadsOneWay) {
  Known known;
  const auto [near, far] = UnixPair();
  const Descriptor other(far);
  const Link link{near, GlobalRank(2), LinkRole::kWatch, {}, {}};
  known.peers.push_back(
      std::make_unique<WatchedPeer>(link, Descriptor(near), known.job.Describe(link.peer), 0));
  EXPECT_TRUE(known.diagnosis.OfEnd(*known.peers[0]).kind == CauseKind::kDied);
  known.peers[0]->owed_us = 3000000;
  EXPECT_TRUE(known.diagnosis.OfEnd(*known.peers[0]).kind == CauseKind::kLink);
  const auto verdict =
      known.diagnosis.Settle(Of(GlobalRank(2), CauseKind::kLink, true, 2 * kHearOutUs), kHearOutUs);
  ASSERT_TRUE(verdict.cause);
  EXPECT_TRUE(verdict.cause->reason.str().find("loses what goes from red to blue") !=
              std::string::npos);
}

TEST(Diagnosis, ADepartureIsACauseOnceSomethingWaitsForIt) {
  Known known;
  known.departures.Add({GlobalRank(0), 1, false});
  EXPECT_FALSE(known.diagnosis.OfDepartures());
  known.stuck = "rank 1 waits for 'x'.";
  const auto cause = known.diagnosis.OfDepartures();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->culprit, GlobalRank(0));
  EXPECT_TRUE(cause->reason.str().find("rank 1 waits for 'x'.") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test
