#include "negotiate/message.h"

#include <algorithm>
#include <limits>

#include "check.h"
#include "encoded.h"
#include "random.h"
#include "requests.h"

namespace hvd::negotiate {
namespace {

// Numbers of every length in varints, small ones and the largest more often.
uint64_t RandomNumber(Random* random, uint64_t max) {
  if (random->OneIn(8)) return max;
  return std::min(max, random->Next() >> random->Below(64));
}

Shape RandomShape(Random* random, size_t max_dims) {
  Shape shape(random->Below(max_dims + 1));
  for (int64_t& dim : shape) {
    dim = static_cast<int64_t>(RandomNumber(random, std::numeric_limits<int64_t>::max()));
  }
  return shape;
}

std::string RandomText(Random* random, size_t max) {
  std::string text(random->OneIn(10) ? max : random->Below(std::min<size_t>(max, 40) + 1), 0);
  for (char& c : text) c = static_cast<char>(random->Next());
  return text;
}

double RandomFactor(Random* random) {
  if (random->OneIn(2)) return 1.0;
  if (random->OneIn(8)) return -std::numeric_limits<double>::infinity();
  return static_cast<double>(random->Next()) / 1e9 - 1e8;
}

Request RandomRequest(Random* random) {
  Request request;
  request.kind = static_cast<OpKind>(random->Below(6));
  request.reduce_op = static_cast<ReduceOp>(random->Below(6));
  request.prescale = RandomFactor(random);
  request.postscale = RandomFactor(random);
  request.root = GlobalRank(random->OneIn(2) ? 0 : static_cast<int32_t>(random->Next()));
  request.device = random->OneIn(2) ? -1 : static_cast<int32_t>(random->Next() >> 33);
  if (random->OneIn(4)) request.device = kStagedDevice;
  request.name = RandomText(random, kMaxNameBytes);
  if (random->OneIn(4)) request.notice = static_cast<uint8_t>(random->Next());
  request.tensors.resize(random->Below(5));
  for (TensorMeta& tensor : request.tensors) {
    tensor.dtype = static_cast<DataType>(random->Below(kDataTypes));
    tensor.shape = RandomShape(random, kMaxDims);
  }
  return request;
}

constexpr uint64_t kMost = (uint64_t{1} << 31) - 2;  // one behind the last position

Position RandomPosition(Random* random) {
  return Position(static_cast<int>(RandomNumber(random, kMost - 1)));
}

Positions RandomPositions(Random* random) {
  Positions positions;
  for (uint64_t runs = 1 + random->Below(4); runs > 0; --runs) {
    const int first = RandomPosition(random).value();
    const uint64_t most = kMost - static_cast<uint64_t>(first);
    positions.Add(Positions::Range(first, static_cast<int>(1 + RandomNumber(random, most - 1))));
  }
  return positions;
}

void Merge(Random* random, Announcement* announcement) {
  if (random->OneIn(2)) {
    announcement->last = RandomPosition(random);
    announcement->waited = static_cast<Micros>(RandomNumber(random, (uint64_t{1} << 63) - 1));
  }
  if (random->OneIn(2)) return;
  announcement->id = kNoId;
  announcement->request = {};
  announcement->variants.resize(1 + random->Below(3));
  for (Variant& variant : announcement->variants) {
    variant.senders = RandomPositions(random);
    if (random->OneIn(2)) {
      variant.id = static_cast<uint32_t>(RandomNumber(random, kNoId - 1));
    } else {
      variant.request = RandomRequest(random);
    }
  }
}

std::vector<Waiting> RandomWaiting(Random* random) {
  std::vector<Waiting> list(random->Below(4));
  for (Waiting& waiting : list) {
    waiting.name = RandomText(random, kMaxNameBytes);
    waiting.ordinal = RandomNumber(random, ~uint64_t{0});
    waiting.kind = static_cast<OpKind>(random->Below(6));
    waiting.waited = static_cast<Micros>(RandomNumber(random, (uint64_t{1} << 63) - 1));
    waiting.ready = RandomPositions(random);
  }
  return list;
}

// Of a run that begins with this id.
uint32_t RandomCount(Random* random, uint32_t id) {
  return random->OneIn(2) ? 1 : 1 + static_cast<uint32_t>(RandomNumber(random, kNoId - 1 - id));
}

AnnounceMessage RandomAnnounce(Random* random) {
  AnnounceMessage message;
  message.all_urgent = RandomNumber(random, ~uint64_t{0});
  message.some_urgent = message.all_urgent;
  if (random->OneIn(2)) message.some_urgent += RandomNumber(random, ~message.all_urgent);
  message.joins = random->OneIn(2);
  if (random->OneIn(3)) message.joined = RandomPositions(random);
  if (random->OneIn(3)) message.last = RandomPosition(random);
  if (random->OneIn(3)) message.waiting = RandomWaiting(random);
  if (random->OneIn(2)) message.epoch = RandomNumber(random, ~uint64_t{0});
  if (random->OneIn(2)) message.waits_for = RandomNumber(random, ~uint64_t{0});
  if (message.waits_for != 0 && random->OneIn(2)) message.waiters = RandomPositions(random);
  message.announcements.resize(random->Below(8));
  for (Announcement& announcement : message.announcements) {
    if (random->OneIn(2)) {
      announcement.id = static_cast<uint32_t>(RandomNumber(random, kNoId - 1));
    } else {
      announcement.request = RandomRequest(random);
    }
    if (random->OneIn(2))
      announcement.ordinal = std::max<uint64_t>(1, RandomNumber(random, ~uint64_t{0}));
    if (random->OneIn(3)) announcement.sizes = RandomShape(random, 40);
    if (random->OneIn(4)) Merge(random, &announcement);
    if (IsRun(announcement)) announcement.count = RandomCount(random, announcement.id);
  }
  return message;
}

Schedule RandomSchedule(Random* random) {
  Schedule schedule;
  schedule.batches.resize(1 + random->Below(4));
  for (std::vector<Slot>& batch : schedule.batches) {
    batch.resize(1 + random->Below(5));
    for (Slot& slot : batch) {
      slot.id = static_cast<uint32_t>(RandomNumber(random, kNoId - 1));
      slot.unnamed = random->OneIn(2);
      if (random->OneIn(3)) slot.sizes = RandomShape(random, 100);
    }
  }
  return schedule;
}

Response RandomResponse(Random* random) {
  Response response;
  response.number = RandomNumber(random, ~uint64_t{0});
  response.policy.fusion_threshold = static_cast<int64_t>(RandomNumber(random, ~uint64_t{0}));
  response.policy.direct_bytes = static_cast<int64_t>(RandomNumber(random, ~uint64_t{0}));
  if (random->OneIn(2)) {
    response.last_joined =
        GlobalRank(static_cast<int32_t>(RandomNumber(random, std::numeric_limits<int32_t>::max())));
  }
  response.decisions.resize(random->Below(8));
  for (Decision& decision : response.decisions) {
    const bool fails = random->OneIn(3);
    if (!fails && random->OneIn(2))
      decision.id = static_cast<uint32_t>(RandomNumber(random, kNoId - 1));
    decision.known = decision.id != kNoId && random->OneIn(2);
    const bool unnamed = random->OneIn(3);
    if (unnamed) decision.ordinal = std::max<uint64_t>(1, RandomNumber(random, ~uint64_t{0}));
    if (!unnamed && !decision.known) decision.name = "n" + RandomText(random, kMaxNameBytes - 1);
    if (fails) decision.error = "e" + RandomText(random, kMaxErrorBytes - 1);
    if (fails && random->OneIn(3)) decision.notice = static_cast<uint8_t>(random->Next() | 1);
    if (!fails && random->OneIn(3)) decision.sizes = RandomShape(random, 100);
    decision.partial = random->OneIn(3);
    const bool described = decision.partial && !decision.known && decision.error.empty();
    if (described) decision.request = RandomRequest(random);
    if (IsRun(decision)) decision.count = RandomCount(random, decision.id);
  }
  if (random->OneIn(3)) response.schedule = RandomSchedule(random);
  response.forgets = response.schedule.empty() && random->OneIn(3);
  return response;
}

// An independent account of every field, so that a field that does not travel is seen.
bool Same(const Request& a, const Request& b) {
  return a.kind == b.kind && a.reduce_op == b.reduce_op && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.root == b.root && a.device == b.device &&
         a.name == b.name && a.tensors == b.tensors && a.notice == b.notice;
}

bool Same(const Variant& a, const Variant& b);
bool Same(const Announcement& a, const Announcement& b);
bool Same(const Waiting& a, const Waiting& b);
bool Same(const Decision& a, const Decision& b);

template <typename T>
bool SameList(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return Same(x, y); });
}

bool Same(const Variant& a, const Variant& b) {
  return a.id == b.id && Same(a.request, b.request) && a.senders == b.senders;
}

bool Same(const Announcement& a, const Announcement& b) {
  return a.id == b.id && a.count == b.count && Same(a.request, b.request) &&
         a.ordinal == b.ordinal && a.sizes == b.sizes && a.last == b.last && a.waited == b.waited &&
         SameList(a.variants, b.variants);
}

bool Same(const Waiting& a, const Waiting& b) {
  return a.name == b.name && a.ordinal == b.ordinal && a.kind == b.kind && a.waited == b.waited &&
         a.ready == b.ready;
}

bool Same(const Decision& a, const Decision& b) {
  return a.id == b.id && a.count == b.count && a.known == b.known && a.name == b.name &&
         a.ordinal == b.ordinal && a.error == b.error && a.notice == b.notice &&
         a.sizes == b.sizes && a.partial == b.partial &&
         a.request.has_value() == b.request.has_value() &&
         (!a.request || Same(*a.request, *b.request));
}

bool Same(const AnnounceMessage& a, const AnnounceMessage& b) {
  return a.some_urgent == b.some_urgent && a.all_urgent == b.all_urgent && a.joins == b.joins &&
         a.joined == b.joined && a.last == b.last && SameList(a.announcements, b.announcements) &&
         a.waiting.has_value() == b.waiting.has_value() &&
         (!a.waiting || SameList(*a.waiting, *b.waiting)) && a.epoch == b.epoch &&
         a.waits_for == b.waits_for && a.waiters == b.waiters;
}

bool Same(const Response& a, const Response& b) {
  return a.number == b.number && a.last_joined == b.last_joined &&
         SameList(a.decisions, b.decisions) && a.schedule.batches == b.schedule.batches &&
         a.forgets == b.forgets && a.policy == b.policy;
}

// Into `used`, whose old content must not show through.
template <typename T>
bool RoundTrips(const T& message, T used) {
  return DecodeExactly(Encoded(message), &used).ok() && Same(message, used);
}

TEST(Message, RoundTrip) {
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(RoundTrips(RandomAnnounce(&random), RandomAnnounce(&random)));
    ASSERT_TRUE(RoundTrips(RandomResponse(&random), RandomResponse(&random)));
  }
}

TEST(Message, ARunIsAFewBytes) { EXPECT_TRUE(Encoded(Message({Run(300, 100'000)})).size() <= 10); }

TEST(Message, CachedIsAFewBytes) {
  AnnounceMessage message;
  Response response;
  for (uint32_t id = 0; id < 1000; ++id) {
    message.announcements.push_back(Cached(id));
    Decision& decision = response.decisions.emplace_back();
    decision.id = id;
    decision.known = true;
  }
  EXPECT_TRUE(Encoded(message).size() <= 3 * 1000 + 16);
  EXPECT_TRUE(Encoded(response).size() <= 3 * 1000 + 16);
}

template <typename T>
void TruncateEverywhere(const T& message) {
  const std::string bytes = Encoded(message);
  for (size_t size = 0; size < bytes.size(); ++size) {
    T decoded;
    EXPECT_EQ(DecodeExactly(bytes.substr(0, size), &decoded).code(), Code::kAborted);
  }
  T decoded;
  EXPECT_EQ(DecodeExactly(bytes + '\0', &decoded).code(), Code::kAborted);
}

TEST(Message, TruncatedOrTrailing) {
  Random random(2);
  for (int i = 0; i < 60; ++i) {
    TruncateEverywhere(RandomAnnounce(&random));
    TruncateEverywhere(RandomResponse(&random));
  }
}

// Whatever is accepted must be canonical: it encodes to the same bytes again.
template <typename T>
bool RefusedOrCanonical(const std::string& bytes) {
  T decoded;
  if (!DecodeExactly(bytes, &decoded).ok()) return true;
  return Encoded(decoded) == bytes;
}

TEST(Message, BitFlips) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string announce = Encoded(RandomAnnounce(&random));
    std::string response = Encoded(RandomResponse(&random));
    for (std::string* bytes : {&announce, &response}) {
      for (uint64_t flips = 1 + random.Below(4); flips > 0; --flips) {
        (*bytes)[random.Below(bytes->size())] ^= static_cast<char>(1 << random.Below(8));
      }
    }
    ASSERT_TRUE(RefusedOrCanonical<AnnounceMessage>(announce));
    ASSERT_TRUE(RefusedOrCanonical<Response>(response));
  }
}

TEST(Message, Garbage) {
  Random random(4);
  for (int i = 0; i < 100000; ++i) {
    std::string bytes(random.Below(64), 0);
    for (char& c : bytes) c = static_cast<char>(random.OneIn(3) ? random.Below(8) : random.Next());
    if (!bytes.empty() && random.OneIn(2)) bytes[0] = kMessageVersion;
    ASSERT_TRUE(RefusedOrCanonical<AnnounceMessage>(bytes));
    ASSERT_TRUE(RefusedOrCanonical<Response>(bytes));
  }
}

// They travel in the data plane.
TEST(Message, SplitsAreNoPartOfARequest) {
  AnnounceMessage message;
  message.announcements = {Full(Alltoall("a", {6, 2}, {1, 2, 3}))};
  AnnounceMessage decoded;
  ASSERT_OK(DecodeExactly(Encoded(message), &decoded));
  EXPECT_TRUE(decoded.announcements[0].request.splits.empty());
  EXPECT_TRUE(decoded.announcements[0].sizes.empty());
}

}  // namespace
}  // namespace hvd::negotiate
