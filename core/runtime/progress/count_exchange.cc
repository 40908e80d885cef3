#include "runtime/progress/count_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "collective/piece_stream.h"
#include "collective/window/board.h"
#include "negotiate/message.h"

namespace hvd {

namespace {

// The numbers of a part before the rows of the tensors.
enum Number : size_t { kStream, kBefore, kLargest, kFirstRows };

// With rows a part has at most so much, which costs little more than to send the numbers alone.
constexpr int64_t kMostPart = 1024;

bool OnGpu(const CollectiveSpec& of) { return KindOf(of.device) == DeviceKind::kGpu; }

size_t HeadOf(const CollectiveSpec& of) {
  return (kFirstRows + of.pieces.size()) * sizeof(int64_t);
}

// A multiple of 8. All parts of a rank lie in one slot of shared memory, as far as their numbers
// do. Equal on every member, so nothing that is one member's own counts.
size_t PartOf(const CollectiveSpec& of, int members) {
  if (OnGpu(of)) return HeadOf(of);
  const int64_t most = std::min(kMostPart, Board::InlineBytes(members) / members);
  return std::max(HeadOf(of), static_cast<size_t>(most) / sizeof(int64_t) * sizeof(int64_t));
}

// What the parts for each member take, all tensors together.
std::vector<int64_t> RowOf(const CollectiveSpec& of, size_t members) {
  std::vector<int64_t> row(members);
  for (const Shares& shares : of.shares) {
    for (size_t m = 0; m < members; ++m) row[m] += shares.to[m];
  }
  return row;
}

// What a member sends at most, of so many tensors.
int64_t MostBytes(size_t tensors) {
  constexpr size_t kTensorsThatCount = 1 << 14;
  return negotiate::kMaxTensorBytes * static_cast<int64_t>(std::min(tensors, kTensorsThatCount));
}

// `part`: what this rank gets of it.
bool CanBe(const AlltoallSender& sender, int64_t part, int64_t most) {
  return sender.before >= 0 && sender.stream >= 0 && sender.largest >= part &&
         sender.stream <= most && sender.largest <= most && part <= sender.stream &&
         sender.before <= sender.stream - part;
}

}  // namespace

CountExchange::CountExchange(const CollectiveSpec& of,
                             const std::vector<const std::vector<int64_t>*>& rows, int rank,
                             int members)
    : rank_(static_cast<size_t>(rank)),
      members_(static_cast<size_t>(members)),
      takes_rows_(!OnGpu(of)),
      head_(HeadOf(of)),
      part_(PartOf(of, members)),
      sent_(part_ * members_),
      received_(part_ * members_) {
  Tell(of, rows);
  spec_.kind = OpKind::kAlltoall;
  spec_.pieces.push_back({sent_.data(), received_.data(), static_cast<int64_t>(sent_.size())});
  AddAlikeRows(std::vector<int64_t>(members_, static_cast<int64_t>(part_)), rank, &spec_);
}

void CountExchange::Tell(const CollectiveSpec& of,
                         const std::vector<const std::vector<int64_t>*>& rows) {
  const std::vector<AlltoallSender> told =
      DescribeSender(RowOf(of, members_), static_cast<int>(rank_));
  for (size_t m = 0; m < members_; ++m) {
    std::byte* const part = sent_.data() + m * part_;
    const auto put = [part](size_t index, int64_t number) {
      std::memcpy(part + index * sizeof number, &number, sizeof number);
    };
    put(kStream, told[m].stream);
    put(kBefore, told[m].before);
    put(kLargest, told[m].largest);
    for (size_t t = 0; t < rows.size(); ++t) put(kFirstRows + t, (*rows[t])[m]);
  }
  if (takes_rows_ && told[rank_].largest <= static_cast<int64_t>(part_ - head_)) AddRows(of);
}

void CountExchange::AddRows(const CollectiveSpec& of) {
  std::vector<size_t> at(members_, head_);
  for (size_t i = 0; i < of.pieces.size(); ++i) {
    const std::byte* input = of.pieces[i].input;
    for (size_t m = 0; m < members_; ++m) {
      const auto bytes = static_cast<size_t>(of.shares[i].to[m]);
      if (bytes > 0) std::memcpy(sent_.data() + m * part_ + at[m], input, bytes);
      at[m] += bytes;
      input += bytes;
    }
  }
}

int64_t CountExchange::Number(size_t member, size_t index) const {
  int64_t number = 0;
  std::memcpy(&number, From(member) + index * sizeof number, sizeof number);
  return number;
}

std::vector<int64_t> CountExchange::RowsFrom(size_t tensor) const {
  std::vector<int64_t> rows;
  rows.reserve(members_);
  for (size_t m = 0; m < members_; ++m) rows.push_back(Number(m, kFirstRows + tensor));
  return rows;
}

Status CountExchange::FillSenders(CollectiveSpec* of, Position* culprit) const {
  const int64_t most = MostBytes(of->pieces.size());
  of->senders.clear();
  for (size_t m = 0; m < members_; ++m) {
    AlltoallSender sender{Number(m, kStream), Number(m, kBefore), Number(m, kLargest)};
    int64_t part = 0;
    bool fits = true;
    for (const Shares& shares : of->shares) {
      fits = fits && !__builtin_add_overflow(part, shares.from[m], &part);
    }
    if (m != rank_ && (!fits || !CanBe(sender, part, most))) {
      *culprit = Position(static_cast<int>(m));
      return Status::Aborted("it says of its part of an alltoall that it has " +
                             std::to_string(part) + " bytes, after " +
                             std::to_string(sender.before) + " of " +
                             std::to_string(sender.stream) + ", and the largest part " +
                             std::to_string(sender.largest));
    }
    of->senders.push_back(sender);
  }
  return Status::Ok();
}

bool CountExchange::HasAllRows(const CollectiveSpec& of) const {
  const auto came = [this](const AlltoallSender& sender) {
    return sender.largest <= static_cast<int64_t>(part_ - head_);
  };
  return takes_rows_ && std::all_of(of.senders.begin(), of.senders.end(), came);
}

void CountExchange::TakeRows(const CollectiveSpec& of) const {
  std::vector<size_t> at(members_, head_);
  for (size_t i = 0; i < of.pieces.size(); ++i) {
    std::byte* output = of.pieces[i].output;
    for (size_t m = 0; m < members_; ++m) {
      const auto bytes = static_cast<size_t>(of.shares[i].from[m]);
      if (bytes > 0) std::memcpy(output, From(m) + at[m], bytes);
      at[m] += bytes;
      output += bytes;
    }
  }
}

}  // namespace hvd
