#include "runtime/wiring.h"

#include <algorithm>

#include "backend/host/host_backend.h"
#include "runtime/census.h"
#include "runtime/control_transport.h"
#include "runtime/control_window.h"
#include "runtime/patience.h"
#include "transport/inproc/fabric.h"
#include "transport/shm/window.h"
#include "transport/tcp/transport.h"

namespace hvd {

namespace {

using Sets = std::vector<std::vector<int>>;

constexpr uint32_t kControlChannel = 0;
constexpr uint32_t kDataChannel = 1;

int PositionOf(int rank, const std::vector<int>& members) {
  const auto found = std::find(members.begin(), members.end(), rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::vector<Link> TakeLinks(EngineOptions* options, LinkRole role) {
  std::vector<Link>& links = options->links;
  const auto first =
      std::stable_partition(links.begin(), links.end(), [role](const Link& l) { return l.role != role; });
  std::vector<Link> taken(first, links.end());
  links.erase(first, links.end());
  return taken;
}

Status MakeWindow(const EngineOptions& options, uint32_t set, const std::vector<int>& members,
                  const Waker& waker, std::unique_ptr<Window>* window) {
  if (options.wiring == Wiring::kInproc) {
    *window = options.fabric->MakeWindow(set, members, options.rank, waker);
    return Status::Ok();
  }
  std::vector<int> sockets(members.size(), -1);
  for (const Link& link : options.links) {
    const int position = PositionOf(link.peer, members);
    if (position >= 0 && link.role == LinkRole::kWatch) sockets[position] = link.fd;
  }
  return shm::ShmWindow::Make(options.generation, set, members, options.rank, sockets, waker, window);
}

Status WireWindows(EngineOptions* options, const Sets& sets, const Waker& waker, Wired* wired) {
  for (size_t id = 0; id < sets.size(); ++id) {
    Wired::Set& set = wired->sets.emplace_back();
    if (PositionOf(options->rank, sets[id]) < 0) continue;
    std::unique_ptr<Window> window;
    HVD_RETURN_IF_ERROR(MakeWindow(*options, static_cast<uint32_t>(id), sets[id], waker, &window));
    HVD_RETURN_IF_ERROR(MakeWindowControl(window.get(), &set.control));
    HVD_RETURN_IF_ERROR(MakeWindowBackend(window.get(), &set.backend));
    if (id == 0) HVD_RETURN_IF_ERROR(CountCores(window.get(), &wired->cores));
    wired->windows.push_back(std::move(window));
  }
  return Status::Ok();
}

Status MakeTcp(EngineOptions* options, LinkRole role, tcp::Integrity integrity, Wired* wired) {
  tcp::TcpTransport::Options tcp;
  tcp.generation = static_cast<uint32_t>(options->generation);
  tcp.rank = options->rank;
  tcp.size = options->size;
  tcp.integrity = integrity;
  tcp.peers_may_leave = role == LinkRole::kControl;
  return tcp::TcpTransport::Make(tcp, TakeLinks(options, role), &wired->transports.emplace_back());
}

Status MakeTransports(EngineOptions* options, const Waker& waker, Wired* wired) {
  if (options->wiring == Wiring::kInproc) {
    for (const uint32_t channel : {kControlChannel, kDataChannel}) {
      const bool peers_may_leave = channel == kControlChannel;
      wired->transports.push_back(
          options->fabric->MakeTransport(channel, options->rank, waker, peers_may_leave));
    }
    return Status::Ok();
  }
  HVD_RETURN_IF_ERROR(MakeTcp(options, LinkRole::kControl, tcp::Integrity::kSealed, wired));
  return MakeTcp(options, LinkRole::kData, tcp::Integrity::kChecksum, wired);
}

Status WireTransports(EngineOptions* options, const Sets& sets, const Waker& waker, Wired* wired) {
  HVD_RETURN_IF_ERROR(MakeTransports(options, waker, wired));
  wired->cores = UsableCores();
  for (size_t id = 0; id < sets.size(); ++id) {
    Wired::Set& set = wired->sets.emplace_back();
    const int position = PositionOf(options->rank, sets[id]);
    if (position < 0) continue;
    const uint32_t tag = static_cast<uint32_t>(id);
    set.control = MakeTransportControl(wired->transports[kControlChannel].get(), tag, sets[id]);
    set.backend = MakeTransportBackend(wired->transports[kDataChannel].get(), tag, sets[id], position);
  }
  return Status::Ok();
}

}  // namespace

Status Wire(EngineOptions* options, const Sets& sets, const Waker& waker, Wired* wired) {
  const bool links = options->wiring == Wiring::kTcp || options->inproc_transport;
  HVD_RETURN_IF_ERROR(links ? WireTransports(options, sets, waker, wired)
                            : WireWindows(options, sets, waker, wired));
  wired->watch = TakeLinks(options, LinkRole::kWatch);
  return Status::Ok();
}

}  // namespace hvd
