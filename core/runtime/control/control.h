#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/rank.h"
#include "base/status.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

// The messages of one process set's negotiation: members announce to the sequencer (position 0 of
// the set), which publishes to all. Order is kept per direction. Never waits: what does not fit is
// kept and moved by later calls of Progress.
class Control {
 public:
  virtual ~Control() = default;

  // On a member that is not the sequencer.
  virtual void Announce(const std::string& message) = 0;
  virtual bool TakeResponse(std::string* message) = 0;

  // On the sequencer; members are positions 1..size-1.
  virtual void Publish(const std::string& message) = 0;
  virtual bool TakeAnnouncement(Position member, std::string* message) = 0;

  virtual void Progress(bool* moved) = 0;
  // The member whose stream cannot be cut into messages; nobody's while all is well.
  virtual Position corrupt() const = 0;
  virtual bool idle() const = 0;  // nothing waits to be sent
};

// Control over point-to-point links: a star around the sequencer.
std::unique_ptr<Control> MakeTransportControl(Transport* transport, uint32_t set, Members members);

// Control through shared memory: every member owns a block with the stream it writes and the counts
// of what it has read. It takes so many bytes.
size_t WindowControlBytes();
Status MakeWindowControl(Window* window, std::unique_ptr<Control>* control);

}  // namespace hvd
