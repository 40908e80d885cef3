#include <random>

#include "check.h"
#include "runtime/control/stream.h"

namespace hvd {
namespace {

// Messages of all sizes, larger than the ring too, come out as they went in whatever the
// interleaving.
TEST(ByteRing, KeepsMessagesWhole) {
  constexpr size_t kCapacity = 4096;
  std::vector<std::byte> memory(kCapacity);
  RingWriter writer;
  RingReader reader;
  writer.Attach(memory.data(), kCapacity);
  reader.Attach(memory.data(), kCapacity);
  std::mt19937 random(7);
  std::vector<std::string> sent;
  size_t received = 0;
  while (received < 500) {
    if (sent.size() < 500 && random() % 2 == 0) {
      sent.emplace_back(random() % (random() % 10 == 0 ? 20000 : 300), static_cast<char>(random()));
      writer.Append(sent.back());
    }
    writer.Write(reader.head());
    if (random() % 3 != 0) EXPECT_TRUE(reader.Read(writer.tail()));
    std::string message;
    while (reader.Next(&message) == MessageAssembler::Next::kMessage) {
      ASSERT_TRUE(received < sent.size());
      EXPECT_TRUE(message == sent[received++]);
    }
  }
}

TEST(ByteRing, RefusesAnImpossibleTailAndLength) {
  std::vector<std::byte> memory(64, std::byte{0xff});
  RingReader reader;
  reader.Attach(memory.data(), memory.size());
  EXPECT_FALSE(reader.Read(65));
  EXPECT_TRUE(reader.Read(8));
  std::string message;
  EXPECT_TRUE(reader.Next(&message) == MessageAssembler::Next::kCorrupt);
}

}  // namespace
}  // namespace hvd
