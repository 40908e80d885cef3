// Random receives and messages, against a list that is searched from its front.

#include "runtime/peer/matching.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "check.h"

namespace hvd::peer {
namespace {

// What the definition says, word for word.
class Reference {
 public:
  std::optional<int> Post(const Envelope& wanted, int receive) {
    return Meet(&messages_, &receives_, wanted, receive,
                [&](const Envelope& message) { return Fits(wanted, message); });
  }
  std::optional<int> Arrive(const Envelope& message, int number) {
    return Meet(&receives_, &messages_, message, number,
                [&](const Envelope& wanted) { return Fits(wanted, message); });
  }
  std::vector<int> Forget(uint32_t set) {
    std::vector<int> dropped;
    for (const Item& item : messages_) {
      if (item.envelope.set == set) dropped.push_back(item.number);
    }
    const auto gone = [set](const Item& item) { return item.envelope.set == set; };
    messages_.erase(std::remove_if(messages_.begin(), messages_.end(), gone), messages_.end());
    return dropped;
  }
  size_t receives() const { return receives_.size(); }
  size_t messages() const { return messages_.size(); }

 private:
  struct Item {
    Envelope envelope;
    int number;
  };
  static bool Fits(const Envelope& wanted, const Envelope& message) {
    const bool source = !wanted.source.known() || wanted.source == message.source;
    return source && wanted.set == message.set && wanted.tag == message.tag;
  }
  template <typename Condition>
  static std::optional<int> Meet(std::vector<Item>* there, std::vector<Item>* here,
                                 const Envelope& envelope, int number, const Condition& fits) {
    const auto found = std::find_if(there->begin(), there->end(),
                                    [&](const Item& item) { return fits(item.envelope); });
    if (found == there->end()) {
      here->push_back({envelope, number});
      return std::nullopt;
    }
    const int met = found->number;
    there->erase(found);
    return met;
  }

  std::vector<Item> messages_;
  std::vector<Item> receives_;
};

void RunProgram(unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int below) { return static_cast<int>(random() % below); };
  const int sources = 1 + draw(4);
  const int tags = 1 + draw(4);
  const int sets = 1 + draw(3);
  Matching<int, int> matching;
  Reference reference;
  for (int step = 0; step < 300; ++step) {
    Envelope envelope{GlobalRank(draw(sources)), static_cast<uint32_t>(draw(sets)), draw(tags) - 1};
    if (draw(60) == 0) {
      std::vector<int> dropped = matching.Forget(envelope.set);
      std::vector<int> expected = reference.Forget(envelope.set);
      std::sort(dropped.begin(), dropped.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_TRUE(dropped == expected);
    } else if (draw(2) == 0) {
      if (draw(3) == 0) envelope.source = GlobalRank();
      EXPECT_TRUE(matching.Post(envelope, step) == reference.Post(envelope, step));
    } else {
      const std::optional<int> receive = matching.Arrive(envelope);
      if (!receive) matching.Keep(envelope, step);
      EXPECT_TRUE(receive == reference.Arrive(envelope, step));
    }
    EXPECT_EQ(matching.receives(), reference.receives());
    EXPECT_EQ(matching.messages(), reference.messages());
  }
}

TEST(Matching, IsAListThatIsSearchedFromItsFront) {
  for (unsigned seed = 0; seed < 2000; ++seed) RunProgram(seed);
}

}  // namespace
}  // namespace hvd::peer
