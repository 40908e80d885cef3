// The exchanges over links: which is chosen, and that the moves of all members fit together.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "check.h"
#include "collective/links/moves.h"
#include "collective/links/plan.h"

namespace hvd {
namespace {

using Form = ExchangePlan::Form;

constexpr LinkCosts kCosts;

int LogCeil(int members) {
  int rounds = 0;
  while ((1 << rounds) < members) ++rounds;
  return rounds;
}

TEST(Plan, CoversAllMembersAtEverySize) {
  for (int members = 2; members <= 300; ++members) {
    for (const Form form : {Form::kWhole, Form::kBlocks}) {
      for (const int64_t bytes : {0, 4, 5000, 1 << 20}) {
        const ExchangePlan plan = CheapestPlan(form, members, bytes, kCosts);
        ASSERT_TRUE(plan.form == form);
        EXPECT_TRUE(plan.core() <= members);
        EXPECT_TRUE(2 * plan.core() >= members);
        for (const int radix : plan.radices) EXPECT_TRUE(radix >= 2);
      }
    }
  }
}

TEST(Plan, WhatIsSmallGoesWholeAndWhatIsLargeInBlocks) {
  for (int members : {3, 4, 7, 16, 100}) {
    EXPECT_TRUE(CheapestPlan(members, 4, kCosts).form == Form::kWhole);
    EXPECT_TRUE(CheapestPlan(members, 4 << 20, kCosts).form == Form::kBlocks);
  }
}

TEST(Plan, AFewTellEachOtherAtOnceAndManyInRounds) {
  EXPECT_TRUE((CheapestPlan(4, 4, kCosts) == ExchangePlan{Form::kWhole, {4}}));
  const ExchangePlan of_many = CheapestPlan(256, 4, kCosts);
  EXPECT_TRUE(of_many.radices.size() > 1);
  EXPECT_TRUE(of_many.radices.size() < 8);
  // Where only messages cost, recursive doubling sends the fewest.
  LinkCosts busy = kCosts;
  busy.latency = 0;
  EXPECT_TRUE((CheapestPlan(64, 4, busy) == ExchangePlan{Form::kWhole, {2, 2, 2, 2, 2, 2}}));
  // Where only waiting costs, everybody tells everybody.
  LinkCosts far = kCosts;
  far.message = 0;
  EXPECT_TRUE((CheapestPlan(64, 4, far) == ExchangePlan{Form::kWhole, {64}}));
}

// The time of a small one grows with the logarithm of the number of members.
TEST(Plan, CostOfASmallOneGrowsWithTheLogarithm) {
  for (int members = 2; members <= 5000; members = members * 3 / 2 + 1) {
    const ExchangePlan plan = CheapestPlan(members, 64, kCosts);
    const int64_t round = kCosts.latency + kCosts.message + 64 * (kCosts.byte + 2 * kCosts.work);
    EXPECT_TRUE(CostOf(plan, members, 64, kCosts) <= (LogCeil(members) + 2) * round);
  }
}

TEST(Plan, TheRingIsForWhatIsLarge) {
  for (int members : {3, 4, 8, 64}) {
    const auto exchange = [&](int64_t bytes) {
      return CostOf(CheapestPlan(members, bytes, kCosts), members, bytes, kCosts) +
             2 * bytes * kCosts.work;
    };
    EXPECT_TRUE(exchange(64) < CostOfRing(members, 64, kCosts));
    EXPECT_TRUE(exchange(64 << 20) > CostOfRing(members, 64 << 20, kCosts));
  }
}

// An element on its way to its sum: whose inputs are in it, and in which order they were added.
struct Element {
  std::set<int> members;
  std::vector<int> order;

  // False: an input is in both.
  bool Add(const Element& other) {
    const size_t before = members.size();
    members.insert(other.members.begin(), other.members.end());
    order.push_back(-static_cast<int>(other.members.size()));  // what is added as one
    order.insert(order.end(), other.order.begin(), other.order.end());
    return members.size() == before + other.members.size();
  }
};
using Elements = std::vector<Element>;

// Carries out the moves of all members, each as soon as what it waits for has been sent.
class Simulation {
 public:
  Simulation(const ExchangePlan& plan, int members, int64_t elements) : members_(members) {
    for (int member = 0; member < members; ++member) {
      moves_.push_back(PlanMoves(plan, members, member, elements, 1));
      data_.emplace_back(static_cast<size_t>(elements), Element{{member}, {member}});
    }
    at_.resize(static_cast<size_t>(members));
    sent_.resize(static_cast<size_t>(members));
  }

  // Whether all come to the end, with every input once and in one order in every element.
  bool Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int member = 0; member < members_; ++member) moved |= Step(member);
    }
    bool whole = sound_ && mail_.empty();
    for (int member = 0; member < members_; ++member) {
      whole &= at_[member] == moves_[member].list.size();
      for (size_t i = 0; i < data_[member].size(); ++i) {
        whole &= static_cast<int>(data_[member][i].members.size()) == members_;
        whole &= data_[member][i].order == data_[0][i].order;
      }
    }
    return whole;
  }

  size_t rounds() const {
    size_t most = 0;
    for (const Moves& moves : moves_) most = std::max(most, moves.list.size());
    return most;
  }

 private:
  using Letter = std::tuple<int, int, uint32_t>;  // sender, receiver, tag

  Elements Stretch(int member, const Parcel& parcel) const {
    const auto begin = data_[member].begin();
    return {begin + parcel.begin, begin + parcel.end};
  }

  bool Step(int self) {
    if (at_[self] == moves_[self].list.size()) return false;
    const Move& move = moves_[self].list[at_[self]];
    if (!sent_[self]) {
      for (const Parcel& parcel : move.out) {
        const Letter letter{self, parcel.member, move.tag};
        sound_ &= mail_.emplace(letter, Stretch(self, parcel)).second;
      }
      return sent_[self] = true;
    }
    for (const Parcel& parcel : move.in) {
      if (mail_.count({parcel.member, self, move.tag}) == 0) return false;
    }
    Take(self, move);
    ++at_[self];
    sent_[self] = false;
    return true;
  }

  void Take(int self, const Move& move) {
    std::vector<Elements> operands;
    for (const Parcel& parcel : move.in) {
      const auto letter = mail_.find({parcel.member, self, move.tag});
      sound_ &= letter->second.size() == parcel.bytes();
      if (!move.combines)
        std::copy(letter->second.begin(), letter->second.end(), data_[self].begin() + parcel.begin);
      operands.push_back(std::move(letter->second));
      mail_.erase(letter);
    }
    if (!move.combines) return;
    const Parcel range{self, move.begin, move.end};
    operands.insert(operands.begin() + move.own_place, Stretch(self, range));
    for (int64_t i = range.begin; i < range.end; ++i) {
      Element sum;
      for (const Elements& operand : operands)
        sound_ &= sum.Add(operand[static_cast<size_t>(i - range.begin)]);
      data_[self][static_cast<size_t>(i)] = sum;
    }
  }

  const int members_;
  std::vector<Moves> moves_;
  std::vector<Elements> data_;
  std::vector<size_t> at_;  // by member: moves done
  std::vector<bool> sent_;
  std::map<Letter, Elements> mail_;
  bool sound_ = true;
};

TEST(Moves, EverybodyGetsEveryInputOnceInOneOrder) {
  for (int members = 1; members <= 40; ++members) {
    for (const Form form : {Form::kWhole, Form::kBlocks}) {
      for (int most = 1; most <= members; ++most) {
        LinkCosts costs = kCosts;
        costs.message = costs.latency / most;
        for (const int64_t elements : {1, 7, 50}) {
          Simulation simulation(CheapestPlan(form, members, elements, costs), members, elements);
          if (!EXPECT_TRUE(simulation.Run())) return;
        }
      }
    }
  }
}

TEST(Moves, EveryRadixAndRest) {
  for (const Form form : {Form::kWhole, Form::kBlocks}) {
    for (const std::vector<int>& radices :
         std::vector<std::vector<int>>{{2}, {3}, {2, 2}, {3, 2}, {2, 3}, {5, 2, 2}, {2, 2, 2, 2}}) {
      const ExchangePlan plan{form, radices};
      for (int members = plan.core(); members <= 2 * plan.core(); ++members) {
        Simulation simulation(plan, members, 11);
        EXPECT_TRUE(simulation.Run());
        const size_t levels = radices.size() * (form == Form::kBlocks ? 2 : 1);
        EXPECT_EQ(simulation.rounds(), levels + (members > plan.core() ? 2 : 0));
      }
    }
  }
}

TEST(Moves, NothingToMoveIsNoMove) {
  EXPECT_TRUE(PlanMoves({Form::kWhole, {2}}, 2, 0, 0, 4).list.empty());
}

}  // namespace
}  // namespace hvd
