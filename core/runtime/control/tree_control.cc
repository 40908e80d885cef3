#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/control/control.h"

namespace hvd {

namespace {

// The first member of a host of several: the others of the host are its children through shared
// memory, its parent and its other children are the first ones of their hosts.
class LeaderControl : public Control {
 public:
  LeaderControl(std::unique_ptr<Control> window, std::unique_ptr<Control> links,
                std::vector<Position> local)
      : window_(std::move(window)), links_(std::move(links)), local_(std::move(local)) {}

  void Announce(const std::string& message) override { links_->Announce(message); }
  // The longer way first.
  void Publish(const std::string& message) override {
    links_->Publish(message);
    window_->Publish(message);
  }
  bool Take(Position neighbour, std::string* message) override {
    const bool here = std::binary_search(local_.begin(), local_.end(), neighbour);
    return (here ? window_ : links_)->Take(neighbour, message);
  }

  void Progress(bool* moved) override {
    links_->Progress(moved);
    window_->Progress(moved);
  }
  Position corrupt() const override {
    return window_->corrupt().known() ? window_->corrupt() : links_->corrupt();
  }
  bool idle() const override { return window_->idle() && links_->idle(); }

 private:
  std::unique_ptr<Control> window_;
  std::unique_ptr<Control> links_;
  const std::vector<Position> local_;
};

}  // namespace

std::unique_ptr<Control> MakeTreeControl(std::unique_ptr<Control> window, Transport* transport,
                                         uint32_t set, const Members& members,
                                         const Topology& topology, Position position) {
  const Topology::TreePlace place = topology.TreePlaceOf(position);
  const bool below = place.parent.known() && topology.ShareMemory(position, place.parent);
  if (window != nullptr && (below || topology.hosts() == 1)) return window;
  std::vector<Position> children;
  for (const Topology::TreePlace::Child& child : place.children) {
    if (!topology.ShareMemory(position, child.at) && child.at != position)
      children.push_back(child.at);
  }
  auto links = MakeTransportControl(transport, set, members, place.parent, children);
  if (window == nullptr) return links;
  return std::make_unique<LeaderControl>(std::move(window), std::move(links),
                                         topology.OnHost(topology.HostOf(position)));
}

}  // namespace hvd
