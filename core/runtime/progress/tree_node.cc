#include "runtime/progress/tree_node.h"

#include <utility>
#include <vector>

namespace hvd {

using negotiate::AnnounceMessage;
using negotiate::Response;

TreeNode::TreeNode(const negotiate::SequencerOptions& options, const Topology::TreePlace& place,
                   Control* control, Counters* counters)
    : alone_(options.members.size() == 1),
      parent_(place.parent),
      control_(control),
      counters_(counters) {
  negotiate::MergerOptions merging;
  for (const Topology::TreePlace::Child& child : place.children)
    merging.children.push_back({options.members[child.at], child.below});
  if (merging.children.empty()) return;
  if (parent_.known()) {
    inner_.emplace(std::move(merging));
  } else {
    root_.emplace(options, std::move(merging.children));
  }
}

Status TreeNode::Announce(size_t child, AnnounceMessage message, Micros now) {
  if (root_) return root_->Announce(child, std::move(message), now);
  if (inner_) return inner_->Announce(child, std::move(message), now);
  Send(message);
  return Status::Ok();
}

void TreeNode::Report(Micros now, bool* moved) {
  if (!inner_) return;
  inner_->Look(now);
  for (AnnounceMessage message; inner_->Take(&message);) {
    *moved = true;
    Send(message);
  }
}

Status TreeNode::Next(Micros now, std::optional<Response>* response) {
  if (root_) {
    *response = root_->Next(now);
    if (!*response || alone_) return Status::Ok();
    scratch_.clear();
    negotiate::Encode(**response, &scratch_);
    Publish();
    return Status::Ok();
  }
  if (!control_->Take(parent_, &scratch_)) return Status::Ok();
  HVD_RETURN_IF_ERROR(negotiate::Decode(scratch_, &response->emplace()));
  if (!inner_) return Status::Ok();
  HVD_RETURN_IF_ERROR(inner_->Pass(**response));
  Publish();
  return Status::Ok();
}

void TreeNode::Resume(uint64_t batches, uint64_t unnamed) {
  if (root_) root_->Resume(batches, unnamed);
  if (inner_) inner_->Resume(unnamed);
}

TreeNode::Micros TreeNode::Deadline() const {
  if (root_) return root_->Deadline();
  return inner_ ? inner_->Deadline() : -1;
}

void TreeNode::Send(const AnnounceMessage& message) {
  scratch_.clear();
  negotiate::Encode(message, &scratch_);
  control_->Announce(scratch_);
  Count(counters_->control_messages);
}

void TreeNode::Publish() {
  control_->Publish(scratch_);
  Count(counters_->control_messages);
}

}  // namespace hvd
