#include "negotiate/message.h"

#include <algorithm>
#include <limits>

#include "negotiate/wire.h"

namespace hvd::negotiate {
namespace {

// Which optional parts of an announcement follow its tag.
enum AnnouncementTag : uint8_t { kFull = 1, kUnnamed = 2, kSized = 4, kAnnouncementTags = 7 };
// ... of a full request.
enum RequestTag : uint8_t { kScaled = 1, kRooted = 2, kOnDevice = 4, kRequestTags = 7 };
// ... of a decision.
enum DecisionTag : uint8_t {
  kHasId = 1,
  kKnown = 2,
  kHasOrdinal = 4,
  kHasName = 8,
  kHasError = 16,
  kHasSizes = 32,
  kPartial = 64,
  kHasRequest = 128
};

// Room that is made for a list before its elements are read: a count alone must not claim memory.
constexpr size_t kReserved = 1024;
constexpr uint64_t kMaxDim = std::numeric_limits<int64_t>::max();

void Put(const std::vector<int64_t>& dims, Encoder* out) {
  out->Varint(dims.size());
  for (int64_t dim : dims) out->Varint(static_cast<uint64_t>(dim));
}

void Take(Decoder* in, const char* field, size_t max, std::vector<int64_t>* dims) {
  dims->resize(in->Count(field, 1, max));
  for (int64_t& dim : *dims) dim = static_cast<int64_t>(in->Varint(field, kMaxDim));
}

uint8_t TagOf(const Request& request) {
  const bool scaled = request.prescale != 1.0 || request.postscale != 1.0;
  return (scaled ? kScaled : 0) | (request.root != GlobalRank(0) ? kRooted : 0) |
         (request.device != kHostDevice ? kOnDevice : 0);
}

uint8_t TagOf(const Announcement& announcement) {
  return (announcement.id == kNoId ? kFull : 0) | (announcement.ordinal != 0 ? kUnnamed : 0) |
         (announcement.sizes.empty() ? 0 : kSized);
}

uint8_t TagOf(const Decision& decision) {
  return (decision.id != kNoId ? kHasId : 0) | (decision.known ? kKnown : 0) |
         (decision.ordinal != 0 ? kHasOrdinal : 0) | (decision.name.empty() ? 0 : kHasName) |
         (decision.error.empty() ? 0 : kHasError) | (decision.sizes.empty() ? 0 : kHasSizes) |
         (decision.partial ? kPartial : 0) | (decision.request ? kHasRequest : 0);
}

// What is as by default is not sent: so one message has one encoding, and the parts of which a tag
// tells are not empty.
void TakeSizes(Decoder* in, size_t max, Shape* sizes) {
  Take(in, "sizes", max, sizes);
  if (sizes->empty()) in->Fail("sizes");
}

uint64_t TakeOrdinal(Decoder* in) {
  const uint64_t ordinal = in->Varint("ordinal");
  return ordinal != 0 ? ordinal : in->Fail("ordinal");
}

std::string_view TakeText(Decoder* in, const char* field, size_t max) {
  const std::string_view text = in->Text(field, max);
  if (text.empty()) in->Fail(field);
  return text;
}

void Put(const Request& request, Encoder* out) {
  const uint8_t tag = TagOf(request);
  out->Byte(tag);
  out->Byte(static_cast<uint8_t>(request.kind));
  out->Byte(static_cast<uint8_t>(request.reduce_op));
  if (tag & kScaled) out->Double(request.prescale);
  if (tag & kScaled) out->Double(request.postscale);
  if (tag & kRooted) out->Signed(request.root.value());
  if (tag & kOnDevice) out->Signed(request.device);
  out->Text(request.name);
  out->Varint(request.tensors.size());
  for (const TensorMeta& tensor : request.tensors) {
    out->Byte(static_cast<uint8_t>(tensor.dtype));
    Put(tensor.shape, out);
  }
}

void Take(Decoder* in, Request* request) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  const uint8_t tag = in->Byte("request tag", kRequestTags);
  request->kind = static_cast<OpKind>(in->Byte("operation", kOpKinds - 1));
  if (request->kind == OpKind::kJoin) in->Fail("operation");
  request->reduce_op = static_cast<ReduceOp>(in->Byte("reduce op", kReduceOps - 1));
  if (tag & kScaled) request->prescale = in->Double("prescale factor");
  if (tag & kScaled) request->postscale = in->Double("postscale factor");
  // A negative root is a mistake of the caller, not of the link: the sequencer answers it.
  if (tag & kRooted)
    request->root = GlobalRank(static_cast<int32_t>(in->Signed("root", -kMaxInt - 1, kMaxInt)));
  if (tag & kOnDevice)
    request->device = static_cast<int32_t>(in->Signed("device", kStagedDevice, kMaxInt));
  if (TagOf(*request) != tag) in->Fail("request tag");
  request->name = in->Text("name", kMaxNameBytes);
  const size_t count = in->Count("number of tensors", 2, kMaxTensors);
  request->tensors.reserve(std::min(count, kReserved));
  while (in->ok() && request->tensors.size() < count) {
    TensorMeta& tensor = request->tensors.emplace_back();
    tensor.dtype = static_cast<DataType>(in->Byte("data type", kDataTypes - 1));
    Take(in, "shape", kMaxDims, &tensor.shape);
  }
}

void Put(const Announcement& announcement, Encoder* out) {
  const uint8_t tag = TagOf(announcement);
  out->Byte(tag);
  if (!(tag & kFull)) out->Varint(announcement.id);
  if (tag & kUnnamed) out->Varint(announcement.ordinal);
  if (tag & kFull) Put(announcement.request, out);
  if (tag & kSized) Put(announcement.sizes, out);
}

void Take(Decoder* in, Announcement* announcement) {
  const uint8_t tag = in->Byte("announcement tag", kAnnouncementTags);
  if (!(tag & kFull)) announcement->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kUnnamed) announcement->ordinal = TakeOrdinal(in);
  if (tag & kFull) Take(in, &announcement->request);
  if (tag & kSized) TakeSizes(in, kMaxTensors, &announcement->sizes);
}

void Put(const Decision& decision, Encoder* out) {
  const uint8_t tag = TagOf(decision);
  out->Byte(tag);
  if (tag & kHasId) out->Varint(decision.id);
  if (tag & kHasOrdinal) out->Varint(decision.ordinal);
  if (tag & kHasName) out->Text(decision.name);
  if (tag & kHasError) out->Text(decision.error);
  if (tag & kHasSizes) Put(decision.sizes, out);
  if (tag & kHasRequest) Put(*decision.request, out);
}

void Take(Decoder* in, Decision* decision) {
  const uint8_t tag = in->Byte("decision tag");
  decision->known = (tag & kKnown) != 0;
  decision->partial = (tag & kPartial) != 0;
  // Found in one way: by name, or else by known id or ordinal.
  const bool by_name = (tag & kHasName) != 0;
  if (by_name == ((tag & (kKnown | kHasOrdinal)) != 0)) in->Fail("decision tag");
  if (decision->known && !(tag & kHasId)) in->Fail("decision tag");
  // What fails is nothing to run: it has no sizes, and gets no id.
  if ((tag & kHasError) && (tag & (kHasId | kHasSizes))) in->Fail("decision tag");
  const bool described = decision->partial && !decision->known && !(tag & kHasError);
  if (described != ((tag & kHasRequest) != 0)) in->Fail("decision tag");
  if (tag & kHasId) decision->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kHasOrdinal) decision->ordinal = TakeOrdinal(in);
  if (tag & kHasName) decision->name = TakeText(in, "name", kMaxNameBytes);
  if (tag & kHasError) decision->error = TakeText(in, "error", kMaxErrorBytes);
  if (tag & kHasSizes) TakeSizes(in, in->left(), &decision->sizes);
  if (tag & kHasRequest) Take(in, &decision->request.emplace());
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
  const uint8_t tag = in->Byte("slot tag", kUnnamed | kSized);
  if (tag & kFull) in->Fail("slot tag");
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

// What a message has beside its list: a number, and what is to be known of joins.
struct Head {
  uint64_t number;
  uint64_t join;
};

// Both messages: the version, a head, and a list whose elements take at least two bytes.
template <typename T, typename Tail>
Status TakeAll(std::string_view bytes, const char* message, uint64_t max_join, Head* head,
               std::vector<T>* list, Tail take_tail) {
  Decoder in(bytes);
  const uint8_t version = in.Byte("version");
  if (in.ok() && version != kMessageVersion) {
    return Status::Aborted(
        std::string("corrupt ") + message + ": version " + std::to_string(version) +
        " instead of " + std::to_string(kMessageVersion) + "; do all ranks run the same horovod?");
  }
  head->number = in.Varint("number");
  head->join = in.Varint("join", max_join);
  list->clear();
  const size_t count = in.Count("count", 2, std::numeric_limits<size_t>::max());
  list->reserve(std::min(count, kReserved));
  while (in.ok() && list->size() < count) Take(&in, &list->emplace_back());
  take_tail(&in);
  return in.status(message);
}

template <typename T, typename Tail>
void PutAll(Head head, const std::vector<T>& list, std::string* out, Tail put_tail) {
  out->reserve(out->size() + 16 + 4 * list.size());
  Encoder writer(out);
  writer.Byte(kMessageVersion);
  writer.Varint(head.number);
  writer.Varint(head.join);
  writer.Varint(list.size());
  for (const T& element : list) Put(element, &writer);
  put_tail(&writer);
}

}  // namespace

void Encode(const AnnounceMessage& message, std::string* out) {
  PutAll({message.urgent, message.joins ? uint64_t{1} : 0}, message.announcements, out,
         [&message](Encoder* writer) {
           writer->Varint(message.epoch);
           writer->Varint(message.waits_at);
         });
}

Status Decode(std::string_view bytes, AnnounceMessage* message) {
  Head head{};
  const auto tail = [message](Decoder* in) {
    message->epoch = in->Varint("epoch");
    message->waits_at = in->Varint("gate");
  };
  const Status status = TakeAll(bytes, "announcement", 1, &head, &message->announcements, tail);
  message->urgent = head.number;
  message->joins = head.join == 1;
  return status;
}

// The last rank to join is counted from 1; 0 is none.
void Encode(const Response& response, std::string* out) {
  PutAll({response.number, static_cast<uint64_t>(response.last_joined.value() + int64_t{1})},
         response.decisions, out, [&response](Encoder* writer) { Put(response.schedule, writer); });
}

Status Decode(std::string_view bytes, Response* response) {
  constexpr uint64_t kMaxRank = std::numeric_limits<int32_t>::max();
  Head head{};
  const Status status = TakeAll(bytes, "response", kMaxRank + 1, &head, &response->decisions,
                                [response](Decoder* in) { Take(in, &response->schedule); });
  response->number = head.number;
  response->last_joined = GlobalRank(static_cast<int32_t>(static_cast<int64_t>(head.join) - 1));
  return status;
}

}  // namespace hvd::negotiate
