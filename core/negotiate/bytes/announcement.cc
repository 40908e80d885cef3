// Announcements as bytes.

#include "negotiate/bytes/parts.h"

namespace hvd::negotiate {
namespace {

// Which optional parts of an announcement follow its tag.
enum AnnouncementTag : uint8_t {
  kFull = 1,
  kUnnamed = 2,
  kSized = 4,
  kVaried = 8,
  kLate = 16,
  kRun = 32,
  kAnnouncementTags = 63
};
// ... of a message of announcements, behind what all have.
enum AnnounceTag : uint8_t {
  kJoins = 1,
  kJoined = 2,
  kMoreUrgent = 4,
  kLast = 8,
  kWaits = 16,
  kEpoch = 32,
  kWaitsFor = 64,
  kAnnounceTags = 127
};
constexpr int kMaxPosition = std::numeric_limits<int32_t>::max() - 1;

uint8_t TagOf(const Announcement& announcement) {
  const bool varied = !announcement.variants.empty();
  return (announcement.id == kNoId && !varied ? kFull : 0) |
         (announcement.ordinal != 0 ? kUnnamed : 0) | (announcement.sizes.empty() ? 0 : kSized) |
         (varied ? kVaried : 0) | (announcement.last.known() ? kLate : 0) |
         (announcement.count > 1 ? kRun : 0);
}

uint8_t TagOf(const AnnounceMessage& message) {
  return (message.joins ? kJoins : 0) | (message.joined.empty() ? 0 : kJoined) |
         (message.some_urgent != message.all_urgent ? kMoreUrgent : 0) |
         (message.last.known() ? kLast : 0) | (message.waiting ? kWaits : 0) |
         (message.epoch != 0 ? kEpoch : 0) | (message.waits_for != 0 ? kWaitsFor : 0);
}

// What some are blocked on beyond what all are blocked on.
uint64_t TakeUrgent(Decoder* in, uint64_t all) {
  const uint64_t more = in->Varint("urgent", std::numeric_limits<uint64_t>::max() - all);
  return more != 0 ? more : in->Fail("urgent");
}

// Each run by its distance from the one before.
void Put(const Positions& positions, Encoder* out) {
  out->Varint(positions.runs().size());
  int end = 0;
  for (const Positions::Run& run : positions.runs()) {
    out->Varint(static_cast<uint64_t>(run.first - end));
    out->Varint(static_cast<uint64_t>(run.count));
    end = run.end();
  }
}

void TakeAny(Decoder* in, const char* field, Positions* positions) {
  const size_t count = in->Count(field, 2, std::numeric_limits<size_t>::max());
  int end = 0;
  for (size_t i = 0; in->ok() && i < count; ++i) {
    const auto left = static_cast<uint64_t>(kMaxPosition - end);
    const uint64_t gap = in->Varint(field, left);
    const uint64_t length = in->Varint(field, left - gap);
    if (length == 0 || (gap == 0 && i > 0)) in->Fail(field);
    const int first = end + static_cast<int>(gap);
    end = first + static_cast<int>(length);
    if (in->ok()) positions->Add(Positions::Range(first, end - first));
  }
}

void Take(Decoder* in, const char* field, Positions* positions) {
  TakeAny(in, field, positions);
  if (positions->empty()) in->Fail(field);
}

// Of what is not sent when it is 0.
uint64_t TakeCount(Decoder* in, const char* field) {
  const uint64_t count = in->Varint(field);
  return count != 0 ? count : in->Fail(field);
}

Position TakePosition(Decoder* in, const char* field) {
  return Position(static_cast<int>(in->Varint(field, kMaxPosition)));
}

}  // namespace

void Put(const Variant& variant, Encoder* out) {
  out->Byte(variant.id == kNoId ? kFull : 0);
  if (variant.id == kNoId) {
    Put(variant.request, out);
  } else {
    out->Varint(variant.id);
  }
  Put(variant.senders, out);
}

void Take(Decoder* in, Variant* variant) {
  if (in->Byte("variant tag", kFull) == kFull) {
    Take(in, &variant->request);
  } else {
    variant->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  }
  Take(in, "senders", &variant->senders);
}

void Put(const Announcement& announcement, Encoder* out) {
  const uint8_t tag = TagOf(announcement);
  out->Byte(tag);
  if (!(tag & (kFull | kVaried))) out->Varint(announcement.id);
  if (tag & kRun) PutRun(announcement.count, out);
  if (tag & kUnnamed) out->Varint(announcement.ordinal);
  if (tag & kFull) Put(announcement.request, out);
  if (tag & kSized) Put(announcement.sizes, out);
  if (tag & kVaried) Put(announcement.variants, out);
  if (tag & kLate) {
    out->Varint(static_cast<uint64_t>(announcement.last.value()));
    out->Varint(static_cast<uint64_t>(announcement.waited));
  }
}

void Take(Decoder* in, Announcement* announcement) {
  const uint8_t tag = in->Byte("announcement tag", kAnnouncementTags);
  if ((tag & kFull) && (tag & kVaried)) in->Fail("announcement tag");
  if ((tag & kRun) && (tag & ~(kRun | kLate))) in->Fail("announcement tag");
  if (!(tag & (kFull | kVaried)))
    announcement->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kRun) announcement->count = TakeRun(in, announcement->id);
  if (tag & kUnnamed) announcement->ordinal = TakeOrdinal(in);
  if (tag & kFull) Take(in, &announcement->request);
  if (tag & kSized) TakeSizes(in, in->left(), &announcement->sizes);
  if (tag & kVaried) TakeSome(in, "variants", &announcement->variants);
  if (!(tag & kLate)) return;
  announcement->last = TakePosition(in, "last");
  announcement->waited = static_cast<Micros>(in->Varint("lateness", kMaxDim));
}

void Put(const Waiting& waiting, Encoder* out) {
  out->Text(waiting.name);
  out->Varint(waiting.ordinal);
  out->Byte(static_cast<uint8_t>(waiting.kind));
  out->Varint(static_cast<uint64_t>(waiting.waited));
  Put(waiting.ready, out);
}

void Take(Decoder* in, Waiting* waiting) {
  waiting->name = in->Text("name", kMaxNameBytes);
  waiting->ordinal = in->Varint("ordinal");
  waiting->kind = static_cast<OpKind>(in->Byte("operation", kOpKinds - 1));
  waiting->waited = static_cast<Micros>(in->Varint("wait", kMaxDim));
  Take(in, "ready", &waiting->ready);
}

void Encode(const AnnounceMessage& message, std::string* out) {
  out->reserve(out->size() + 16 + 4 * message.announcements.size());
  Encoder writer(out);
  const uint8_t tag = TagOf(message);
  Put(Head{message.all_urgent, tag}, &writer);
  if (tag & kJoined) Put(message.joined, &writer);
  if (tag & kMoreUrgent) writer.Varint(message.some_urgent - message.all_urgent);
  if (tag & kLast) writer.Varint(static_cast<uint64_t>(message.last.value()));
  Put(message.announcements, &writer);
  if (tag & kWaits) Put(*message.waiting, &writer);
  if (tag & kEpoch) writer.Varint(message.epoch);
  if (tag & kWaitsFor) writer.Varint(message.waits_for);
  if (tag & kWaitsFor) Put(message.waiters, &writer);
}

Status Decode(std::string_view bytes, AnnounceMessage* message) {
  *message = {};
  Decoder in(bytes);
  Head head{};
  HVD_RETURN_IF_ERROR(Take(&in, "announcement", kAnnounceTags, &head));
  message->all_urgent = message->some_urgent = head.number;
  message->joins = (head.join & kJoins) != 0;
  if (head.join & kJoined) Take(&in, "joined", &message->joined);
  if (head.join & kMoreUrgent) message->some_urgent += TakeUrgent(&in, head.number);
  if (head.join & kLast) message->last = TakePosition(&in, "last");
  TakeList(&in, "count", std::numeric_limits<size_t>::max(), &message->announcements);
  if (head.join & kWaits) TakeList(&in, "waiting", kMaxWaiting, &message->waiting.emplace());
  if (head.join & kEpoch) message->epoch = TakeCount(&in, "epoch");
  if (head.join & kWaitsFor) message->waits_for = TakeCount(&in, "batch");
  if (head.join & kWaitsFor) TakeAny(&in, "waiters", &message->waiters);
  return in.status("announcement");
}

}  // namespace hvd::negotiate
