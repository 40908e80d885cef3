// Sealed frames: what was sealed opens once and in order; anything else does not open.

#include <cstring>
#include <vector>

#include "base/link.h"
#include "digest/sha256.h"
#include "target.h"
#include "transport/tcp/frame.h"

namespace hvd {
namespace {

using namespace fuzz;

constexpr Key kKey{1, 2, 3};

// Another for every input. A fuzzer learns seals from the comparisons that it watches, and with one
// key for all it would put a valid one into the next input.
Key KeyOf(const uint8_t* data, size_t size) {
  Sha256 hash;
  hash.Update(data, size);
  const Digest digest = hash.Finish();
  Key key;
  std::memcpy(key.data(), digest.data(), key.size());
  return key;
}

// Frames that arrive as the input says: as sent, changed, twice, out of order, or cut.
void CheckStream(const Key& key, Input* input) {
  Sealer sealer(key);
  Opener opener(key);
  std::vector<std::string> frames;
  size_t opened = 0;
  bool lost = false;  // something came that was not the next frame
  while (!input->empty() && frames.size() < 8) {
    const uint8_t what = input->Byte();
    const std::string body(input->Text(64));
    std::string& frame = frames.emplace_back(body);
    sealer.Seal(&frame);
    std::string arrives = frame;
    if ((what & 3) == 1) arrives[what % arrives.size()] ^= static_cast<char>(1 << (what >> 5));
    if ((what & 3) == 2) arrives = frames[what % frames.size()];
    if ((what & 3) == 3) arrives.resize(what % arrives.size());
    std::string_view got;
    const Status status = opener.Open(arrives, &got);
    lost = lost || arrives != frames[opened];
    REQUIRE(status.ok() == !lost);
    if (!status.ok()) {
      REQUIRE(status.code() == Code::kAborted && !status.message().empty());
    } else {
      REQUIRE(got == body);
      ++opened;
    }
  }
}

bool SameHeader(const tcp::FrameHeader& a, const tcp::FrameHeader& b) {
  return a.generation == b.generation && a.tag == b.tag && a.length == b.length;
}

// A header as its fields say: it comes back, or its numbers are refused. One bit changed: refused.
void CheckHeader(Input* input) {
  const auto integrity = input->Byte() & 1 ? tcp::Integrity::kSealed : tcp::Integrity::kChecksum;
  const size_t flip = input->Number() % (8 * tcp::kPrefixBytes);
  tcp::FrameHeader header;
  const uint32_t generation = static_cast<uint32_t>(input->Number());
  header.generation = generation;
  header.tag = {static_cast<uint32_t>(input->Number()), input->Number(),
                static_cast<uint32_t>(input->Number())};
  header.length = static_cast<uint32_t>(input->Number());
  tcp::Guard writer(integrity, kKey);
  tcp::Prefix prefix = tcp::Encode(header, &writer);
  tcp::Guard reader(integrity, kKey);
  tcp::FrameHeader got;
  const Status status = tcp::Decode(prefix.data(), generation, &reader, &got);
  REQUIRE(status.ok() == (header.length <= kMaxFrame));
  if (status.ok()) REQUIRE(SameHeader(got, header));
  tcp::Guard other(integrity, kKey);
  REQUIRE(tcp::Decode(prefix.data(), generation + 1, &other, &got).code() == Code::kAborted);
  prefix[flip / 8] ^= static_cast<std::byte>(1 << flip % 8);
  tcp::Guard third(integrity, kKey);
  REQUIRE(tcp::Decode(prefix.data(), generation, &third, &got).code() == Code::kAborted);
}

// Any bytes as a header, under a checksum that fits them: what is taken is written as it came, but
// for the bytes that have no meaning.
void CheckBytes(Input* input) {
  tcp::Prefix prefix{};
  const std::string_view bytes = input->Text(tcp::kHeaderBytes);
  if (!bytes.empty()) std::memcpy(prefix.data(), bytes.data(), bytes.size());
  tcp::Guard writer(tcp::Integrity::kChecksum, kKey);
  writer.Add(prefix.data(), tcp::kHeaderBytes);
  const tcp::Trailer trailer = writer.Finish();
  std::memcpy(prefix.data() + tcp::kHeaderBytes, trailer.data(), trailer.size());
  tcp::Guard reader(tcp::Integrity::kChecksum, kKey);
  tcp::FrameHeader header;
  const Status status = tcp::Decode(prefix.data(), 7, &reader, &header);
  if (!status.ok()) {
    REQUIRE(status.code() == Code::kAborted && !status.message().empty());
    return;
  }
  REQUIRE(header.length <= kMaxFrame && header.generation == 7);
  tcp::Guard again(tcp::Integrity::kChecksum, kKey);
  tcp::Prefix written = tcp::Encode(header, &again);
  tcp::Guard check(tcp::Integrity::kChecksum, kKey);
  tcp::FrameHeader same;
  REQUIRE(tcp::Decode(written.data(), 7, &check, &same).ok() && SameHeader(same, header));
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::fuzz::Input input(data, size);
  hvd::CheckBytes(&input);
  hvd::CheckHeader(&input);
  hvd::CheckStream(hvd::KeyOf(data, size), &input);
  return 0;
}
