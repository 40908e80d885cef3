// Announcements of the children of an inner node, members and another node, some of which mean harm
// or have corrupt memory, in any order and number: the node refuses those that cannot be right and
// names the sender; what it takes, it turns into messages that its parent never refuses, and the
// answers to them are no surprise to it.

#include <algorithm>

#include "base/text.h"
#include "negotiate/coordinator.h"
#include "random_messages.h"
#include "target.h"
#include "utf8.h"

namespace hvd::negotiate {
namespace {

using namespace fuzz;

// Ranks 10 to 15: member 3 announces to the root; members 0 and 2 and the node of 1, 4 and 5 to the
// node that is looked at.
const Positions kBelow{0, 1, 2, 4, 5};
constexpr size_t kChildren = 3;

class Table {
 public:
  explicit Table(Input* input)
      : input_(input), root_(RootOptions(input), AtRoot()), node_(AtNode()) {}

  // False: somebody was refused.
  bool Step() {
    now_ += static_cast<Micros>(input_->Below(4)) * 400'000;
    const uint8_t what = input_->Byte();
    const size_t child = input_->Below(kChildren + 1);
    AnnounceMessage message;
    if ((what & 7) == 0) {
      if (!Decode(input_->Text(200), &message).ok()) return true;
    } else if ((what & 7) == 1) {
      message = AnyAnnouncements(input_);
    } else {
      Meet(what, child, &message);
    }
    Status status;
    if (child < kChildren) status = node_.Announce(child, std::move(message), now_);
    if (child == kChildren) status = root_.Announce(0, std::move(message), now_);
    if (!status.ok()) return Refused(status, child), false;
    if ((what & 0x80) != 0) node_.Look(now_);
    Carry();
    return true;
  }

  void End() {
    now_ += 10'000'000;
    node_.Look(now_);
    Carry();
    for (const Waiting& waiting : node_.Unready(now_)) {
      REQUIRE(!waiting.ready.empty() && kBelow.Includes(waiting.ready) && waiting.waited >= 0);
    }
    (void)root_.Pending(now_);
  }

 private:
  static SequencerOptions RootOptions(Input* input) {
    SequencerOptions options;
    options.members = {10, 11, 12, 13, 14, 15};
    options.cache_capacity = input->Below(4);
    return options;
  }
  static std::vector<MergerOptions::Child> AtRoot() {
    return {{GlobalRank(13), {3}}, {GlobalRank(10), kBelow}};
  }
  static MergerOptions AtNode() {
    MergerOptions options;
    options.children = {{GlobalRank(10), {0}}, {GlobalRank(12), {2}}, {GlobalRank(11), {1, 4, 5}}};
    return options;
  }

  // One announcement that others may make, too.
  void Meet(uint8_t what, size_t child, AnnounceMessage* message) {
    constexpr const char* kNames[] = {"w", "b", ""};
    const bool node = child == 2;
    message->joins = (what & 7) == 7;
    if ((what & 8) != 0) message->all_urgent = input_->Byte();
    message->some_urgent = std::max<uint64_t>(message->all_urgent, (what & 16) != 0 ? 2 : 0);
    if (node && message->joins) {
      message->joined = Positions{1, 4, 5}.Without(node_.joined());
      message->last = Position(4);
    } else if (node && (what & 32) != 0) {
      message->joined = {4};
    }
    if (message->joins) return;
    Announcement& announcement = message->announcements.emplace_back();
    Request& request = announcement.request;
    request.kind = static_cast<OpKind>(input_->Below(6));
    request.name = kNames[input_->Below(3)];
    const Shape shapes[] = {{4}, {4, 2}, {}};
    request.tensors.push_back({DataType::kFloat32, shapes[input_->Below(3)]});
    if (request.name.empty()) announcement.ordinal = 1 + input_->Below(3);
    const size_t each = request.kind == OpKind::kAllgather ? 1 : 0;
    for (size_t i = 0; i < (node ? 3 : 1) * each; ++i)
      announcement.sizes.push_back(static_cast<int64_t>(input_->Byte()));
    if ((what & 7) == 6) {
      announcement.id = static_cast<uint32_t>(input_->Below(4));
      announcement.request = {};
      announcement.count = AnyRun(input_, announcement);
    }
    if (node && (what & 7) == 5) Vary(&announcement);
    if (node && (what & 64) != 0) announcement.last = Position(5), announcement.waited = 5000;
  }

  void Vary(Announcement* announcement) {
    Variant& first = announcement->variants.emplace_back();
    first.request = std::exchange(announcement->request, {});
    first.senders = Positions{1, 4, 5};
    if ((input_->Byte() & 1) == 0) return;
    Variant second = first;
    first.senders = {1, 5};
    second.senders = {4};
    second.request.tensors.push_back({DataType::kInt8, {1}});
    announcement->sizes.clear();
    announcement->variants.push_back(second);
  }

  void Refused(const Status& status, size_t child) const {
    constexpr const char* kNames[] = {"rank 10 ", "rank 12 ", "rank 11 ", "rank 13 "};
    REQUIRE(status.code() == Code::kAborted);
    REQUIRE_THAT(Contains(status.message(), kNames[child]), status.message());
    REQUIRE(IsHarmless(status.message()) && status.message().size() < 1024);
  }

  // Up to the root, and its responses down.
  void Carry() {
    for (AnnounceMessage merged; node_.Take(&merged);) {
      std::string bytes;
      Encode(merged, &bytes);
      AnnounceMessage read;
      const Status decoded = Decode(bytes, &read);
      REQUIRE_THAT(decoded.ok(), decoded.message());
      REQUIRE(Same(merged, read));
      const Status taken = root_.Announce(1, std::move(read), now_);
      REQUIRE_THAT(taken.ok(), taken.message());
    }
    while (const std::optional<Response> response = root_.Next(now_)) {
      const Status passed = node_.Pass(*response);
      REQUIRE_THAT(passed.ok(), passed.message());
    }
  }

  Input* input_;
  Coordinator root_;
  Merger node_;
  Micros now_ = 0;
};

}  // namespace
}  // namespace hvd::negotiate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hvd::fuzz::Memory;
  constexpr size_t kBase = 512 << 10;
  constexpr size_t kPerByte = 8192;
  hvd::fuzz::Input input(data, size);
  Memory::Restart();
  const size_t before = Memory::Live();
  hvd::negotiate::Table table(&input);
  bool more = true;
  for (int steps = 0; more && steps < 24 && !input.empty(); ++steps) more = table.Step();
  if (more) table.End();
  REQUIRE(Memory::Peak() - before <= kBase + kPerByte * size);
  return 0;
}
