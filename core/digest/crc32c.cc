#include "digest/crc32c.h"

#include <array>

namespace hvd {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

// Row k advances a byte by k further bytes of zeros, so that eight look-ups take eight bytes at
// once.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (int row = 1; row < 8; ++row) {
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[row - 1][byte];
      tables[row][byte] = crc >> 8 ^ tables[0][crc & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t LoadLittleEndian(const uint8_t* at) {
  return at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
}

}  // namespace

uint32_t crc32c::Portable(const void* data, size_t bytes, uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~before;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const uint32_t low = crc ^ LoadLittleEndian(at);
    const uint32_t high = LoadLittleEndian(at + 4);
    crc = 0;
    for (int i = 0; i < 4; ++i) {
      crc ^= kTables[7 - i][low >> 8 * i & 255] ^ kTables[3 - i][high >> 8 * i & 255];
    }
  }
  for (; bytes > 0; ++at, --bytes) crc = crc >> 8 ^ kTables[0][(crc ^ *at) & 255];
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t bytes, uint32_t before) {
  static const crc32c::Function best = [] {
    const std::vector<crc32c::Function> usable = crc32c::Hardware();
    return usable.empty() ? crc32c::Portable : usable.front();
  }();
  return best(data, bytes, before);
}

}  // namespace hvd
