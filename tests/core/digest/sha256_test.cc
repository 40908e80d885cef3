#include "digest/sha256.h"

#include <string>

#include "check.h"

namespace hvd {
namespace {

std::string Hex(const Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string Hash(const std::string& message, size_t part) {
  Sha256 hash;
  for (size_t i = 0; i < message.size(); i += part) {
    const std::string piece = message.substr(i, part);
    hash.Update(piece.data(), piece.size());
  }
  return Hex(hash.Finish());
}

std::string Mac(const std::string& key, const std::string& message) {
  return Hex(HmacSha256(key.data(), key.size()).Mac(message.data(), message.size()));
}

// FIPS 180-4 examples, in pieces of several lengths.
TEST(sha256, Fips) {
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  for (size_t part : {1, 3, 55, 56, 63, 64, 65, 1000}) {
    EXPECT_EQ(Hash("", part), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(Hash("abc", part),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(Hash(two_blocks, part),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(Hash(std::string(1'000'000, 'a'), part),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

// RFC 4231, cases 1 to 4, 6 and 7 (5 is a truncated output).
TEST(sha256, HmacRfc4231) {
  std::string ascending;
  for (char c = 1; c <= 25; ++c) ascending += c;
  EXPECT_EQ(Mac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Mac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Mac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(Mac(ascending, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  const std::string long_key(131, '\xaa');
  EXPECT_EQ(Mac(long_key, "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(Mac(long_key,
                "This is a test using a larger than block-size key and a larger than block-size "
                "data. The key "
                "needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(sha256, HmacOfTwoPartsIsThatOfTheWhole) {
  const HmacSha256 hmac("key", 3);
  const std::string message(200, 'm');
  const std::string whole = Hex(hmac.Mac(message.data(), message.size()));
  for (size_t cut : {0, 1, 63, 64, 65, 200}) {
    EXPECT_EQ(Hex(hmac.Mac(message.data(), cut, message.data() + cut, message.size() - cut)),
              whole);
  }
}

TEST(sha256, ConstantTimeEqual) {
  std::string a(16, 'x');
  EXPECT_TRUE(ConstantTimeEqual(a.data(), std::string(16, 'x').data(), 16));
  for (size_t i = 0; i < a.size(); ++i) {
    std::string b = a;
    b[i] ^= 0x40;
    EXPECT_FALSE(ConstantTimeEqual(a.data(), b.data(), 16));
  }
}

}  // namespace
}  // namespace hvd
