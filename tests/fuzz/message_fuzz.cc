// The messages of negotiation. Any bytes: refused with a reason, or a value whose encoding is
// exactly these bytes, because one message has one encoding. Any value that a sound rank may send:
// its encoding decodes to it. What is allocated is bounded by the length of the bytes.

#include <cstring>

#include "negotiate/message.h"
#include "random_messages.h"
#include "target.h"

namespace hvd::negotiate {
namespace {

using namespace fuzz;

// The largest element of a message, in memory, for each of its bytes on the wire; lists double as
// they grow.
constexpr size_t kPerByte = 2 * sizeof(Decision);
constexpr size_t kBase =
    3 * 1024 * sizeof(Decision);  // room that is made before the elements are read

template <typename Message>
void CheckBytes(std::string_view bytes) {
  Message message;
  Memory::Restart();
  const size_t before = Memory::Live();
  const Status status = Decode(bytes, &message);
  REQUIRE(Memory::Peak() - before <= kBase + kPerByte * bytes.size());
  if (!status.ok()) {
    REQUIRE(status.code() == Code::kAborted && Contains(status.message(), "corrupt "));
    return;
  }
  std::string again;
  Encode(message, &again);
  REQUIRE(again == bytes);
}

template <typename Message>
void CheckValue(const Message& message) {
  std::string bytes;
  Encode(message, &bytes);
  Message decoded;
  const Status status = Decode(bytes, &decoded);
  REQUIRE_THAT(status.ok(), status.message());
  REQUIRE(Same(message, decoded));
  // Every beginning of a message is no message.
  if (!bytes.empty()) {
    REQUIRE(!Decode(std::string_view(bytes).substr(0, bytes.size() - 1), &decoded).ok());
    REQUIRE(!Decode(bytes + '\0', &decoded).ok());
  }
}

}  // namespace
}  // namespace hvd::negotiate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::negotiate;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckBytes<AnnounceMessage>(bytes);
  CheckBytes<Response>(bytes);
  hvd::fuzz::Input input(data, size);
  if (input.Byte() & 1) {
    CheckValue(hvd::fuzz::AnyAnnouncements(&input));
  } else {
    CheckValue(hvd::fuzz::AnyResponse(&input));
  }
  return 0;
}
