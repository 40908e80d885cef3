// What ranks tell each other before an alltoall, carried from one to the other by hand.

#include "runtime/progress/count_exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "check.h"

namespace hvd::test {
namespace {

using Numbers = std::vector<int64_t>;
constexpr int64_t kRowBytes = 3;

// One rank of an alltoall of several tensors; `rows` is [tensor][sender * ranks + receiver].
class Side {
 public:
  Side(const std::vector<Numbers>& rows, int rank, int ranks, int32_t device = kHostDevice)
      : ranks_(static_cast<size_t>(ranks)), rank_(static_cast<size_t>(rank)), all_(rows) {
    of_.kind = OpKind::kAlltoall;
    of_.device = device;
    for (size_t t = 0; t < rows.size(); ++t) {
      Numbers& mine = mine_.emplace_back();
      Numbers& bytes = of_.shares.emplace_back().to;
      std::vector<std::byte>& input = inputs_.emplace_back();
      size_t received = 0;
      for (size_t r = 0; r < ranks_; ++r) {
        mine.push_back(Rows(t, rank_, r));
        bytes.push_back(mine.back() * kRowBytes);
        Append(t, rank_, r, &input);
        received += static_cast<size_t>(Rows(t, r, rank_) * kRowBytes);
      }
      outputs_.emplace_back(received);
      const auto length = static_cast<int64_t>(input.size());
      of_.pieces.push_back({input.data(), outputs_.back().data(), length});
    }
    std::vector<const Numbers*> rows_of;
    for (const Numbers& one : mine_) rows_of.push_back(&one);
    counts_ = std::make_unique<CountExchange>(of_, rows_of, rank, ranks);
  }

  const Piece& parts() { return counts_->spec().pieces[0]; }
  size_t part_bytes() { return static_cast<size_t>(parts().bytes) / ranks_; }
  std::byte* PartTo(size_t member) {
    return const_cast<std::byte*>(parts().input) + member * part_bytes();
  }

  // As the executor does.
  Status Use(Position* culprit) {
    for (size_t t = 0; t < all_.size(); ++t) {
      const Numbers rows = counts_->RowsFrom(t);
      for (size_t r = 0; r < ranks_; ++r) {
        EXPECT_EQ(rows[r], Rows(t, r, rank_));
        of_.shares[t].from.push_back(rows[r] * kRowBytes);
      }
    }
    return counts_->FillSenders(&of_, culprit);
  }
  void CheckSenders() const {
    for (size_t s = 0; s < ranks_; ++s) {
      AlltoallSender expected;
      for (size_t step = 0; step < ranks_; ++step) {
        const size_t to = (s + step) % ranks_;
        int64_t part = 0;
        for (size_t t = 0; t < all_.size(); ++t) part += Rows(t, s, to) * kRowBytes;
        if (to == rank_) expected.before = expected.stream;
        if (to != s) expected.stream += part;
        expected.largest = std::max(expected.largest, part);
      }
      EXPECT_EQ(of_.senders[s].stream, expected.stream);
      EXPECT_EQ(of_.senders[s].before, expected.before);
      EXPECT_EQ(of_.senders[s].largest, expected.largest);
    }
  }
  bool HasAllRows() const { return counts_->HasAllRows(of_); }
  void CheckRows() {
    counts_->TakeRows(of_);
    for (size_t t = 0; t < all_.size(); ++t) {
      std::vector<std::byte> expected;
      for (size_t r = 0; r < ranks_; ++r) Append(t, r, rank_, &expected);
      EXPECT_TRUE(outputs_[t] == expected);
    }
  }

 private:
  int64_t Rows(size_t t, size_t from, size_t to) const { return all_[t][from * ranks_ + to]; }
  void Append(size_t t, size_t from, size_t to, std::vector<std::byte>* data) const {
    for (int64_t i = 0; i < Rows(t, from, to) * kRowBytes; ++i)
      data->push_back(static_cast<std::byte>(t * 71 + from * 13 + to * 5 + static_cast<size_t>(i)));
  }

  const size_t ranks_;
  const size_t rank_;
  const std::vector<Numbers> all_;
  std::vector<Numbers> mine_;
  std::deque<std::vector<std::byte>> inputs_, outputs_;
  CollectiveSpec of_;
  std::unique_ptr<CountExchange> counts_;
};

void Carry(std::deque<Side>* sides) {
  for (size_t from = 0; from < sides->size(); ++from) {
    for (size_t to = 0; to < sides->size(); ++to) {
      Side& receiver = (*sides)[to];
      std::memcpy(receiver.parts().output + from * receiver.part_bytes(), (*sides)[from].PartTo(to),
                  receiver.part_bytes());
    }
  }
}

std::deque<Side> Among(int ranks, const std::vector<Numbers>& rows, int32_t device = kHostDevice) {
  std::deque<Side> sides;
  for (int r = 0; r < ranks; ++r) sides.emplace_back(rows, r, ranks, device);
  return sides;
}

TEST(CountExchange, TellsAllWhatEachSendsToEach) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 6);
    const auto most = static_cast<int64_t>(round % 2 == 0 ? 20 : 2000);
    std::vector<Numbers> rows(1 + random() % 3);
    for (Numbers& matrix : rows) {
      for (int pair = 0; pair < ranks * ranks; ++pair)
        matrix.push_back(static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % most));
    }
    std::deque<Side> sides = Among(ranks, rows);
    Carry(&sides);
    bool complete = false;
    for (Side& side : sides) {
      Position culprit;
      ASSERT_OK(side.Use(&culprit));
      side.CheckSenders();
      if (&side == &sides[0]) complete = side.HasAllRows();
      EXPECT_EQ(side.HasAllRows(), complete);
      if (complete) side.CheckRows();
    }
    if (most == 20) EXPECT_TRUE(complete);
  }
}

TEST(CountExchange, NoRowsOfAGpuComeAlong) {
  std::deque<Side> sides = Among(2, {{1, 1, 1, 1}}, 0);
  EXPECT_EQ(sides[0].part_bytes(), 4 * sizeof(int64_t));
  Carry(&sides);
  Position culprit;
  for (Side& side : sides) {
    ASSERT_OK(side.Use(&culprit));
    EXPECT_FALSE(side.HasAllRows());
  }
}

// However many ranks there are, what a rank sends stays small.
TEST(CountExchange, PartsShrinkWithTheRanks) {
  for (const int ranks : {2, 8, 16, 64, 1000}) {
    const auto pairs = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
    Side side({Numbers(pairs, 1)}, 0, ranks);
    EXPECT_TRUE(side.parts().bytes <= std::max(8 << 10, 32 * ranks));
  }
}

TEST(CountExchange, NumbersThatCannotBeNameTheirSender) {
  enum Number : size_t { kStream, kBefore, kLargest };
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::vector<std::pair<Number, int64_t>> forged = {
      {kStream, 14},  {kStream, -1},    {kStream, INT64_MAX}, {kBefore, -1},
      {kBefore, 16},  {kBefore, kHuge}, {kBefore, INT64_MIN}, {kLargest, 14},
      {kLargest, -1}, {kLargest, kHuge}};
  for (const auto& [number, value] : forged) {
    std::deque<Side> sides = Among(3, {Numbers(9, 5)});
    std::memcpy(sides[2].PartTo(1) + number * sizeof value, &value, sizeof value);
    Carry(&sides);
    Position culprit;
    ASSERT_OK(sides[0].Use(&culprit));
    EXPECT_TRUE(sides[1].Use(&culprit).code() == Code::kAborted);
    EXPECT_EQ(culprit, Position(2));
  }
}

}  // namespace
}  // namespace hvd::test
