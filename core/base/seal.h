#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/link.h"
#include "base/sha256.h"
#include "base/status.h"

namespace hvd {

// A sealed frame is the frame and a truncated MAC over (number of the frame on this link, frame). The number
// is not sent: both sides count, so a frame that is forged, repeated, lost or out of order does not open.
constexpr size_t kSealBytes = 16;

class Sealer {
 public:
  explicit Sealer(const Key& key) : hmac_(key.data(), key.size()) {}

  void Seal(std::string* frame);                          // appends the MAC
  void Seal(const void* frame, size_t bytes, void* mac);  // writes the MAC of kSealBytes

 private:
  HmacSha256 hmac_;
  uint64_t number_ = 0;
};

// A link whose frame did not open is lost: after an error every later frame fails too.
class Opener {
 public:
  explicit Opener(const Key& key) : hmac_(key.data(), key.size()) {}

  Status Open(std::string_view sealed, std::string_view* frame);  // *frame = `sealed` less its MAC
  Status Open(const void* frame, size_t bytes, const void* mac);

 private:
  HmacSha256 hmac_;
  uint64_t number_ = 0;
  bool lost_ = false;
};

}  // namespace hvd
