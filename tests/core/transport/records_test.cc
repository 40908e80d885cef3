// Encrypted links: what travels, and what becomes of it when somebody on the way changes it.

#include "transport/tcp/records.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "check.h"
#include "transport/descriptor.h"
#include "transport/transport_sockets.h"

namespace hvd::test {
namespace {

using tcp::Gcm;
using tcp::kRecordBytes;
using tcp::RecordReader;
using tcp::RecordWriter;
using Bytes = std::vector<std::byte>;

std::unique_ptr<Gcm> Make(Gcm::Way way, const Key& key) {
  std::unique_ptr<Gcm> gcm;
  EXPECT_EQ(Gcm::Make(way, key, &gcm).message(), "");
  return gcm;
}

// Two ends, of which each test has the bytes between them in its hands.
struct Ends {
  explicit Ends(const Key& key = TestKey(0, 1)) : writer(Make(Gcm::Way::kSeal, key)) {
    const auto [a, b] = TcpPair();
    out = Descriptor(a);
    in = Descriptor(b);
  }

  Descriptor out, in;
  RecordWriter writer;
  RecordReader reader{Make(Gcm::Way::kOpen, TestKey(0, 1))};

  // What `text` becomes on the way.
  Bytes Encrypted(std::string text) {
    const iovec part{text.data(), text.size()};
    EXPECT_EQ(writer.Send(out.get(), &part, 1), static_cast<ssize_t>(text.size()));
    Bytes wire(4096);
    wire.resize(static_cast<size_t>(recv(in.get(), wire.data(), wire.size(), 0)));
    return wire;
  }

  // What the reader makes of bytes that arrive; -1 and errno.
  ssize_t Arrive(const Bytes& wire, std::string* text) {
    EXPECT_EQ(send(out.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
    return Read(text);
  }

  ssize_t Read(std::string* text) {
    text->assign(100, '\0');
    pollfd ready{in.get(), POLLIN, 0};
    poll(&ready, 1, 100);
    const iovec part{text->data(), text->size()};
    const ssize_t got = reader.Read(in.get(), &part, 1);
    text->resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return got;
  }
};

TEST(Records, HideWhatTheyCarry) {
  Ends ends;
  const std::string said = "a gradient that nobody else may read";
  std::string heard;
  const Bytes first = ends.Encrypted(said);
  EXPECT_EQ(ends.Arrive(first, &heard), static_cast<ssize_t>(said.size()));
  EXPECT_EQ(heard, said);
  const Bytes second = ends.Encrypted(said);
  EXPECT_TRUE(first != second);  // nobody sees that it was the same
  for (const Bytes& wire : {first, second}) {
    const std::string text(reinterpret_cast<const char*>(wire.data()), wire.size());
    EXPECT_TRUE(text.find("gradient") == std::string::npos);
  }
  EXPECT_EQ(ends.Arrive(second, &heard), static_cast<ssize_t>(said.size()));
}

TEST(Records, AnyBitThatChangesIsNoticed) {
  const size_t bytes = Ends().Encrypted("sixteen bytes...").size();
  for (size_t at = 0; at < bytes; ++at) {
    Ends ends;
    Bytes wire = ends.Encrypted("sixteen bytes...");
    wire[at] ^= std::byte{0x10};
    std::string heard;
    // A length that became longer waits for the rest, which does not come.
    EXPECT_EQ(ends.Arrive(wire, &heard), -1);
    EXPECT_TRUE(errno == EBADMSG || (at < 4 && errno == EAGAIN));
  }
}

TEST(Records, RepeatedOnesAndLostOnesAreNoticed) {
  for (const bool lost : {false, true}) {
    Ends ends;
    std::string heard;
    const Bytes first = ends.Encrypted("one");
    const Bytes second = ends.Encrypted("two");
    if (!lost) EXPECT_EQ(ends.Arrive(first, &heard), 3);
    EXPECT_EQ(ends.Arrive(lost ? second : first, &heard), -1);
    EXPECT_EQ(errno, EBADMSG);
  }
}

TEST(Records, OfAnotherKeyOrOfNoneAreNoticed) {
  Ends ends;
  std::string heard;
  EXPECT_EQ(ends.Arrive(Bytes(64, std::byte{0}), &heard), -1);
  EXPECT_EQ(errno, EBADMSG);
  EXPECT_EQ(ends.Arrive(Ends(TestKey(1, 0)).Encrypted("one"), &heard), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(Records, AnEndWithinOneIsNoticed) {
  Ends ends;
  std::string heard;
  Bytes wire = ends.Encrypted("one");
  wire.pop_back();
  EXPECT_EQ(ends.Arrive(wire, &heard), -1);
  EXPECT_EQ(errno, EAGAIN);
  ends.out = Descriptor();
  EXPECT_EQ(ends.Read(&heard), -1);
  EXPECT_EQ(errno, EPROTO);
}

// Through buffers that are full most of the time, in pieces of any size on both sides.
TEST(Records, CarryAStream) {
  Ends ends;
  std::mt19937 random(1);
  Bytes sent(5'000'000);
  for (std::byte& byte : sent) byte = static_cast<std::byte>(random());
  std::thread sender([&] {
    std::mt19937 sizes(2);
    for (size_t at = 0; at < sent.size();) {
      const size_t first = std::min<size_t>(sizes() % 200'000, sent.size() - at);
      const size_t second = std::min<size_t>(sizes() % 300, sent.size() - at - first);
      const iovec parts[2] = {{sent.data() + at, first}, {sent.data() + at + first, second}};
      if (first + second == 0) continue;
      ssize_t left;
      while ((left = ends.writer.Send(ends.out.get(), parts, 2)) < 0) {
        ASSERT_EQ(errno, EAGAIN);
        std::this_thread::yield();
      }
      at += static_cast<size_t>(left);
    }
    ends.out = Descriptor();
  });
  Bytes received(sent.size() + 1);
  size_t at = 0;
  while (true) {
    const size_t first = std::min<size_t>(random() % 100'000, received.size() - at);
    const size_t second = std::min<size_t>(random() % 100, received.size() - at - first);
    if (first + second == 0) continue;
    const iovec parts[2] = {{received.data() + at, first}, {received.data() + at + first, second}};
    const ssize_t got = ends.reader.Read(ends.in.get(), parts, 2);
    if (got == 0) break;
    ASSERT_TRUE(got > 0 || errno == EAGAIN);
    if (got > 0) at += static_cast<size_t>(got);
  }
  sender.join();
  received.resize(at);
  EXPECT_TRUE(received == sent);
}

}  // namespace
}  // namespace hvd::test
