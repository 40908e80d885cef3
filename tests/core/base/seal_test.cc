#include "base/link.h"

#include <vector>

#include "check.h"

namespace hvd {
namespace {

Key MakeKey(uint8_t byte) {
  Key key;
  key.fill(byte);
  return key;
}

std::string Sealed(Sealer* sealer, std::string frame) {
  sealer->Seal(&frame);
  return frame;
}

TEST(seal, FramesOpenInOrder) {
  Sealer sealer(MakeKey(1));
  Opener opener(MakeKey(1));
  for (const std::string& frame : {std::string("first"), std::string(), std::string(5000, 'z')}) {
    const std::string sealed = Sealed(&sealer, frame);
    EXPECT_EQ(sealed.size(), frame.size() + kSealBytes);
    std::string_view opened;
    ASSERT_OK(opener.Open(sealed, &opened));
    EXPECT_EQ(opened, std::string_view(frame));
  }
}

TEST(seal, EqualFramesHaveDifferentSeals) {
  Sealer sealer(MakeKey(1));
  EXPECT_FALSE(Sealed(&sealer, "same") == Sealed(&sealer, "same"));
}

TEST(seal, EveryFlippedBitIsFound) {
  const std::string sealed = [] {
    Sealer sealer(MakeKey(7));
    return Sealed(&sealer, "a frame");
  }();
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string bad = sealed;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    Opener opener(MakeKey(7));
    std::string_view frame;
    EXPECT_TRUE(opener.Open(bad, &frame).code() == Code::kAborted);
  }
}

TEST(seal, ReplayLossReorderAndWrongKeyAreErrors) {
  Sealer sealer(MakeKey(1));
  std::vector<std::string> sealed;
  for (int i = 0; i < 3; ++i) sealed.push_back(Sealed(&sealer, "frame " + std::to_string(i)));
  std::string_view frame;

  Opener replay(MakeKey(1));
  ASSERT_OK(replay.Open(sealed[0], &frame));
  EXPECT_FALSE(replay.Open(sealed[0], &frame).ok());

  Opener loss(MakeKey(1));
  ASSERT_OK(loss.Open(sealed[0], &frame));
  EXPECT_FALSE(loss.Open(sealed[2], &frame).ok());

  Opener reorder(MakeKey(1));
  EXPECT_FALSE(reorder.Open(sealed[1], &frame).ok());

  Opener stranger(MakeKey(2));
  EXPECT_FALSE(stranger.Open(sealed[0], &frame).ok());
}

TEST(seal, NothingOpensAfterAnError) {
  Sealer sealer(MakeKey(1));
  const std::string first = Sealed(&sealer, "first");
  std::string_view frame;
  for (const std::string& odd : {first + "x", first.substr(0, 5), std::string()}) {
    Opener opener(MakeKey(1));
    EXPECT_FALSE(opener.Open(odd, &frame).ok());
    EXPECT_TRUE(opener.Open(first, &frame).code() == Code::kAborted);
  }
}

TEST(seal, TooShortIsAnError) {
  Opener opener(MakeKey(1));
  std::string_view frame;
  EXPECT_FALSE(opener.Open(std::string(kSealBytes - 1, 'x'), &frame).ok());
  EXPECT_FALSE(opener.Open("", &frame).ok());
}

}  // namespace
}  // namespace hvd
