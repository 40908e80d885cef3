#include "base/link.h"

#include <algorithm>
#include <cstring>

namespace hvd {

namespace {

Digest FrameMac(const HmacSha256& hmac, uint64_t number, const void* frame, size_t bytes) {
  uint8_t prefix[8];
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<uint8_t>(number >> 8 * i);
  return hmac.Mac(prefix, sizeof prefix, frame, bytes);
}

}  // namespace

std::vector<Link> Take(LinkRole role, std::vector<Link>* links) {
  const auto first = std::stable_partition(links->begin(), links->end(),
                                           [role](const Link& link) { return link.role != role; });
  std::vector<Link> taken(first, links->end());
  links->erase(first, links->end());
  return taken;
}

void Sealer::Seal(const void* frame, size_t bytes, void* mac) {
  const Digest digest = FrameMac(hmac_, number_++, frame, bytes);
  std::memcpy(mac, digest.data(), kSealBytes);
}

void Sealer::Seal(std::string* frame) {
  char mac[kSealBytes];
  Seal(frame->data(), frame->size(), mac);
  frame->append(mac, kSealBytes);
}

Status Opener::Open(const void* frame, size_t bytes, const void* mac) {
  const Digest digest = FrameMac(hmac_, number_, frame, bytes);
  lost_ = lost_ || !ConstantTimeEqual(digest.data(), mac, kSealBytes);
  if (lost_) {
    return Status::Aborted(
        "frame " + std::to_string(number_) +
        " of this link has a wrong seal: it was corrupted, forged, repeated or reordered");
  }
  ++number_;
  return Status::Ok();
}

Status Opener::Open(std::string_view sealed, std::string_view* frame) {
  if (sealed.size() < kSealBytes) {
    lost_ = true;
    return Status::Aborted("a sealed frame is shorter than its seal");
  }
  const size_t bytes = sealed.size() - kSealBytes;
  HVD_RETURN_IF_ERROR(Open(sealed.data(), bytes, sealed.data() + bytes));
  *frame = sealed.substr(0, bytes);
  return Status::Ok();
}

}  // namespace hvd
