#include "digest/sha256.h"

#include <algorithm>
#include <cstring>

namespace hvd {

namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t kBlock = 64;

uint32_t Rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

uint32_t LoadBigEndian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

void StoreBigEndian(uint8_t* at, uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

void Expand(const uint8_t* block, uint32_t (&w)[64]) {
  for (int i = 0; i < 16; ++i) w[i] = LoadBigEndian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = Rotate(w[i - 15], 7) ^ Rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = Rotate(w[i - 2], 17) ^ Rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
}

}  // namespace

void Sha256::Compress(const uint8_t* block) {
  uint32_t w[64];
  Expand(block, w);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::Update(const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const size_t held = bytes_ % kBlock;
    if (held == 0 && bytes >= kBlock) {
      Compress(at);
      at += kBlock, bytes -= kBlock, bytes_ += kBlock;
      continue;
    }
    const size_t part = std::min(bytes, kBlock - held);
    std::memcpy(block_ + held, at, part);
    at += part, bytes -= part, bytes_ += part;
    if (bytes_ % kBlock == 0) Compress(block_);
  }
}

Digest Sha256::Finish() {
  const uint64_t bits = bytes_ * 8;
  uint8_t padding[kBlock + 8] = {0x80};
  const size_t zeros = (kBlock + 55 - bytes_ % kBlock) % kBlock;
  StoreBigEndian(padding + 1 + zeros, static_cast<uint32_t>(bits >> 32));
  StoreBigEndian(padding + 5 + zeros, static_cast<uint32_t>(bits));
  Update(padding, 9 + zeros);
  Digest digest;
  for (int i = 0; i < 8; ++i) StoreBigEndian(digest.data() + 4 * i, state_[i]);
  return digest;
}

HmacSha256::HmacSha256(const void* key, size_t bytes) {
  uint8_t block[kBlock] = {};
  if (bytes <= kBlock) {
    if (bytes > 0) std::memcpy(block, key, bytes);
  } else {
    Sha256 hash;
    hash.Update(key, bytes);
    const Digest digest = hash.Finish();
    std::copy(digest.begin(), digest.end(), block);
  }
  for (uint8_t& byte : block) byte ^= 0x36;
  inner_.Update(block, kBlock);
  for (uint8_t& byte : block) byte ^= 0x36 ^ 0x5c;
  outer_.Update(block, kBlock);
}

Digest HmacSha256::Mac(const void* first, size_t first_bytes, const void* second,
                       size_t second_bytes) const {
  Sha256 inner = inner_;
  inner.Update(first, first_bytes);
  inner.Update(second, second_bytes);
  const Digest digest = inner.Finish();
  Sha256 outer = outer_;
  outer.Update(digest.data(), digest.size());
  return outer.Finish();
}

bool ConstantTimeEqual(const void* a, const void* b, size_t bytes) {
  const auto* x = static_cast<const volatile uint8_t*>(a);
  const auto* y = static_cast<const volatile uint8_t*>(b);
  uint8_t difference = 0;
  for (size_t i = 0; i < bytes; ++i) difference |= x[i] ^ y[i];
  return difference == 0;
}

}  // namespace hvd
