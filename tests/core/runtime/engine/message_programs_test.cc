// A random program, drawn alike on every rank: messages of any size among any two ranks, on several
// process sets, with few tags, received in an order of their own, by receives from one rank or from
// anybody; and collectives beside them.

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "check.h"
#include "cluster.h"
#include "runtime/engine/messages.h"

namespace hvd::test {
namespace {

struct Planned {
  int from;
  int to;
  int64_t tag;
  uint32_t set;
  size_t bytes;
};

class Program {
 public:
  Program(Engine& engine, int rank, int size, unsigned seed)
      : engine_(engine), rank_(rank), size_(size), shared_(seed), own_(seed * 1000 + rank) {}

  void Run() {
    for (int batch = 0; batch < 4; ++batch) {
      Plan(batch);
      Submit();
      Check();
    }
  }

 private:
  struct Flight {
    bool sends;
    size_t planned;
    Bytes data;
    HandlePtr handle;
  };

  int Draw(int below) { return static_cast<int>(shared_() % below); }

  // A tag is received either by receives from one rank or by receives from anybody, all of one
  // size: else it depends on the time which message a receive gets.
  void Plan(int batch) {
    planned_.clear();
    const int count = 5 + Draw(40);
    for (int i = 0; i < count; ++i) {
      Planned one;
      one.set = static_cast<uint32_t>(Draw(2));
      const int members = one.set == 0 ? size_ : size_ - 1;  // set 1 has all but the last rank
      one.from = Draw(members);
      one.to = Draw(members);
      one.tag = batch * 100 + Draw(5);
      const size_t drawn = MessageSizes()[Draw(static_cast<int>(MessageSizes().size()) - 2)];
      one.bytes = Anybodys(one.tag) ? 2000 : drawn;
      planned_.push_back(one);
    }
  }
  static bool Anybodys(int64_t tag) { return tag % 100 >= 3; }

  void Submit() {
    std::vector<size_t> sends;
    std::vector<size_t> receives;
    for (size_t i = 0; i < planned_.size(); ++i) {
      if (planned_[i].from == rank_) sends.push_back(i);
      if (planned_[i].to == rank_) receives.push_back(i);
    }
    flights_.clear();
    flights_.reserve(sends.size() + receives.size());
    reduced_.assign(3000, 1.0f);
    size_t s = 0;
    size_t r = 0;
    const size_t at = own_() % (sends.size() + receives.size() + 1);
    for (size_t i = 0; i <= sends.size() + receives.size(); ++i) {
      if (i == at)
        ASSERT_OK(test::Submit(engine_, AllreduceEntry("beside", &reduced_), &allreduce_));
      if (i == sends.size() + receives.size()) break;
      const bool sending = r == receives.size() || (s < sends.size() && own_() % 2 == 0);
      Start(sending, sending ? sends[s++] : receives[r++]);
    }
  }

  void Start(bool sending, size_t index) {
    const Planned& one = planned_[index];
    Flight& flight = flights_.emplace_back();
    flight.sends = sending;
    flight.planned = index;
    flight.data = sending ? Content(one.bytes, static_cast<unsigned>(index)) : Bytes(one.bytes);
    Entry entry = sending ? SendEntry(&flight.data, one.to, one.tag, one.set)
                          : RecvEntry(&flight.data, Anybodys(one.tag) ? kAnybody : one.from,
                                      one.tag, one.set);
    ASSERT_OK(test::Submit(engine_, std::move(entry), &flight.handle));
  }

  void Check() {
    std::vector<size_t> order(flights_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), own_);
    for (const size_t i : order)
      ASSERT_OK(engine_.Wait(flights_[i].handle, kMessageLimitUs, nullptr));
    ASSERT_OK(engine_.Wait(allreduce_, kMessageLimitUs, nullptr));
    EXPECT_EQ(reduced_.front(), static_cast<float>(size_));
    // What each source has sent with a tag comes in the order of sending.
    std::map<std::tuple<int, uint32_t, int64_t>, std::vector<size_t>> expected;
    for (size_t i = 0; i < planned_.size(); ++i) {
      const Planned& one = planned_[i];
      if (one.to == rank_) expected[{one.from, one.set, one.tag}].push_back(i);
    }
    for (const Flight& flight : flights_) {
      if (flight.sends) continue;
      const Planned& one = planned_[flight.planned];
      const int source = static_cast<int>(SourceOf(flight.handle));
      if (!Anybodys(one.tag)) EXPECT_EQ(source, one.from);
      auto& from = expected[{source, one.set, one.tag}];
      ASSERT_TRUE(!from.empty());
      EXPECT_TRUE(flight.data == Content(one.bytes, static_cast<unsigned>(from.front())));
      from.erase(from.begin());
    }
    for (const auto& [key, left] : expected) EXPECT_TRUE(left.empty());
  }

  Engine& engine_;
  const int rank_;
  const int size_;
  std::mt19937 shared_;
  std::mt19937 own_;
  std::vector<Planned> planned_;
  std::vector<Flight> flights_;
  std::vector<float> reduced_;
  HandlePtr allreduce_;
};

TEST(MessagePrograms, ReceiveEverythingInOrder) {
  for (const Wires wires : kAllWires) {
    for (unsigned seed = 0; seed < 12; ++seed) {
      const int size = 2 + static_cast<int>(seed) % 3;
      std::vector<int> members(size - 1);
      std::iota(members.begin(), members.end(), 0);
      Cluster cluster(size, wires, {members});
      cluster.Run([&](Engine& engine, int rank) { Program(engine, rank, size, seed).Run(); });
    }
  }
}

}  // namespace
}  // namespace hvd::test
