#include "negotiate/message.h"

#include <algorithm>
#include <limits>

#include "negotiate/wire.h"

namespace hvd::negotiate {
namespace {

// Which optional parts of an announcement follow its tag.
enum AnnouncementTag : uint8_t {
  kFull = 1,
  kUnnamed = 2,
  kSized = 4,
  kVaried = 8,
  kLate = 16,
  kAnnouncementTags = 31
};
// ... of a message of announcements, behind what all have.
enum AnnounceTag : uint8_t {
  kJoins = 1,
  kJoined = 2,
  kMoreUrgent = 4,
  kLast = 8,
  kWaits = 16,
  kAnnounceTags = 31
};
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
constexpr int kMaxPosition = std::numeric_limits<int32_t>::max() - 1;

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
  const bool varied = !announcement.variants.empty();
  return (announcement.id == kNoId && !varied ? kFull : 0) |
         (announcement.ordinal != 0 ? kUnnamed : 0) | (announcement.sizes.empty() ? 0 : kSized) |
         (varied ? kVaried : 0) | (announcement.last.known() ? kLate : 0);
}

uint8_t TagOf(const AnnounceMessage& message) {
  return (message.joins ? kJoins : 0) | (message.joined.empty() ? 0 : kJoined) |
         (message.some_urgent != message.all_urgent ? kMoreUrgent : 0) |
         (message.last.known() ? kLast : 0) | (message.waiting ? kWaits : 0);
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

// What some are blocked on beyond what all are blocked on.
uint64_t TakeUrgent(Decoder* in, uint64_t all) {
  const uint64_t more = in->Varint("urgent", std::numeric_limits<uint64_t>::max() - all);
  return more != 0 ? more : in->Fail("urgent");
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

void Put(const Variant& variant, Encoder* out);
void Put(const Announcement& announcement, Encoder* out);
void Put(const Waiting& waiting, Encoder* out);
void Put(const Decision& decision, Encoder* out);
void Take(Decoder* in, Variant* variant);
void Take(Decoder* in, Announcement* announcement);
void Take(Decoder* in, Waiting* waiting);
void Take(Decoder* in, Decision* decision);

template <typename T>
void Put(const std::vector<T>& list, Encoder* out) {
  out->Varint(list.size());
  for (const T& element : list) Put(element, out);
}

// Each element takes at least two bytes.
template <typename T>
void TakeList(Decoder* in, const char* field, size_t max, std::vector<T>* list) {
  list->clear();
  const size_t count = in->Count(field, 2, max);
  list->reserve(std::min(count, kReserved));
  while (in->ok() && list->size() < count) Take(in, &list->emplace_back());
}

template <typename T>
void TakeSome(Decoder* in, const char* field, std::vector<T>* list) {
  TakeList(in, field, std::numeric_limits<size_t>::max(), list);
  if (list->empty()) in->Fail(field);
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

void Take(Decoder* in, const char* field, Positions* positions) {
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
  if (count == 0) in->Fail(field);
}

Position TakePosition(Decoder* in, const char* field) {
  return Position(static_cast<int>(in->Varint(field, kMaxPosition)));
}

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
  if (!(tag & (kFull | kVaried)))
    announcement->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
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

Status BadVersion(uint8_t version, const char* message) {
  return Status::Aborted(std::string("corrupt ") + message + ": version " +
                         std::to_string(version) + " instead of " +
                         std::to_string(kMessageVersion) + "; do all ranks run the same horovod?");
}

// Both messages begin with the version and two numbers.
struct Head {
  uint64_t number;
  uint64_t join;  // what is to be known of joins, and what else follows
};

void Put(const Head& head, Encoder* out) {
  out->Byte(kMessageVersion);
  out->Varint(head.number);
  out->Varint(head.join);
}

// False: of another version.
bool Take(Decoder* in, uint64_t max_join, Head* head, uint8_t* version) {
  *version = in->Byte("version");
  if (in->ok() && *version != kMessageVersion) return false;
  head->number = in->Varint("number");
  head->join = in->Varint("join", max_join);
  return true;
}

}  // namespace

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
}

Status Decode(std::string_view bytes, AnnounceMessage* message) {
  *message = {};
  Decoder in(bytes);
  Head head{};
  uint8_t version;
  if (!Take(&in, kAnnounceTags, &head, &version)) return BadVersion(version, "announcement");
  message->all_urgent = message->some_urgent = head.number;
  message->joins = (head.join & kJoins) != 0;
  if (head.join & kJoined) Take(&in, "joined", &message->joined);
  if (head.join & kMoreUrgent) message->some_urgent += TakeUrgent(&in, head.number);
  if (head.join & kLast) message->last = TakePosition(&in, "last");
  TakeList(&in, "count", std::numeric_limits<size_t>::max(), &message->announcements);
  if (head.join & kWaits) TakeList(&in, "waiting", kMaxWaiting, &message->waiting.emplace());
  return in.status("announcement");
}

// The last rank to join is counted from 1; 0 is none.
void Encode(const Response& response, std::string* out) {
  out->reserve(out->size() + 16 + 4 * response.decisions.size());
  Encoder writer(out);
  const auto join = static_cast<uint64_t>(response.last_joined.value() + int64_t{1});
  Put(Head{response.number, join}, &writer);
  Put(response.decisions, &writer);
}

Status Decode(std::string_view bytes, Response* response) {
  constexpr uint64_t kMaxRank = std::numeric_limits<int32_t>::max();
  Decoder in(bytes);
  Head head{};
  uint8_t version;
  if (!Take(&in, kMaxRank + 1, &head, &version)) return BadVersion(version, "response");
  response->number = head.number;
  response->last_joined = GlobalRank(static_cast<int32_t>(static_cast<int64_t>(head.join) - 1));
  TakeList(&in, "count", std::numeric_limits<size_t>::max(), &response->decisions);
  return in.status("response");
}

}  // namespace hvd::negotiate
