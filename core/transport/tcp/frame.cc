#include "transport/tcp/frame.h"

#include <cstring>
#include <string>

#include "digest/crc32c.h"

namespace hvd::tcp {

namespace {

constexpr uint32_t kMagic = 0x01445648;  // "HVD", version 1

// Little endian, whatever the machine.
template <typename T>
std::byte* Put(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) *at++ = static_cast<std::byte>(value >> (8 * i));
  return at;
}

template <typename T>
const std::byte* Get(const std::byte* at, T* value) {
  *value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) *value |= static_cast<T>(*at++) << (8 * i);
  return at;
}

}  // namespace

void Guard::Add(const std::byte* data, size_t bytes) {
  if (bytes_ == 0) begin_ = data;
  bytes_ += bytes;
  if (integrity_ == Integrity::kChecksum) checksum_ = Crc32c(data, bytes, checksum_);
}

Trailer Guard::Finish() {
  Trailer trailer{};
  if (integrity_ == Integrity::kChecksum) {
    for (int i = 0; i < 4; ++i) trailer[i] = static_cast<std::byte>(checksum_ >> (8 * i));
  } else {
    sealer_.Seal(begin_, bytes_, trailer.data());
  }
  checksum_ = 0;
  bytes_ = 0;
  return trailer;
}

bool Guard::Accepts(const std::byte* received) {
  return ConstantTimeEqual(Finish().data(), received, kSealBytes);
}

Prefix Encode(const FrameHeader& header, Guard* guard) {
  Prefix prefix{};
  std::byte* at = Put(prefix.data(), kMagic);
  at = Put(at, header.generation);
  at = Put(at, header.tag.set);
  at = Put(at, header.tag.chunk);
  at = Put(at, header.tag.sequence);
  Put(at, header.length);
  guard->Add(prefix.data(), kHeaderBytes);
  const Trailer trailer = guard->Finish();
  std::memcpy(prefix.data() + kHeaderBytes, trailer.data(), trailer.size());
  return prefix;
}

Status Decode(const std::byte* prefix, uint32_t generation, Guard* guard, FrameHeader* out) {
  guard->Add(prefix, kHeaderBytes);
  if (!guard->Accepts(prefix + kHeaderBytes)) return Status::Aborted("corrupt frame header");
  uint32_t magic;
  FrameHeader header;
  const std::byte* at = Get(prefix, &magic);
  at = Get(at, &header.generation);
  at = Get(at, &header.tag.set);
  at = Get(at, &header.tag.chunk);
  at = Get(at, &header.tag.sequence);
  Get(at, &header.length);
  if (magic != kMagic) return Status::Aborted("a frame of another protocol");
  if (header.generation != generation) {
    return Status::Aborted("a frame of generation " + std::to_string(header.generation) +
                           ", here is " + std::to_string(generation));
  }
  if (header.length > kMaxFrame) {
    return Status::Aborted("a frame of " + std::to_string(header.length) +
                           " bytes exceeds the limit");
  }
  *out = header;
  return Status::Ok();
}

}  // namespace hvd::tcp
