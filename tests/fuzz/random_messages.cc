#include "random_messages.h"

#include <algorithm>
#include <cstring>

namespace hvd::fuzz {
namespace {

using namespace negotiate;

int64_t AnyDim(Input* input) { return static_cast<int64_t>(input->Number() >> 1); }

std::string AnyName(Input* input) {
  constexpr const char* kNames[] = {"w", "b", "conv/kernel:0", "v"};
  const size_t which = input->Below(6);
  return which < 4 ? kNames[which] : std::string(input->Text(kMaxNameBytes - 1));
}

Shape AnyShape(Input* input) {
  const Shape usual[] = {{4}, {4, 2}, {}, {0}, {3, 0, 5}};
  const size_t which = input->Below(7);
  if (which < std::size(usual)) return usual[which];
  Shape shape(input->Below(kMaxDims + 1));
  for (int64_t& dim : shape) dim = AnyDim(input);
  return shape;
}

double AnyFactor(Input* input) {
  const uint64_t bits = input->Number();
  if (bits < 0xE0) return static_cast<double>(bits) / 2;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool SameRequest(const Request& a, const Request& b) {
  return a.kind == b.kind && a.reduce_op == b.reduce_op && SameBits(a.prescale, b.prescale) &&
         SameBits(a.postscale, b.postscale) && a.root == b.root && a.device == b.device &&
         a.name == b.name && a.tensors == b.tensors && a.notice == b.notice;
}

bool SameVariant(const Variant& a, const Variant& b) {
  return a.id == b.id && SameRequest(a.request, b.request) && a.senders == b.senders;
}

bool SameAnnouncement(const Announcement& a, const Announcement& b) {
  return a.id == b.id && a.count == b.count && a.ordinal == b.ordinal && a.sizes == b.sizes &&
         SameRequest(a.request, b.request) && a.last == b.last && a.waited == b.waited &&
         std::equal(a.variants.begin(), a.variants.end(), b.variants.begin(), b.variants.end(),
                    SameVariant);
}

bool SameWaiting(const Waiting& a, const Waiting& b) {
  return a.name == b.name && a.ordinal == b.ordinal && a.kind == b.kind && a.waited == b.waited &&
         a.ready == b.ready;
}

bool SameList(const std::vector<Waiting>& a, const std::vector<Waiting>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameWaiting);
}

bool SameDecision(const Decision& a, const Decision& b) {
  return a.id == b.id && a.count == b.count && a.known == b.known && a.name == b.name &&
         a.ordinal == b.ordinal && a.error == b.error && a.notice == b.notice &&
         a.sizes == b.sizes && a.partial == b.partial &&
         a.request.has_value() == b.request.has_value() &&
         (!a.request || SameRequest(*a.request, *b.request));
}

Shape AnySizes(Input* input) {
  Shape sizes(input->Below(12));
  for (int64_t& size : sizes) size = AnyDim(input);
  return sizes;
}

// Of a run that begins with this id.
uint32_t AnyCount(Input* input, uint32_t id) {
  const uint64_t most = kNoId - id;
  const uint64_t count = input->Below(2) == 0 ? 1 : input->Number();
  return static_cast<uint32_t>(std::min(std::max<uint64_t>(count, 1), most));
}

Decision AnyDecision(Input* input) {
  Decision decision;
  const uint8_t what = input->Byte();
  decision.known = (what & 1) != 0;
  decision.partial = (what & 2) != 0;
  if ((what & 4) != 0 || decision.known)
    decision.id = static_cast<uint32_t>(input->Number() % kNoId);
  if ((what & 8) != 0) decision.ordinal = std::max<uint64_t>(input->Number(), 1);
  if ((what & 16) != 0) decision.error = "e" + std::string(input->Text(kMaxErrorBytes - 1));
  if (!decision.error.empty()) decision.known = false, decision.id = kNoId;
  if (!decision.error.empty() && (what & 32) != 0) decision.notice = input->Byte() | 1;
  if (!decision.known && decision.ordinal == 0) decision.name = "n" + AnyName(input);
  if (decision.error.empty()) decision.sizes = AnySizes(input);
  if (decision.partial && !decision.known && decision.error.empty())
    decision.request = AnyRequest(input);
  if (IsRun(decision)) decision.count = AnyCount(input, decision.id);
  return decision;
}

}  // namespace

Request AnyRequest(Input* input) {
  Request request;
  const uint8_t what = input->Byte();
  request.kind = static_cast<OpKind>(input->Below(static_cast<size_t>(OpKind::kReducescatter) + 1));
  if ((what & 1) != 0) request.reduce_op = static_cast<ReduceOp>(input->Below(6));
  if ((what & 2) != 0) request.prescale = AnyFactor(input);
  if ((what & 4) != 0) request.postscale = AnyFactor(input);
  if ((what & 8) != 0) request.root = GlobalRank(static_cast<int32_t>(input->Number()));
  if ((what & 16) != 0) {
    const uint64_t device = input->Number();
    request.device =
        (device & 1) != 0 ? kStagedDevice : static_cast<int32_t>(device >> 1 & 0x7fffffff);
  }
  if ((what & 32) == 0) request.name = AnyName(input);
  if ((what & 128) != 0) request.notice = input->Byte();
  for (size_t count = (what & 64) != 0 ? input->Below(5) : 1; count > 0; --count) {
    TensorMeta& tensor = request.tensors.emplace_back();
    tensor.dtype = static_cast<DataType>(input->Below(kDataTypes));
    tensor.shape = AnyShape(input);
  }
  return request;
}

Position AnyPosition(Input* input) {
  const uint64_t number = input->Number();
  return Position(static_cast<int>(number < 0x7fffffff ? number : number % 16));
}

// Not empty.
Positions AnyPositions(Input* input) {
  Positions positions;
  for (size_t runs = 1 + input->Below(3); runs > 0; --runs) {
    const int first = AnyPosition(input).value();
    const int count = 1 + static_cast<int>(input->Below(5));
    positions.Add(Positions::Range(std::min(first, 0x7fffffff - 8), count));
  }
  return positions;
}

void Vary(Input* input, Announcement* announcement) {
  announcement->id = kNoId;
  announcement->request = {};
  for (size_t count = 1 + input->Below(3); count > 0; --count) {
    Variant& variant = announcement->variants.emplace_back();
    variant.senders = AnyPositions(input);
    if ((input->Byte() & 1) != 0) {
      variant.id = static_cast<uint32_t>(input->Number() % kNoId);
    } else {
      variant.request = AnyRequest(input);
    }
  }
}

Waiting AnyWaiting(Input* input) {
  Waiting waiting;
  waiting.name = AnyName(input);
  waiting.ordinal = input->Number();
  waiting.kind = static_cast<OpKind>(input->Below(static_cast<size_t>(OpKind::kReducescatter) + 1));
  waiting.waited = static_cast<Micros>(input->Number() >> 1);
  waiting.ready = AnyPositions(input);
  return waiting;
}

Announcement AnyAnnouncement(Input* input) {
  Announcement announcement;
  const uint8_t what = input->Byte();
  if ((what & 1) != 0) {
    announcement.id = static_cast<uint32_t>(input->Number() % kNoId);
  } else {
    announcement.request = AnyRequest(input);
  }
  if ((what & 2) != 0) announcement.ordinal = std::max<uint64_t>(input->Number(), 1);
  if ((what & 4) != 0) announcement.sizes = AnySizes(input);
  if ((what & 8) != 0) {
    announcement.last = AnyPosition(input);
    announcement.waited = static_cast<Micros>(input->Number() >> 1);
  }
  if ((what & 16) != 0) Vary(input, &announcement);
  announcement.count = AnyRun(input, announcement);
  return announcement;
}

uint32_t AnyRun(Input* input, const Announcement& announcement) {
  return IsRun(announcement) ? AnyCount(input, announcement.id) : 1;
}

AnnounceMessage AnyAnnouncements(Input* input) {
  AnnounceMessage message;
  message.all_urgent = message.some_urgent = input->Number();
  const uint8_t what = input->Byte();
  message.joins = (what & 1) != 0;
  if ((what & 2) != 0) message.some_urgent = std::max(message.all_urgent, input->Number());
  if ((what & 4) != 0) message.joined = AnyPositions(input);
  if ((what & 8) != 0) message.last = AnyPosition(input);
  if ((what & 16) != 0) message.waiting.emplace();
  if ((what & 32) != 0) message.waiting = {AnyWaiting(input)};
  message.epoch = input->Below(3);
  message.waits_for = input->Below(3);
  if (message.waits_for != 0 && (what & 64) != 0) message.waiters = AnyPositions(input);
  for (size_t count = input->Below(6); count > 0; --count) {
    message.announcements.push_back(AnyAnnouncement(input));
  }
  return message;
}

Schedule AnySchedule(Input* input) {
  Schedule schedule;
  schedule.batches.resize(1 + input->Below(3));
  for (std::vector<Slot>& batch : schedule.batches) {
    for (size_t count = 1 + input->Below(4); count > 0; --count) {
      Slot& slot = batch.emplace_back();
      slot.id = static_cast<uint32_t>(input->Below(8));
      slot.unnamed = input->Below(2) == 0;
      slot.sizes = AnySizes(input);
    }
  }
  return schedule;
}

Response AnyResponse(Input* input) {
  Response response;
  response.number = input->Number();
  response.last_joined = GlobalRank(static_cast<int32_t>(input->Number() & 0x7fffffff) - 1);
  for (size_t count = input->Below(6); count > 0; --count)
    response.decisions.push_back(AnyDecision(input));
  if (input->Below(4) == 0) response.schedule = AnySchedule(input);
  if (input->Below(4) == 0) response.policy = {input->Signed(), input->Signed()};
  return response;
}

bool Same(const AnnounceMessage& a, const AnnounceMessage& b) {
  return a.some_urgent == b.some_urgent && a.all_urgent == b.all_urgent && a.joins == b.joins &&
         a.joined == b.joined && a.last == b.last && a.epoch == b.epoch &&
         a.waits_for == b.waits_for && a.waiters == b.waiters &&
         a.waiting.has_value() == b.waiting.has_value() &&
         (!a.waiting || SameList(*a.waiting, *b.waiting)) &&
         std::equal(a.announcements.begin(), a.announcements.end(), b.announcements.begin(),
                    b.announcements.end(), SameAnnouncement);
}

bool Same(const Response& a, const Response& b) {
  return a.number == b.number && a.last_joined == b.last_joined &&
         std::equal(a.decisions.begin(), a.decisions.end(), b.decisions.begin(), b.decisions.end(),
                    SameDecision) &&
         a.schedule.batches == b.schedule.batches && a.policy == b.policy;
}

}  // namespace hvd::fuzz
