#include "negotiate/bytes/parts.h"

namespace hvd::negotiate {
namespace {

// Which optional parts of a request follow its tag.
enum RequestTag : uint8_t {
  kScaled = 1,
  kRooted = 2,
  kOnDevice = 4,
  kIsNotice = 8,
  kRequestTags = 15
};

uint8_t TagOf(const Request& request) {
  const bool scaled = request.prescale != 1.0 || request.postscale != 1.0;
  return (scaled ? kScaled : 0) | (request.root != GlobalRank(0) ? kRooted : 0) |
         (request.device != kHostDevice ? kOnDevice : 0) | (request.notice != 0 ? kIsNotice : 0);
}

}  // namespace

void Put(const std::vector<int64_t>& dims, Encoder* out) {
  out->Varint(dims.size());
  for (int64_t dim : dims) out->Varint(static_cast<uint64_t>(dim));
}

void Take(Decoder* in, const char* field, size_t max, std::vector<int64_t>* dims) {
  dims->resize(in->Count(field, 1, max));
  for (int64_t& dim : *dims) dim = static_cast<int64_t>(in->Varint(field, kMaxDim));
}

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

void PutRun(uint32_t count, Encoder* out) { out->Varint(count - 1); }

uint32_t TakeRun(Decoder* in, uint32_t first) {
  const uint64_t more = in->Varint("run", kNoId - 1 - first);
  return static_cast<uint32_t>(more != 0 ? more : in->Fail("run")) + 1;
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
  if (tag & kIsNotice) out->Byte(request.notice);
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
  if (tag & kIsNotice) request->notice = in->Byte("notice");
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

void Put(const Head& head, Encoder* out) {
  out->Byte(kMessageVersion);
  out->Varint(head.number);
  out->Varint(head.join);
}

Status Take(Decoder* in, const char* message, uint64_t max_join, Head* head) {
  const uint8_t version = in->Byte("version");
  if (in->ok() && version != kMessageVersion) {
    return Status::Aborted(
        std::string("corrupt ") + message + ": version " + std::to_string(version) +
        " instead of " + std::to_string(kMessageVersion) + "; do all ranks run the same horovod?");
  }
  head->number = in->Varint("number");
  head->join = in->Varint("join", max_join);
  return Status::Ok();
}

}  // namespace hvd::negotiate
