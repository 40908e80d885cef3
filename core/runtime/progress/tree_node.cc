#include "runtime/progress/tree_node.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace hvd {

using negotiate::AnnounceMessage;
using negotiate::Response;

namespace {

// A response travels behind the root's policy: what follows from it must be equal on all members,
// whatever their own settings are, and from the same response on when it changes.
void Encode(const Response& response, const Policy& policy, std::string* bytes) {
  bytes->assign(reinterpret_cast<const char*>(&policy), sizeof policy);
  negotiate::Encode(response, bytes);
}

Status Decode(std::string_view bytes, Policy* policy, Response* response) {
  if (bytes.size() < sizeof *policy) return Status::Aborted("a response is too short");
  std::memcpy(policy, bytes.data(), sizeof *policy);
  return negotiate::Decode(bytes.substr(sizeof *policy), response);
}

std::vector<negotiate::MergerOptions::Child> ChildrenAt(const Topology::TreePlace& place,
                                                        const Members& members) {
  std::vector<negotiate::MergerOptions::Child> children;
  for (const Topology::TreePlace::Child& child : place.children)
    children.push_back({members[child.at], child.below});
  return children;
}

class Leaf : public TreeNode {
 public:
  Leaf(Control* control, Counters* counters) : control_(control), counters_(counters) {}

  Status Announce(size_t /*child*/, AnnounceMessage message, Micros /*now*/) override {
    Send(message);
    return Status::Ok();
  }

  Status Next(Micros /*now*/, Policy* policy, std::optional<Response>* response) override {
    if (!control_->TakeResponse(&scratch_)) return Status::Ok();
    return Decode(scratch_, policy, &response->emplace());
  }

 private:
  void Send(const AnnounceMessage& message) {
    scratch_.clear();
    negotiate::Encode(message, &scratch_);
    control_->Announce(scratch_);
    Count(counters_->control_messages);
  }

  Control* const control_;
  Counters* const counters_;
  std::string scratch_;  // message bytes, reused
};

class Inner : public TreeNode {
 public:
  Inner(negotiate::MergerOptions options, Control* control, Counters* counters)
      : merger_(std::move(options)), control_(control), counters_(counters) {}

  Status Announce(size_t child, AnnounceMessage message, Micros now) override {
    return merger_.Announce(child, std::move(message), now);
  }

  void Report(Micros now, bool* moved) override {
    merger_.Look(now);
    for (AnnounceMessage message; merger_.Take(&message);) {
      *moved = true;
      scratch_.clear();
      negotiate::Encode(message, &scratch_);
      control_->Announce(scratch_);
      Count(counters_->control_messages);
    }
  }

  Status Next(Micros /*now*/, Policy* policy, std::optional<Response>* response) override {
    if (!control_->TakeResponse(&scratch_)) return Status::Ok();
    HVD_RETURN_IF_ERROR(Decode(scratch_, policy, &response->emplace()));
    HVD_RETURN_IF_ERROR(merger_.Pass(**response));
    control_->Publish(scratch_);
    Count(counters_->control_messages);
    return Status::Ok();
  }

  void Resume(uint64_t /*batches*/, uint64_t unnamed) override { merger_.Resume(unnamed); }
  Micros Deadline() const override { return merger_.Deadline(); }
  const negotiate::Merger* merger() const override { return &merger_; }

 private:
  negotiate::Merger merger_;
  Control* const control_;
  Counters* const counters_;
  std::string scratch_;
};

class Root : public TreeNode {
 public:
  Root(const negotiate::SequencerOptions& options,
       std::vector<negotiate::MergerOptions::Child> children, Control* control, Counters* counters)
      : alone_(options.members.size() == 1),
        coordinator_(options, std::move(children)),
        control_(control),
        counters_(counters) {}

  Status Announce(size_t child, AnnounceMessage message, Micros now) override {
    return coordinator_.Announce(child, std::move(message), now);
  }

  Status Next(Micros now, Policy* policy, std::optional<Response>* response) override {
    *response = coordinator_.Next(now);
    if (!*response || alone_) return Status::Ok();
    Encode(**response, *policy, &scratch_);
    control_->Publish(scratch_);
    Count(counters_->control_messages);
    return Status::Ok();
  }

  void Resume(uint64_t batches, uint64_t unnamed) override {
    coordinator_.Resume(batches, unnamed);
  }
  Micros Deadline() const override { return coordinator_.Deadline(); }
  const negotiate::Merger* merger() const override { return &coordinator_.merger(); }
  negotiate::Coordinator* root() override { return &coordinator_; }

 private:
  const bool alone_;
  negotiate::Coordinator coordinator_;
  Control* const control_;
  Counters* const counters_;
  std::string scratch_;
};

}  // namespace

std::unique_ptr<TreeNode> MakeTreeNode(const negotiate::SequencerOptions& options,
                                       const Topology::TreePlace& place, Control* control,
                                       Counters* counters) {
  if (place.children.empty()) return std::make_unique<Leaf>(control, counters);
  auto children = ChildrenAt(place, options.members);
  if (!place.parent.known())
    return std::make_unique<Root>(options, std::move(children), control, counters);
  negotiate::MergerOptions merging;
  merging.children = std::move(children);
  return std::make_unique<Inner>(std::move(merging), control, counters);
}

}  // namespace hvd
