#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "base/topology.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

// One member's messages in the tree over which its process set negotiates (Topology::TreePlace):
// announcements go up to its parent and come from its children, responses come down and go on.
// Positions are those of the set. Order is kept between any two members. Never waits: what does not
// fit is kept and moved by later calls of Progress.
class Control {
 public:
  virtual ~Control() = default;

  virtual void Announce(const std::string& message) = 0;  // to the parent
  virtual void Publish(const std::string& message) = 0;   // to all children
  // The next message from the parent or from a child; false: there is none yet.
  virtual bool Take(Position neighbour, std::string* message) = 0;

  virtual void Progress(bool* moved) = 0;
  // The member whose stream cannot be cut into messages; nobody's while all is well.
  virtual Position corrupt() const = 0;
  virtual bool idle() const = 0;  // nothing waits to be sent
};

// Control through shared memory, among the members of one host: the first of them is the parent of
// the others. Every member owns a block with the stream it writes and the counts of what it has
// read. It takes so many bytes. `local`: the members by their position in the window.
size_t WindowControlBytes();
Status MakeWindowControl(Window* window, std::vector<Position> local,
                         std::unique_ptr<Control>* control);

// By the place of the member in the tree: `window` (see above; null where its host shares no
// memory) with its host, links with other hosts.
std::unique_ptr<Control> MakeTreeControl(std::unique_ptr<Control> window, Transport* transport,
                                         uint32_t set, const Members& members,
                                         const Topology& topology, Position position);

}  // namespace hvd
