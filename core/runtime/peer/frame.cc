#include "runtime/peer/frame.h"

#include <string>

namespace hvd::peer {

namespace {

constexpr uint8_t kVersion = 2;

// Little endian, whatever the machine.
template <typename T>
std::byte* Put(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    *at++ = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  return at;
}

template <typename T>
const std::byte* Get(const std::byte* at, T* value) {
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) bits |= static_cast<uint64_t>(*at++) << (8 * i);
  *value = static_cast<T>(bits);
  return at;
}

}  // namespace

FrameHead Encode(const Frame& frame) {
  FrameHead head{};
  std::byte* at = Put(head.data(), static_cast<uint8_t>(frame.kind));
  at = Put(at, kVersion);
  at = Put(at, uint16_t{0});
  at = Put(at, frame.set);
  at = Put(at, frame.tag);
  at = Put(at, frame.number);
  at = Put(at, frame.bytes);
  at = Put(at, frame.matched);
  at = Put(at, frame.freed);
  at = Put(at, frame.inlined);
  Put(at, frame.notes);
  return head;
}

Status Decode(const std::byte* head, Frame* frame) {
  uint8_t kind;
  uint8_t version;
  uint16_t unused;
  const std::byte* at = Get(head, &kind);
  at = Get(at, &version);
  at = Get(at, &unused);
  at = Get(at, &frame->set);
  at = Get(at, &frame->tag);
  at = Get(at, &frame->number);
  at = Get(at, &frame->bytes);
  at = Get(at, &frame->matched);
  at = Get(at, &frame->freed);
  at = Get(at, &frame->inlined);
  Get(at, &frame->notes);
  if (kind == 0 || kind > kFrameKinds || version != kVersion) {
    return Status::Aborted("a frame of kind " + std::to_string(kind) + ", version " +
                           std::to_string(version));
  }
  frame->kind = static_cast<FrameKind>(kind);
  if (frame->inlined > frame->bytes) return Status::Aborted("a frame longer than its message");
  return Status::Ok();
}

}  // namespace hvd::peer
