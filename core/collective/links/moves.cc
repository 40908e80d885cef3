#include "collective/links/moves.h"

#include "collective/piece_stream.h"

namespace hvd {

namespace {

// Block `number` of `count`, as even as possible.
Range BlockOf(const Range& whole, int64_t number, int64_t count, int64_t element) {
  const Range block = EvenPart(whole.length() / element, number, count);
  return {whole.begin + block.begin * element, whole.begin + block.end * element};
}

// One level's group of this member: those that differ from it in one digit.
struct Group {
  Group(int self, int stride, int radix)
      : radix(radix), own(self / stride % radix), stride(stride), first(self - own * stride) {}
  int Member(int digit) const { return first + digit * stride; }

  const int radix;
  const int own;  // this member's digit
  const int stride;
  const int first;
};

class Planner {
 public:
  Planner(const ExchangePlan& plan, int members, int self, int64_t bytes, int64_t element)
      : plan_(plan), members_(members), self_(self), bytes_(bytes), element_(element) {}

  Moves Run() {
    if (bytes_ == 0) return {};
    const int core = plan_.core();
    const auto levels = static_cast<uint32_t>(plan_.radices.size());
    fold_in_ = 2 * levels;
    fold_out_ = 2 * levels + 1;
    const bool outside = self_ >= core;
    const bool serves = self_ + core < members_;
    if (outside) Visit(self_ - core);
    if (serves) TakeIn(self_ + core);
    if (!outside) Levels();
    if (serves) GiveBack(self_ + core);
    moves_.combines_once = plan_.radices.size() == 1 && core == members_;
    return std::move(moves_);
  }

 private:
  void Visit(int server) {
    moves_.list.push_back({fold_in_, {{server, 0, bytes_}}, {}});
    moves_.list.push_back({fold_out_, {}, {{server, 0, bytes_}}});
  }

  void TakeIn(int guest) {
    Move move{fold_in_, {}, {}};
    move.combines = true;
    move.end = bytes_;
    Expect(&move, guest, {0, bytes_});
    moves_.list.push_back(std::move(move));
  }

  void GiveBack(int guest) { moves_.list.push_back({fold_out_, {{guest, 0, bytes_}}, {}}); }

  void Levels() {
    const bool whole = plan_.form == ExchangePlan::Form::kWhole;
    Range held{0, bytes_};
    std::vector<Range> before;  // what was held when a level began
    std::vector<Group> groups;
    int stride = 1;
    for (const int radix : plan_.radices) {
      groups.emplace_back(self_, stride, radix);
      before.push_back(held);
      if (!whole) held = BlockOf(held, groups.back().own, radix, element_);
      Combine(groups.back(), before.back(), held, static_cast<uint32_t>(groups.size()) - 1);
      stride *= radix;
    }
    if (whole) return;
    for (size_t level = groups.size(); level > 0; --level) {
      Return(groups[level - 1], before[level - 1], static_cast<uint32_t>(level) - 1);
    }
  }

  // Each member of the group gets its block of what all hold, or everything.
  void Combine(const Group& group, const Range& held, const Range& kept, uint32_t level) {
    Move move{2 * level, {}, {}};
    move.combines = true;
    move.begin = kept.begin;
    move.end = kept.end;
    move.own_place = group.own;
    move.finishes = level + 1 == plan_.radices.size();
    move.sends_it_too = plan_.form == ExchangePlan::Form::kWhole;
    for (int digit = 0; digit < group.radix; ++digit) {
      if (digit != group.own) Expect(&move, group.Member(digit), kept);
    }
    // Everybody begins with another one.
    for (int step = 1; step < group.radix; ++step) {
      const int digit = (group.own + step) % group.radix;
      const Range block = move.sends_it_too ? held : BlockOf(held, digit, group.radix, element_);
      move.out.push_back({group.Member(digit), block.begin, block.end});
    }
    moves_.list.push_back(std::move(move));
  }

  // The finished blocks of a level, from their members to all of the group.
  void Return(const Group& group, const Range& held, uint32_t level) {
    Move move{2 * level + 1, {}, {}};
    const Range own = BlockOf(held, group.own, group.radix, element_);
    for (int step = 1; step < group.radix; ++step) {
      const int digit = (group.own + step) % group.radix;
      const Range block = BlockOf(held, digit, group.radix, element_);
      move.out.push_back({group.Member(digit), own.begin, own.end});
      move.in.push_back({group.Member(digit), block.begin, block.end});
    }
    moves_.list.push_back(std::move(move));
  }

  void Expect(Move* move, int member, const Range& range) {
    move->in.push_back({member, range.begin, range.end, moves_.scratch_bytes});
    moves_.scratch_bytes += WholeLines(range.length());
  }

  const ExchangePlan& plan_;
  const int members_;
  const int self_;
  const int64_t bytes_;
  const int64_t element_;
  uint32_t fold_in_ = 0;
  uint32_t fold_out_ = 0;
  Moves moves_;
};

}  // namespace

Moves PlanMoves(const ExchangePlan& plan, int members, int self, int64_t bytes, int64_t element) {
  return Planner(plan, members, self, bytes, element).Run();
}

}  // namespace hvd
