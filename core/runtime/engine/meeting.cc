#include "runtime/engine/meeting.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "negotiate/agreement.h"
#include "negotiate/bytes/wire.h"

namespace hvd {

namespace {

constexpr size_t kNoteBytes = kMostNoteBytes;
constexpr size_t kMostText = 300;
constexpr size_t kMostPlace = 128;
constexpr uint64_t kLongestUs = uint64_t{1} << 60;
// A rank is late for one leg before others are for the next, and so the one that gets the blame.
constexpr int64_t kMostGraceUs = 5'000'000;

enum class Leg { kNumber, kPlace, kDone, kVerdict, kHere };

// How the meeting stands.
struct Note {
  uint32_t id = 0;
  uint32_t order = 0;
  int64_t patience_us = 0;  // of the first member
  std::string place;
  GlobalRank culprit;   // nobody: all is well so far
  bool absent = false;  // it has not come
  std::string text;     // what went wrong there

  bool well() const { return !culprit.known(); }
  void Blame(GlobalRank who, bool is_absent, std::string what) {
    if (!well()) return;
    culprit = who;
    absent = is_absent;
    text = std::move(what);
  }
};

// Its text, and then nothing up to the length that all have.
std::string Encode(const Note& note) {
  std::string text;
  negotiate::Encoder out(&text);
  out.Varint(note.id);
  out.Varint(note.order);
  out.Varint(static_cast<uint64_t>(note.patience_us));
  out.Text(note.place);
  out.Signed(note.culprit.value());
  out.Byte(note.absent ? 1 : 0);
  out.Text(Fitted(note.text, kMostText));
  std::string bytes;
  negotiate::Encoder(&bytes).Text(text);
  bytes.resize(kNoteBytes);
  return bytes;
}

Status Decode(const std::string& bytes, Note* note) {
  negotiate::Decoder in(negotiate::Decoder(bytes).Text("length", kNoteBytes));
  note->id = static_cast<uint32_t>(in.Varint("number", std::numeric_limits<uint32_t>::max()));
  note->order = static_cast<uint32_t>(in.Varint("order", std::numeric_limits<uint32_t>::max()));
  note->patience_us = static_cast<int64_t>(in.Varint("patience", kLongestUs));
  note->place = in.Text("place", kMostPlace);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  note->culprit = GlobalRank(static_cast<int>(in.Signed("rank", -1, kMost)));
  note->absent = in.Byte("absent", 1) != 0;
  note->text = in.Text("text", kMostText);
  return in.status("a note about a process set to be made");
}

class Meeting {
 public:
  Meeting(const MeetingOptions& options, int64_t begin_us)
      : options_(options),
        number_(options.number()),
        begin_us_(begin_us),
        first_(options.members[Position(0)]),
        host_first_(options.companions[Position(0)]) {
    note_.order = options.order;
  }

  Status Run(uint32_t* id) {
    Here();
    Number();
    Place();
    if (note_.well() && over_.ok()) Prepare();
    const bool prepared = note_.well() && over_.ok();
    std::string place;
    place.swap(note_.place);
    Conclude();
    *id = note_.id;
    if (note_.well() && over_.ok()) return Status::Ok();
    if (prepared) options_.discard(note_.id);
    if (self() == host_first_ && !place.empty()) options_.close(place);
    if (!over_.ok()) return over_;
    return {Code::kUnavailable, "the process set of " +
                                    negotiate::RankList(options_.members.ranks()) +
                                    " cannot be made: " + note_.text};
  }

  // Why there is no set: one of the members has not come.
  bool absent() const { return over_.ok() && note_.absent && !hurries_; }

 private:
  GlobalRank self() const { return options_.rank; }

  // So that nobody is taken for late who waits for the first member.
  void Here() {
    if (host_first_ == first_) return;
    if (self() != host_first_) return Hear(host_first_, Leg::kHere);
    for (const GlobalRank other : options_.companions.ranks()) Tell(other, Leg::kHere);
  }

  void Number() {
    if (self() != first_) {
      if (self() == host_first_) Hear(first_, Leg::kNumber);
      return;
    }
    Keep(options_.name(&note_.id));
    note_.patience_us = options_.timeout_us;
    for (const GlobalRank other : options_.firsts) Tell(other, Leg::kNumber);
  }

  void Place() {
    if (self() != host_first_) return Hear(host_first_, Leg::kPlace);
    if (note_.well()) Keep(options_.reserve(note_.id, &note_.place));
    for (const GlobalRank other : options_.companions.ranks()) Tell(other, Leg::kPlace);
  }

  // Who comes when the place is closed is late, as the verdict will say.
  void Prepare() {
    const Status prepared = options_.prepare(note_.id, note_.place);
    if (prepared.code() == Code::kTimeout)
      return note_.Blame(self(), true, Name(self()) + " has come too late");
    Keep(prepared);
  }

  void Conclude() {
    if (self() != first_) {
      Tell(first_, Leg::kDone);
      return Hear(first_, Leg::kVerdict);
    }
    for (const GlobalRank other : options_.members.ranks()) Hear(other, Leg::kDone);
    for (const GlobalRank other : options_.members.ranks()) Tell(other, Leg::kVerdict);
  }

  void Keep(const Status& status) {
    if (!status.ok()) note_.Blame(self(), false, Name(self()) + ": " + status.message());
  }

  void Tell(GlobalRank to, Leg leg) {
    if (to == self() || !over_.ok()) return;
    std::string bytes = Encode(note_);
    const Status sent = Exchange({true, to, TagOf(leg)}, &bytes, Deadline(leg));
    if (sent.code() == Code::kTimeout) return note_.Blame(to, true, Absent(to));
    Fail(sent);
  }

  Status Exchange(const PeerOperation& peer, std::string* bytes, int64_t deadline_us) {
    const Status status = options_.exchange(peer, bytes, deadline_us);
    const bool interrupted = status.code() == Code::kTimeout && NowMicros() < deadline_us;
    if (interrupted) note_.Blame(self(), false, Name(self()) + " was interrupted");
    hurries_ = hurries_ || interrupted;
    return status;
  }

  // Others wait for this rank to say so, unless the job is over.
  void Fail(const Status& status) {
    const bool over = status.code() == Code::kAborted || status.code() == Code::kShutdown;
    if (over) {
      over_ = status;
    } else {
      Keep(status);
    }
  }

  void Hear(GlobalRank from, Leg leg) {
    if (from == self() || !over_.ok()) return;
    std::string bytes(kNoteBytes, '\0');
    const Status heard = Exchange({false, from, TagOf(leg)}, &bytes, Deadline(leg));
    // Who gives the place has said that it is here: it waits for the number.
    const GlobalRank missing = leg == Leg::kPlace ? first_ : from;
    if (heard.code() == Code::kTimeout) return note_.Blame(missing, true, Absent(missing));
    heard_us_ = NowMicros();
    Note theirs;
    const Status known = heard.ok() ? Decode(bytes, &theirs) : heard;
    if (!known.ok()) return Fail(known);
    const bool named = leg == Leg::kNumber || leg == Leg::kPlace;
    if (named) {
      note_.id = theirs.id;
      note_.patience_us = theirs.patience_us;
      note_.place = std::move(theirs.place);
    }
    if (theirs.well() && named) Check(theirs);
    if (theirs.well()) return;
    if (leg == Leg::kVerdict) note_.culprit = GlobalRank();  // it holds for all
    note_.Blame(theirs.culprit, theirs.absent, std::move(theirs.text));
  }

  void Check(const Note& theirs) {
    // A number that is another rank's would be two sets in one.
    if (!options_.may_have_named(theirs.id))
      return Keep(Status::Invalid(
          Name(first_) + " gives the process set the number " + std::to_string(theirs.id) +
          ", which is not one of its own. Check that all ranks run the same version of horovod"));
    if (theirs.order == note_.order) return;
    note_.Blame(self(), false,
                Name(self()) + " has its ranks in another order than " + Name(first_) +
                    ": all members give them in one");
  }

  std::string Absent(GlobalRank who) const {
    return Name(who) + " has not come within " + SecondsText(options_.timeout_us) +
           ", or it waits for somebody else: all members make a process set together, and in one "
           "order where they make several";
  }

  // Who has said that all is well must hear what came of it: the first member may have begun to
  // wait only now, and may have more patience.
  int64_t Deadline(Leg leg) const {
    if (hurries_) return NowMicros();
    if (leg == Leg::kHere) leg = Leg::kPlace;
    const bool in_doubt = leg == Leg::kVerdict && note_.well();
    const int64_t begin = in_doubt ? NowMicros() : begin_us_;
    const int64_t patience = in_doubt ? note_.patience_us : options_.timeout_us;
    const int64_t grace = std::min(patience / 4, kMostGraceUs);
    const int64_t usual = begin + patience + grace * static_cast<int64_t>(leg);
    if ((leg != Leg::kPlace && leg != Leg::kDone) || !note_.well()) return usual;
    // Where the first of some companions came at the last moment, what waited for it needs another.
    return std::max(usual, std::min(usual, heard_us_) + grace / 2);
  }

  // Equal for the same leg of the same meeting alone, as far as 59 bits can tell.
  int64_t TagOf(Leg leg) const {
    uint64_t hash = 0;
    const auto mix = [&hash](uint64_t number) {
      hash = (hash ^ (hash >> 29) ^ (number + 1)) * 0x9E3779B97F4A7C15u;
    };
    mix(number_);
    mix(static_cast<uint64_t>(options_.members.size()));
    for (const GlobalRank rank : options_.members.ranks()) mix(rank.index());
    hash ^= hash >> 32;
    const uint64_t low = (hash >> 5 << 3) | static_cast<uint64_t>(leg);
    return std::numeric_limits<int64_t>::min() + static_cast<int64_t>(low);
  }

  const MeetingOptions& options_;
  const uint64_t number_;
  const int64_t begin_us_;
  const GlobalRank first_;
  const GlobalRank host_first_;
  int64_t heard_us_ = 0;  // when another member was heard last
  bool hurries_ = false;  // it was interrupted
  Note note_;
  Status over_;  // the job
};

}  // namespace

Status Meet(const MeetingOptions& options, uint32_t* id) {
  const int64_t begin = NowMicros();
  Status first;
  for (;;) {
    Meeting meeting(options, begin);
    const Status status = meeting.Run(id);
    if (!meeting.absent()) return status;
    if (first.ok()) first = status;
    if (NowMicros() - begin >= options.timeout_us) return first;
  }
}

}  // namespace hvd
