#include "negotiate/message.h"

#include <limits>

#include "negotiate/wire.h"

namespace hvd::negotiate {
namespace {

// Which optional parts of an announcement follow its tag.
enum AnnouncementTag : uint8_t { kFull = 1, kUnnamed = 2, kRagged = 4, kAnnouncementTags = 7 };
// ... of a full request.
enum RequestTag : uint8_t { kScaled = 1, kRooted = 2, kOnDevice = 4, kRequestTags = 7 };
// ... of a decision.
enum DecisionTag : uint8_t {
  kHasId = 1,
  kKnown = 2,
  kHasOrdinal = 4,
  kHasName = 8,
  kHasError = 16,
  kHasDims = 32,
  kDecisionTags = 63
};

constexpr uint64_t kMaxDim = std::numeric_limits<int64_t>::max();

void Put(const std::vector<int64_t>& dims, Writer* out) {
  out->Varint(dims.size());
  for (int64_t dim : dims) out->Varint(static_cast<uint64_t>(dim));
}

void Take(Reader* in, const char* field, size_t max, std::vector<int64_t>* dims) {
  dims->resize(in->Count(field, 1, max));
  for (int64_t& dim : *dims) dim = static_cast<int64_t>(in->Varint(field, kMaxDim));
}

void Put(const Request& request, Writer* out) {
  const bool scaled = request.prescale != 1.0 || request.postscale != 1.0;
  out->Byte((scaled ? kScaled : 0) | (request.root != 0 ? kRooted : 0) |
            (request.device >= 0 ? kOnDevice : 0));
  out->Byte(static_cast<uint8_t>(request.kind));
  out->Byte(static_cast<uint8_t>(request.reduce_op));
  if (scaled) out->Double(request.prescale);
  if (scaled) out->Double(request.postscale);
  if (request.root != 0) out->Signed(request.root);
  if (request.device >= 0) out->Signed(request.device);
  out->Text(request.name);
  out->Varint(request.tensors.size());
  for (const TensorMeta& tensor : request.tensors) {
    out->Byte(static_cast<uint8_t>(tensor.dtype));
    Put(tensor.shape, out);
  }
}

void Take(Reader* in, Request* request) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  const uint8_t tag = in->Byte("request tag", kRequestTags);
  request->kind = static_cast<OpKind>(in->Byte("operation", static_cast<uint8_t>(OpKind::kReducescatter)));
  request->reduce_op = static_cast<ReduceOp>(in->Byte("reduce op", static_cast<uint8_t>(ReduceOp::kProduct)));
  if (tag & kScaled) request->prescale = in->Double("prescale factor");
  if (tag & kScaled) request->postscale = in->Double("postscale factor");
  // A negative root is a mistake of the caller, not of the link: the sequencer answers it.
  if (tag & kRooted) request->root = static_cast<int32_t>(in->Signed("root", -kMaxInt - 1, kMaxInt));
  if (tag & kOnDevice) request->device = static_cast<int32_t>(in->Signed("device", 0, kMaxInt));
  request->name = in->Text("name", kMaxNameBytes);
  request->tensors.resize(in->Count("number of tensors", 2, kMaxTensors));
  for (TensorMeta& tensor : request->tensors) {
    if (!in->ok()) return;
    tensor.dtype = static_cast<DataType>(in->Byte("data type", kDataTypes - 1));
    Take(in, "shape", kMaxDims, &tensor.shape);
  }
}

void Put(const Announcement& announcement, Writer* out) {
  const bool full = announcement.id == kNoId;
  const bool ragged = !announcement.sizes.empty();
  out->Byte((full ? kFull : 0) | (announcement.ordinal != 0 ? kUnnamed : 0) | (ragged ? kRagged : 0));
  if (!full) out->Varint(announcement.id);
  if (announcement.ordinal != 0) out->Varint(announcement.ordinal);
  if (full) Put(announcement.request, out);
  if (ragged) Put(announcement.sizes, out);
}

void Take(Reader* in, Announcement* announcement) {
  const uint8_t tag = in->Byte("announcement tag", kAnnouncementTags);
  if (!(tag & kFull)) announcement->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kUnnamed) announcement->ordinal = in->Varint("ordinal");
  if ((tag & kUnnamed) && announcement->ordinal == 0) in->Fail("ordinal");
  if (tag & kFull) Take(in, &announcement->request);
  if (tag & kRagged) Take(in, "first dimensions", kMaxTensors, &announcement->sizes);
}

void Put(const Decision& decision, Writer* out) {
  out->Byte((decision.id != kNoId ? kHasId : 0) | (decision.known ? kKnown : 0) |
            (decision.ordinal != 0 ? kHasOrdinal : 0) | (decision.name.empty() ? 0 : kHasName) |
            (decision.error.empty() ? 0 : kHasError) | (decision.sizes.empty() ? 0 : kHasDims));
  if (decision.id != kNoId) out->Varint(decision.id);
  if (decision.ordinal != 0) out->Varint(decision.ordinal);
  if (!decision.name.empty()) out->Text(decision.name);
  if (!decision.error.empty()) out->Text(decision.error);
  if (!decision.sizes.empty()) Put(decision.sizes, out);
}

void Take(Reader* in, Decision* decision) {
  const uint8_t tag = in->Byte("decision tag", kDecisionTags);
  decision->known = (tag & kKnown) != 0;
  // Found in one way: by name, or else by known id or ordinal.
  const bool by_name = (tag & kHasName) != 0;
  if (by_name == ((tag & (kKnown | kHasOrdinal)) != 0)) in->Fail("decision tag");
  if (decision->known && !(tag & kHasId)) in->Fail("decision tag");
  if (tag & kHasId) decision->id = static_cast<uint32_t>(in->Varint("id", kNoId - 1));
  if (tag & kHasOrdinal) decision->ordinal = in->Varint("ordinal");
  if ((tag & kHasOrdinal) && decision->ordinal == 0) in->Fail("ordinal");
  if (tag & kHasName) decision->name = in->Text("name", kMaxNameBytes);
  if (tag & kHasError) decision->error = in->Text("error", kMaxErrorBytes);
  if (tag & kHasDims) Take(in, "first dimensions", in->left(), &decision->sizes);
}

// Both messages: the version, a number, and a list whose elements take at least two bytes.
template <typename T>
Status TakeAll(std::string_view bytes, const char* message, uint64_t* number, std::vector<T>* list) {
  Reader in(bytes);
  const uint8_t version = in.Byte("version");
  if (in.ok() && version != kMessageVersion) {
    return Status::Aborted(std::string("corrupt ") + message + ": version " + std::to_string(version) +
                           " instead of " + std::to_string(kMessageVersion) +
                           "; do all ranks run the same horovod?");
  }
  *number = in.Varint("number");
  list->clear();
  list->resize(in.Count("count", 2, std::numeric_limits<size_t>::max()));
  for (T& element : *list) {
    Take(&in, &element);
    if (!in.ok()) break;
  }
  return in.status(message);
}

template <typename T>
void PutAll(uint64_t number, const std::vector<T>& list, std::string* out) {
  out->reserve(out->size() + 16 + 4 * list.size());
  Writer writer(out);
  writer.Byte(kMessageVersion);
  writer.Varint(number);
  writer.Varint(list.size());
  for (const T& element : list) Put(element, &writer);
}

}  // namespace

void Encode(const AnnounceMessage& message, std::string* out) {
  PutAll(message.urgent, message.announcements, out);
}

Status Decode(std::string_view bytes, AnnounceMessage* message) {
  return TakeAll(bytes, "announcement", &message->urgent, &message->announcements);
}

void Encode(const Response& response, std::string* out) { PutAll(response.number, response.decisions, out); }

Status Decode(std::string_view bytes, Response* response) {
  return TakeAll(bytes, "response", &response->number, &response->decisions);
}

}  // namespace hvd::negotiate
