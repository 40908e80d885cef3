#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hvd {

using Digest = std::array<uint8_t, 32>;

// FIPS 180-4. Copyable in mid-stream, which is what makes a keyed state reusable.
class Sha256 {
 public:
  void Update(const void* data, size_t bytes);
  Digest Finish();  // once

 private:
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t block_[64];
  uint64_t bytes_ = 0;
};

// RFC 2104. The key's two blocks are compressed once, so that a message of up to 55 bytes costs two
// compressions and not four.
class HmacSha256 {
 public:
  HmacSha256(const void* key, size_t bytes);

  // Of the concatenation of both parts.
  Digest Mac(const void* first, size_t first_bytes, const void* second = nullptr,
             size_t second_bytes = 0) const;

 private:
  Sha256 inner_;
  Sha256 outer_;
};

// In a time that does not depend on where the first difference is.
bool ConstantTimeEqual(const void* a, const void* b, size_t bytes);

}  // namespace hvd
