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

constexpr size_t kNoteBytes = 512;
constexpr size_t kMostText = 300;
constexpr size_t kMostPlace = 128;
// A rank is late for one leg before others are for the next, and so the one that gets the blame.
constexpr int64_t kMostGraceUs = 5'000'000;

enum class Leg { kNumber, kPlace, kDone, kVerdict };

// How the meeting stands.
struct Note {
  uint32_t id = 0;
  std::string place;
  GlobalRank culprit;  // nobody: all is well so far
  std::string text;    // what went wrong there

  bool well() const { return !culprit.known(); }
  void Blame(GlobalRank who, std::string what) {
    if (!well()) return;
    culprit = who;
    text = std::move(what);
  }
};

// Its text, and then nothing up to the length that all have.
std::string Encode(const Note& note) {
  std::string text;
  negotiate::Encoder out(&text);
  out.Varint(note.id);
  out.Text(note.place);
  out.Signed(note.culprit.value());
  out.Text(Fitted(note.text, kMostText));
  std::string bytes;
  negotiate::Encoder(&bytes).Text(text);
  bytes.resize(kNoteBytes);
  return bytes;
}

Status Decode(const std::string& bytes, Note* note) {
  negotiate::Decoder in(negotiate::Decoder(bytes).Text("length", kNoteBytes));
  note->id = static_cast<uint32_t>(in.Varint("number", std::numeric_limits<uint32_t>::max()));
  note->place = in.Text("place", kMostPlace);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  note->culprit = GlobalRank(static_cast<int>(in.Signed("rank", -1, kMost)));
  note->text = in.Text("text", kMostText);
  return in.status("a note about a process set to be made");
}

class Meeting {
 public:
  explicit Meeting(const MeetingOptions& options)
      : options_(options),
        begin_us_(NowMicros()),
        first_(options.members[Position(0)]),
        host_first_(options.companions[Position(0)]) {}

  Status Run(uint32_t* id) {
    Number();
    Place();
    if (note_.well() && over_.ok()) Keep(options_.prepare(note_.id, note_.place));
    note_.place.clear();
    Conclude();
    *id = note_.id;
    if (!over_.ok()) return over_;
    if (note_.well()) return Status::Ok();
    return {Code::kUnavailable, "the process set of the ranks " +
                                    negotiate::RankList(options_.members.ranks()) +
                                    " cannot be made: " + note_.text};
  }

 private:
  GlobalRank self() const { return options_.rank; }

  void Number() {
    if (self() != first_) {
      if (self() == host_first_) Hear(first_, Leg::kNumber);
      return;
    }
    Keep(options_.name(&note_.id));
    for (const GlobalRank other : options_.firsts) Tell(other, Leg::kNumber);
  }

  void Place() {
    if (self() != host_first_) return Hear(host_first_, Leg::kPlace);
    if (note_.well()) Keep(options_.reserve(note_.id, &note_.place));
    for (const GlobalRank other : options_.companions.ranks()) Tell(other, Leg::kPlace);
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
    if (!status.ok()) note_.Blame(self(), Name(self()) + ": " + status.message());
  }

  void Tell(GlobalRank to, Leg leg) {
    if (to == self() || !over_.ok()) return;
    std::string bytes = Encode(note_);
    const Status sent = options_.exchange({true, to, TagOf(leg)}, &bytes, Deadline(leg));
    if (sent.code() == Code::kTimeout) return note_.Blame(to, Absent(to));
    over_ = sent;
  }

  void Hear(GlobalRank from, Leg leg) {
    if (from == self() || !over_.ok()) return;
    std::string bytes(kNoteBytes, '\0');
    const Status heard = options_.exchange({false, from, TagOf(leg)}, &bytes, Deadline(leg));
    if (heard.code() == Code::kTimeout) return note_.Blame(from, Absent(from));
    Note theirs;
    over_ = heard.ok() ? Decode(bytes, &theirs) : heard;
    if (!over_.ok()) return;
    if (leg == Leg::kNumber || leg == Leg::kPlace) {
      note_.id = theirs.id;
      note_.place = std::move(theirs.place);
    }
    if (!theirs.well()) note_.Blame(theirs.culprit, std::move(theirs.text));
  }

  std::string Absent(GlobalRank who) const {
    return Name(who) + " has not come within " + SecondsText(options_.timeout_us) +
           ": all members make a process set together, and in one order where they make several";
  }

  int64_t Deadline(Leg leg) const {
    const int64_t grace = std::min(options_.timeout_us / 4, kMostGraceUs);
    return begin_us_ + options_.timeout_us + grace * static_cast<int64_t>(leg);
  }

  // Equal for the same leg of the same meeting alone, as far as 60 bits can tell.
  int64_t TagOf(Leg leg) const {
    uint64_t hash = options_.number;
    for (const GlobalRank rank : options_.members.ranks())
      hash = (hash ^ (hash >> 29) ^ (rank.index() + 1)) * 0x9E3779B97F4A7C15u;
    const uint64_t low = (hash >> 4 << 2) | static_cast<uint64_t>(leg);
    return std::numeric_limits<int64_t>::min() + static_cast<int64_t>(low);
  }

  const MeetingOptions& options_;
  const int64_t begin_us_;
  const GlobalRank first_;
  const GlobalRank host_first_;
  Note note_;
  Status over_;  // the job
};

}  // namespace

Status Meet(const MeetingOptions& options, uint32_t* id) { return Meeting(options).Run(id); }

}  // namespace hvd
