// Announcements of members that hold the secret and mean harm, or whose memory is corrupt, in any
// order and number: the sequencer refuses those that cannot be right and names the sender; what it
// takes, it answers with responses that every member can read, match with what it has announced,
// and size its memory by.

#include <algorithm>
#include <deque>
#include <map>

#include "base/text.h"
#include "negotiate/coordinator.h"
#include "negotiate/response_cache.h"
#include "random_messages.h"
#include "runtime/operation/result_sizes.h"
#include "target.h"
#include "utf8.h"

namespace hvd::negotiate {
namespace {

using namespace fuzz;

// What one member has in flight, as it would know it itself.
class Mirror {
 public:
  Mirror(size_t members, size_t position) : members_(members), position_(position), cache_(kNoId) {}

  // One that does harm may name an id before it has been told of it: so what it means is asked of
  // the sequencer.
  void Announced(const AnnounceMessage& message, const Merger& merger) {
    for (const Announcement& announcement : message.announcements) {
      for (Request& own : merger.RequestsIn(announcement)) {
        own.splits.clear();
        if (own.kind == OpKind::kAllgather) SetRows(announcement.sizes, &own);
        if (announcement.ordinal != 0) {
          unnamed_.emplace(announcement.ordinal, std::move(own));
        } else {
          named_.emplace(own.name, std::move(own));
        }
      }
    }
    joined_ |= message.joins;
  }

  // Carries out a decision as runtime/control/member and runtime/progress/executor do.
  void Decided(const Decision& decision) {
    Request own;
    const bool known = decision.known && decision.id < cache_.size();
    const std::string name = known ? cache_.At(decision.id).name : decision.name;
    const bool announced = Take(decision.ordinal, name, &own);
    REQUIRE_THAT(announced || (joined_ && decision.partial), Shown(name));
    if (!announced) {
      if (!decision.error.empty()) return;
      REQUIRE(known || decision.request);
      own = known ? cache_.At(decision.id) : *decision.request;
      own.splits.clear();
      if (own.kind == OpKind::kAllgather || own.kind == OpKind::kAlltoall) {
        for (TensorMeta& tensor : own.tensors) tensor.shape[0] = 0;
      }
    }
    if (!decision.known && decision.id != kNoId) {
      const Status learned = cache_.Learn(decision.id, own);
      REQUIRE_THAT(learned.ok(), learned.message());
    }
    if (decision.error.empty()) Size(own, decision);
  }

  void DecidedRun(Decision decision) {
    const uint32_t count = std::exchange(decision.count, 1);
    for (uint32_t i = 0; i < count; ++i, ++decision.id) Decided(decision);
  }

  void EndJoin() {
    REQUIRE(joined_ && unnamed_.empty());
    joined_ = false;
  }

 private:
  static void SetRows(const Shape& rows, Request* own) {
    for (size_t t = 0; t < std::min(rows.size(), own->tensors.size()); ++t) {
      if (!own->tensors[t].shape.empty()) own->tensors[t].shape[0] = rows[t];
    }
  }

  bool Take(uint64_t ordinal, const std::string& name, Request* own) {
    if (ordinal != 0) return TakeFrom(&unnamed_, ordinal, own);
    return TakeFrom(&named_, name, own);
  }
  template <typename Map, typename Key>
  static bool TakeFrom(Map* map, const Key& key, Request* own) {
    const auto found = map->find(key);
    if (found == map->end()) return false;
    *own = std::move(found->second);
    map->erase(found);
    return true;
  }

  void Size(const Request& own, const Decision& decision) const {
    if (!HasResultSizes(own.kind)) return;
    for (size_t t = 0; t < own.tensors.size(); ++t) {
      ResultSizes result;
      const Status status =
          FindResultSizes(own, "it", t, decision.sizes, static_cast<int>(members_),
                          static_cast<int>(position_), &result);
      REQUIRE_THAT(status.ok(), status.message());
    }
  }

  size_t members_;
  size_t position_;
  ResponseCache cache_;
  std::multimap<std::string, Request> named_;  // one that does harm repeats a name at once
  std::map<uint64_t, Request> unnamed_;
  bool joined_ = false;
};

class Table {
 public:
  explicit Table(Input* input)
      : input_(input), members_(Members(input)), root_(Options(input, members_)) {
    for (size_t m = 0; m < members_.size(); ++m) mirrors_.emplace_back(members_.size(), m);
  }

  // False: the sequencer is of no more use.
  bool Step() {
    now_ += static_cast<Micros>(input_->Below(4)) * 300;
    const size_t member = input_->Below(members_.size());
    AnnounceMessage message;
    const uint8_t what = input_->Byte();
    if ((what & 7) == 0) {
      if (!Decode(input_->Text(200), &message).ok()) return true;
    } else if ((what & 7) == 1) {
      message = AnyAnnouncements(input_);
    } else {
      Meet(what, &message);
    }
    const AnnounceMessage sent = message;
    const Status status = root_.Announce(member, std::move(message), now_);
    if (!status.ok()) return Refused(status, member), false;
    mirrors_[member].Announced(sent, root_.merger());
    Hear();
    if ((what & 0x80) != 0) Look();
    return true;
  }

  void End() {
    now_ += 1'000'000;
    Hear();
    Look();
  }

 private:
  static std::vector<int> Members(Input* input) {
    const std::vector<int> all{3, 5, 7};
    return {all.begin(), all.begin() + 1 + static_cast<std::ptrdiff_t>(input->Below(3))};
  }
  static SequencerOptions Options(Input* input, const std::vector<int>& members) {
    SequencerOptions options;
    options.members = hvd::Members(members);
    options.cache_capacity = input->Below(4);
    return options;
  }

  // One announcement that others may make, too.
  void Meet(uint8_t what, AnnounceMessage* message) {
    constexpr const char* kNames[] = {"w", "b", "\x1b[2J\n", ""};
    message->joins = (what & 7) == 7;
    message->some_urgent = message->all_urgent = (what & 8) != 0 ? input_->Byte() : 0;
    if (message->joins) return;
    Announcement& announcement = message->announcements.emplace_back();
    if ((what & 7) == 6) announcement.id = static_cast<uint32_t>(input_->Below(4));
    if ((what & 7) == 6 && (what & 16) != 0) {
      announcement.count = 1 + static_cast<uint32_t>(input_->Below(4));
      return;
    }
    Request& request = announcement.request;
    request.kind = static_cast<OpKind>(input_->Below(6));
    request.name = kNames[input_->Below(4)];
    for (size_t t = input_->Below(4) == 0 ? input_->Below(3) : 1; t > 0; --t) {
      const Shape shapes[] = {{4}, {4, 2}, {}, {2, 0}};
      request.tensors.push_back({DataType::kFloat32, shapes[input_->Below(4)]});
    }
    if (request.name.empty() || (what & 7) == 5) announcement.ordinal = 1 + input_->Below(4);
    const size_t sizes = request.kind == OpKind::kAllgather ? request.tensors.size() : 0;
    for (size_t i = 0; i < sizes; ++i) {
      announcement.sizes.push_back(static_cast<int64_t>(input_->Number() >> 1));
    }
    if (announcement.id != kNoId) announcement.request = {};
  }

  void Refused(const Status& status, size_t member) const {
    REQUIRE(status.code() == Code::kAborted);
    REQUIRE_THAT(Contains(status.message(), "rank " + std::to_string(members_[member]) + " "),
                 status.message());
    REQUIRE(IsHarmless(status.message()) && status.message().size() < 1024);
  }

  void Hear() {
    while (const std::optional<Response> response = root_.Next(now_)) {
      REQUIRE(response->number == ++number_);
      std::string bytes;
      Encode(*response, &bytes);
      Response read;
      const Status status = Decode(bytes, &read);
      REQUIRE_THAT(status.ok(), status.message());
      REQUIRE(Same(*response, read));
      for (Mirror& mirror : mirrors_) {
        for (const Decision& decision : response->decisions) mirror.DecidedRun(decision);
      }
      for (const Decision& decision : response->decisions) REQUIRE(IsHarmless(decision.error));
      if (!response->last_joined.known()) continue;
      for (Mirror& mirror : mirrors_) mirror.EndJoin();
    }
  }

  void Look() {
    for (const Unready& unready : root_.Pending(now_)) {
      REQUIRE(!unready.ready.empty() && unready.since <= now_);
      REQUIRE(unready.ready.size() + unready.absent.size() <= members_.size());
    }
    (void)root_.TakeStraggler(now_);
    (void)root_.Deadline();
  }

  Input* input_;
  std::vector<int> members_;
  Coordinator root_;
  std::deque<Mirror> mirrors_;
  Micros now_ = 0;
  uint64_t number_ = 0;
};

}  // namespace
}  // namespace hvd::negotiate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hvd::fuzz::Memory;
  constexpr size_t kBase = 256 << 10;
  constexpr size_t kPerByte = 4096;  // the least announcement of three members
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
