// What a rank does for the others by its place in the tree, over messages that the test carries.

#include "runtime/progress/tree_node.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "check.h"

namespace hvd::test {
namespace {

using negotiate::AnnounceMessage;
using negotiate::Response;

class CarriedControl : public Control {
 public:
  void Announce(const std::string& message) override { announced.push_back(message); }
  void Publish(const std::string& message) override { published.push_back(message); }
  bool Take(Position, std::string* message) override {
    if (responses.empty()) return false;
    *message = std::move(responses.front());
    responses.pop_front();
    return true;
  }
  void Progress(bool*) override {}
  Position corrupt() const override { return {}; }
  bool idle() const override { return true; }

  std::vector<std::string> announced;
  std::vector<std::string> published;
  std::deque<std::string> responses;
};

// A member of a set of four: two hosts of two.
struct Place {
  explicit Place(int position) {
    negotiate::SequencerOptions options;
    options.members = {4, 5, 6, 7};
    const Topology topology({0, 0, 1, 1}, true);
    const auto place = topology.TreePlaceOf(Position(position));
    node = std::make_unique<TreeNode>(options, place, &control, &counters);
  }

  Status Say(size_t child) {
    AnnounceMessage message;
    negotiate::Announcement& announcement = message.announcements.emplace_back();
    announcement.request.name = "w";
    announcement.request.tensors.push_back({DataType::kFloat32, {4}});
    message.some_urgent = message.all_urgent = 1;
    return node->Announce(child, std::move(message), 0);
  }
  // What goes up from here arrives there.
  void Pass(Place* parent, size_t child) {
    bool moved = false;
    node->Report(0, &moved);
    for (const std::string& bytes : std::exchange(control.announced, {})) {
      AnnounceMessage message;
      ASSERT_OK(negotiate::Decode(bytes, &message));
      ASSERT_OK(parent->node->Announce(child, std::move(message), 0));
    }
  }
  Status Next(std::optional<Response>* response) { return node->Next(1 << 30, response); }

  CarriedControl control;
  Counters counters;
  std::unique_ptr<TreeNode> node;
};

TEST(TreeNode, RootAndInnerAndLeavesDecideTogether) {
  Place root(0);
  Place leaf(1);
  Place inner(2);
  Place below(3);
  EXPECT_TRUE(root.node->root() != nullptr && inner.node->root() == nullptr);
  EXPECT_TRUE(inner.node->merger() != nullptr && leaf.node->merger() == nullptr);
  ASSERT_OK(root.Say(0));
  ASSERT_OK(leaf.Say(0));
  ASSERT_OK(inner.Say(0));
  leaf.Pass(&root, 1);
  inner.Pass(&root, 2);
  std::optional<Response> response;
  ASSERT_OK(root.Next(&response));
  EXPECT_FALSE(response.has_value());
  ASSERT_OK(below.Say(0));
  below.Pass(&inner, 1);
  inner.Pass(&root, 2);
  root.node->root()->SetPolicy({7, 8});
  ASSERT_OK(root.Next(&response));
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->decisions[0].name, "w");
  ASSERT_EQ(root.control.published.size(), size_t{1});

  inner.control.responses.push_back(root.control.published[0]);
  ASSERT_OK(inner.Next(&response));
  EXPECT_EQ(response->decisions[0].name, "w");
  EXPECT_EQ(response->policy.direct_bytes, 8);
  EXPECT_TRUE(inner.control.published == root.control.published);  // byte for byte
  below.control.responses.push_back(inner.control.published[0]);
  ASSERT_OK(below.Next(&response));
  EXPECT_EQ(response->number, 1u);
  EXPECT_EQ(response->policy.fusion_threshold, 7);
  response.reset();
  ASSERT_OK(below.Next(&response));
  EXPECT_FALSE(response.has_value());
}

TEST(TreeNode, AnInnerNodeHandsDownNothingThatAnswersNothing) {
  Place root(0);
  Place inner(2);
  for (const size_t child : {0, 1, 2}) ASSERT_OK(root.Say(child));
  std::optional<Response> response;
  ASSERT_OK(root.Next(&response));
  inner.control.responses = {root.control.published[0], "short", std::string(40, 'x')};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(inner.Next(&response).code() == Code::kAborted);
  EXPECT_TRUE(inner.control.published.empty());
}

// It tells what waits after a second, and wakes up for it.
TEST(TreeNode, AnInnerNodeTellsWhatWaits) {
  Place inner(2);
  ASSERT_OK(inner.Say(1));
  bool moved = false;
  inner.node->Report(0, &moved);
  EXPECT_FALSE(moved);
  EXPECT_EQ(inner.node->Deadline(), 1'000'000);
  inner.node->Report(1'000'000, &moved);
  ASSERT_EQ(inner.control.announced.size(), size_t{1});
  AnnounceMessage message;
  ASSERT_OK(negotiate::Decode(inner.control.announced[0], &message));
  ASSERT_TRUE(message.waiting && message.waiting->size() == 1);
  EXPECT_TRUE((*message.waiting)[0].ready == Positions{3});
}

}  // namespace
}  // namespace hvd::test
