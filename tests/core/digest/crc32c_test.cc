#include "digest/crc32c.h"

#include <random>
#include <string>
#include <vector>

#include "check.h"

namespace hvd {
namespace {

std::vector<crc32c::Function> Functions() {
  std::vector<crc32c::Function> functions = {Crc32c, crc32c::Portable};
  for (const crc32c::Function hardware : crc32c::Hardware()) functions.push_back(hardware);
  return functions;
}

// RFC 3720, B.4, and the customary check value.
TEST(crc32c, Vectors) {
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  for (crc32c::Function crc : Functions()) {
    EXPECT_EQ(crc("", 0, 0), 0u);
    EXPECT_EQ(crc("123456789", 9, 0), 0xe3069283u);
    EXPECT_EQ(crc(std::string(32, '\0').data(), 32, 0), 0x8a9136aau);
    EXPECT_EQ(crc(std::string(32, '\xff').data(), 32, 0), 0x62a8ab43u);
    EXPECT_EQ(crc(ascending.data(), 32, 0), 0x46dd794eu);
  }
}

uint32_t OneBitAtATime(const std::string& data) {
  uint32_t crc = ~0u;
  for (unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(crc32c, EveryLengthAndCutAgreesWithTheDefinition) {
  std::mt19937 random(31);
  std::string data;
  for (int length = 0; length < 300; ++length, data += static_cast<char>(random())) {
    const uint32_t expected = OneBitAtATime(data);
    const size_t cut = random() % (data.size() + 1);
    for (crc32c::Function crc : Functions()) {
      EXPECT_EQ(crc(data.data(), data.size(), 0), expected);
      EXPECT_EQ(crc(data.data() + cut, data.size() - cut, crc(data.data(), cut, 0)), expected);
    }
  }
}

// Long enough for several groups of streams of each length, with something left over.
TEST(crc32c, LongDataAtAnyAddressAgreesWithTheDefinition) {
  constexpr size_t kLongest = 60'000;
  std::mt19937 random(32);
  std::string data(kLongest + 64, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  for (int round = 0; round < 60; ++round) {
    const std::string part = data.substr(random() % 64, random() % kLongest);
    const uint32_t expected = OneBitAtATime(part);
    std::string shifted(random() % 17, '\0');
    const size_t offset = shifted.size();
    shifted += part;
    const char* at = shifted.data() + offset;
    const size_t cut = random() % (part.size() + 1);
    for (crc32c::Function crc : Functions()) {
      EXPECT_EQ(crc(at, part.size(), 0), expected);
      EXPECT_EQ(crc(at + cut, part.size() - cut, crc(at, cut, 0)), expected);
    }
  }
}

}  // namespace
}  // namespace hvd
