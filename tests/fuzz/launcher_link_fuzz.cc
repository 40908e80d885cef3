// What a rank tells the launcher: frames that horovod/bootstrap can read, whatever the reason says;
// and what the launcher sends is read and dropped.

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/liveness/launcher_link.h"
#include "target.h"

namespace hvd {
namespace {

using namespace fuzz;

constexpr Key kKey{7, 8, 9};
constexpr size_t kMac = 32;

struct Pair {
  int ends[2];
  Pair() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0); }
};

// One for all inputs: making one costs more than everything else. Nothing is left in it at the end
// of an input.
Pair& ThePair() {
  static Pair& pair = *new Pair;
  return pair;
}

void CheckEnd(LauncherLink* launcher) {
  for (int reads = 0; launcher->fd() >= 0; ++reads) {
    REQUIRE(reads < 16);
    launcher->Ended();
  }
}

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

// Written apart from the product: a tag, a count, and so many fields with their lengths.
std::vector<std::string> Fields(std::string_view payload) {
  REQUIRE(payload.size() >= 5 && payload[0] == 4);
  std::vector<std::string> fields(BigEndian(payload.substr(1, 4)));
  payload.remove_prefix(5);
  for (std::string& field : fields) {
    REQUIRE(payload.size() >= 4);
    const size_t length = BigEndian(payload.substr(0, 4));
    REQUIRE(payload.size() - 4 >= length);
    field = payload.substr(4, length);
    payload.remove_prefix(4 + length);
  }
  REQUIRE(payload.empty());
  return fields;
}

void CheckFrame(int fd, uint64_t number, const Cause& cause) {
  char bytes[8192];
  const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
  REQUIRE(got > 0);
  const std::string_view frame(bytes, static_cast<size_t>(got));
  REQUIRE(frame.size() >= 4 + kMac && BigEndian(frame.substr(0, 4)) == frame.size() - 4 - kMac);
  const std::string_view payload = frame.substr(4 + kMac);
  char prefix[8];
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<char>(number >> (56 - 8 * i));
  const Digest mac = HmacSha256(kKey.data(), kKey.size())
                         .Mac(prefix, sizeof prefix, payload.data(), payload.size());
  REQUIRE(std::memcmp(mac.data(), frame.data() + 4, kMac) == 0);
  const std::vector<std::string> fields = Fields(payload);
  REQUIRE(fields.size() == 5);
  REQUIRE(fields[0] == std::to_string(static_cast<int>(cause.kind)));
  REQUIRE(fields[1] == std::to_string(cause.culprit.value()) &&
          fields[2] == std::to_string(cause.other.value()));
  REQUIRE(fields[3] == std::to_string(static_cast<int>(cause.link)));
  REQUIRE(fields[4] == cause.reason.str().substr(0, 4096));
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  fuzz::Input input(data, size);
  const Pair& pair = ThePair();
  Link link;
  link.fd = dup(pair.ends[0]);  // the link closes its own
  link.send_key = kKey;
  LauncherLink launcher(link);
  for (uint64_t number = 0; !input.empty() && number < 4; ++number) {
    Cause cause;
    cause.kind = static_cast<CauseKind>(1 + input.Below(kCauseKinds));
    cause.culprit = GlobalRank(static_cast<int>(input.Number()));
    cause.other = GlobalRank(static_cast<int>(input.Number()));
    cause.link = static_cast<LinkRole>(input.Below(4));
    const bool is_long = (input.Byte() & 7) == 7;
    cause.reason = std::string(is_long ? 4000 : 0, 'r') + std::string(input.Text(300));
    launcher.Report(cause);
    CheckFrame(pair.ends[1], number, cause);
    const std::string_view noise = input.Text(16);
    if (!noise.empty()) REQUIRE(send(pair.ends[1], noise.data(), noise.size(), 0) > 0);
    REQUIRE(!launcher.Ended());
  }
  if (size % 64 == 0) {
    Pair other;
    Link ending;
    ending.fd = other.ends[0];
    LauncherLink ended(ending);
    REQUIRE(send(other.ends[1], data, size, 0) == static_cast<ssize_t>(size));
    close(other.ends[1]);
    CheckEnd(&ended);
  }
  return 0;
}
