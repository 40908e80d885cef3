// Responses as bytes.

#include "negotiate/bytes/parts.h"

namespace hvd::negotiate {
namespace {

// Which optional parts of a decision follow its tag.
enum DecisionTag : uint16_t {
  kHasId = 1,
  kKnown = 2,
  kHasOrdinal = 4,
  kHasName = 8,
  kHasError = 16,
  kHasSizes = 32,
  kPartial = 64,
  kHasRequest = 128,
  kRun = 256,
  kHasNotice = 512,
  kDecisionTags = 1023
};

// ... of a slot of a schedule.
enum SlotTag : uint8_t { kUnnamed = 1, kSized = 2, kSlotTags = 3 };

uint16_t TagOf(const Decision& decision) {
  return (decision.id != kNoId ? kHasId : 0) | (decision.known ? kKnown : 0) |
         (decision.ordinal != 0 ? kHasOrdinal : 0) | (decision.name.empty() ? 0 : kHasName) |
         (decision.error.empty() ? 0 : kHasError) | (decision.sizes.empty() ? 0 : kHasSizes) |
         (decision.partial ? kPartial : 0) | (decision.request ? kHasRequest : 0) |
         (decision.count > 1 ? kRun : 0) | (decision.notice != 0 ? kHasNotice : 0);
}

// What is as by default takes no more than a count of 0.
void Put(const Schedule& schedule, Encoder* out) {
  out->Varint(schedule.batches.size());
  for (const std::vector<Slot>& batch : schedule.batches) {
    out->Varint(batch.size());
    for (const Slot& slot : batch) {
      out->Byte((slot.unnamed ? kUnnamed : 0) | (slot.sizes.empty() ? 0 : kSized));
      out->Varint(slot.id);
      if (!slot.sizes.empty()) Put(slot.sizes, out);
    }
  }
}

void Take(Decoder* in, Slot* slot) {
  const uint8_t tag = in->Byte("slot tag", kSlotTags);
  slot->unnamed = (tag & kUnnamed) != 0;
  slot->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kSized) TakeSizes(in, in->left(), &slot->sizes);
}

void Take(Decoder* in, Schedule* schedule) {
  const size_t batches = in->Count("batches", 3, kMaxSlots);
  size_t slots = 0;
  schedule->batches.clear();
  while (in->ok() && schedule->batches.size() < batches) {
    std::vector<Slot>& batch = schedule->batches.emplace_back();
    const size_t count = in->Count("slots", 2, kMaxSlots);
    slots += count;
    if (count == 0 || slots > kMaxSlots) in->Fail("slots");
    while (in->ok() && batch.size() < count) Take(in, &batch.emplace_back());
  }
}

}  // namespace

void Put(const Decision& decision, Encoder* out) {
  const uint16_t tag = TagOf(decision);
  out->Varint(tag);
  if (tag & kHasId) out->Varint(decision.id);
  if (tag & kRun) PutRun(decision.count, out);
  if (tag & kHasOrdinal) out->Varint(decision.ordinal);
  if (tag & kHasName) out->Text(decision.name);
  if (tag & kHasError) out->Text(decision.error);
  if (tag & kHasNotice) out->Byte(decision.notice);
  if (tag & kHasSizes) Put(decision.sizes, out);
  if (tag & kHasRequest) Put(*decision.request, out);
}

void Take(Decoder* in, Decision* decision) {
  const auto tag = static_cast<uint16_t>(in->Varint("decision tag", kDecisionTags));
  decision->known = (tag & kKnown) != 0;
  decision->partial = (tag & kPartial) != 0;
  // Found in one way: by name, or else by known id or ordinal.
  const bool by_name = (tag & kHasName) != 0;
  if (by_name == ((tag & (kKnown | kHasOrdinal)) != 0)) in->Fail("decision tag");
  if (decision->known && !(tag & kHasId)) in->Fail("decision tag");
  // What fails is nothing to run: it has no sizes, and gets no id.
  if ((tag & kHasError) && (tag & (kHasId | kHasSizes))) in->Fail("decision tag");
  if ((tag & kHasNotice) && !(tag & kHasError)) in->Fail("decision tag");
  const bool described = decision->partial && !decision->known && !(tag & kHasError);
  if (described != ((tag & kHasRequest) != 0)) in->Fail("decision tag");
  if ((tag & kRun) && tag != (kRun | kHasId | kKnown)) in->Fail("decision tag");
  if (tag & kHasId) decision->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kRun) decision->count = TakeRun(in, decision->id);
  if (tag & kHasOrdinal) decision->ordinal = TakeOrdinal(in);
  if (tag & kHasName) decision->name = TakeText(in, "name", kMaxNameBytes);
  if (tag & kHasError) decision->error = TakeText(in, "error", kMaxErrorBytes);
  if (tag & kHasNotice) decision->notice = in->Byte("notice");
  if ((tag & kHasNotice) && decision->notice == 0) in->Fail("notice");
  if (tag & kHasSizes) TakeSizes(in, in->left(), &decision->sizes);
  if (tag & kHasRequest) Take(in, &decision->request.emplace());
}

// The last rank to join is counted from 1; 0 is none.
void Encode(const Response& response, std::string* out) {
  out->reserve(out->size() + 16 + 4 * response.decisions.size());
  Encoder writer(out);
  const auto join = static_cast<uint64_t>(response.last_joined.value() + int64_t{1});
  Put(Head{response.number, join}, &writer);
  Put(response.decisions, &writer);
  Put(response.schedule, &writer);
  writer.Byte(response.forgets ? 1 : 0);
  writer.Signed(response.policy.fusion_threshold);
  writer.Signed(response.policy.direct_bytes);
}

Status Decode(std::string_view bytes, Response* response) {
  constexpr uint64_t kMaxRank = std::numeric_limits<int32_t>::max();
  Decoder in(bytes);
  Head head{};
  HVD_RETURN_IF_ERROR(Take(&in, "response", kMaxRank + 1, &head));
  response->number = head.number;
  response->last_joined = GlobalRank(static_cast<int32_t>(static_cast<int64_t>(head.join) - 1));
  TakeList(&in, "count", std::numeric_limits<size_t>::max(), &response->decisions);
  Take(&in, &response->schedule);
  response->forgets = in.Byte("forgets", 1) != 0;
  if (response->forgets && !response->schedule.empty()) in.Fail("forgets");
  constexpr auto kAny = std::numeric_limits<int64_t>();
  response->policy.fusion_threshold = in.Signed("fusion threshold", kAny.min(), kAny.max());
  response->policy.direct_bytes = in.Signed("direct bytes", kAny.min(), kAny.max());
  return in.status("response");
}

}  // namespace hvd::negotiate
