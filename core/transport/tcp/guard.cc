#include "transport/tcp/guard.h"

#include "base/crc32c.h"

namespace hvd::tcp {

void Guard::Add(const std::byte* data, size_t bytes) {
  if (bytes_ == 0) begin_ = data;
  bytes_ += bytes;
  if (integrity_ == Integrity::kChecksum) checksum_ = Crc32c(data, bytes, checksum_);
}

Seal Guard::Finish() {
  Seal seal{};
  if (integrity_ == Integrity::kChecksum) {
    for (int i = 0; i < 4; ++i) seal[i] = static_cast<std::byte>(checksum_ >> (8 * i));
  } else {
    sealer_.Seal(begin_, bytes_, seal.data());
  }
  checksum_ = 0;
  bytes_ = 0;
  return seal;
}

bool Guard::Accepts(const std::byte* received) {
  return ConstantTimeEqual(Finish().data(), received, kSealBytes);
}

}  // namespace hvd::tcp
