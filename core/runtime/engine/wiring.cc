#include "runtime/engine/wiring.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "backend/host/host_backend.h"
#include "runtime/control/control.h"
#include "runtime/engine/cores.h"
#include "transport/inproc/fabric.h"
#include "transport/shm/window.h"
#include "transport/tcp/transport.h"

namespace hvd {

namespace {

constexpr uint32_t kControlChannel = 0;
constexpr uint32_t kDataChannel = 1;

std::vector<Link> TakeLinks(EngineOptions* options, LinkRole role) {
  std::vector<Link>& links = options->links;
  const auto first =
      std::stable_partition(links.begin(), links.end(), [role](const Link& l) { return l.role != role; });
  std::vector<Link> taken(first, links.end());
  links.erase(first, links.end());
  return taken;
}

// A job has one host. Over TCP its ranks use links as those of several hosts would.
Topology JobOf(const EngineOptions& options) {
  const bool links = options.wiring == Wiring::kTcp || options.inproc_transport;
  return Topology::OneHost(options.size, !links);
}

}  // namespace

Wirer::Wirer(const EngineOptions& options, const Waker& waker)
    : wiring_(options.wiring),
      job_(JobOf(options)),
      generation_(options.generation),
      rank_(GlobalRank(options.rank)),
      size_(options.size),
      fabric_(options.fabric),
      waker_(waker),
      cores_(UsableCores()) {}

Wirer::~Wirer() {
  for (const Link& link : share_) close(link.fd);
}

Status Wirer::Make(EngineOptions* options, const Waker& waker, std::unique_ptr<Wirer>* wirer) {
  wirer->reset(new Wirer(*options, waker));
  (*wirer)->share_ = TakeLinks(options, LinkRole::kShare);
  return (*wirer)->job_.AllShareMemory() ? Status::Ok() : (*wirer)->MakeTransports(options);
}

Status Wirer::MakeTcp(EngineOptions* options, LinkRole role) {
  tcp::TcpTransport::Options tcp;
  tcp.generation = static_cast<uint32_t>(generation_);
  tcp.rank = rank_;
  tcp.size = size_;
  const bool control = role == LinkRole::kControl;
  tcp.integrity = control ? tcp::Integrity::kSealed : tcp::Integrity::kChecksum;
  tcp.peers_may_leave = control;
  std::unique_ptr<Transport>& made = transports_.emplace_back();  // before anything owns the links
  return tcp::TcpTransport::Make(tcp, TakeLinks(options, role), &made);
}

Status Wirer::MakeTransports(EngineOptions* options) {
  if (wiring_ == Wiring::kInproc) {
    for (const uint32_t channel : {kControlChannel, kDataChannel}) {
      const bool peers_may_leave = channel == kControlChannel;
      transports_.push_back(fabric_->MakeTransport(channel, rank_, waker_, peers_may_leave));
    }
  } else {
    HVD_RETURN_IF_ERROR(MakeTcp(options, LinkRole::kControl));
    HVD_RETURN_IF_ERROR(MakeTcp(options, LinkRole::kData));
  }
  control_ = transports_[kControlChannel].get();
  data_ = transports_[kDataChannel].get();
  return Status::Ok();
}

// All ranks of the host.
Status Wirer::PlantTree(int64_t deadline_us) {
  std::vector<int> ranks;
  for (const Position rank : job_.OnHost(job_.HostOf(Position(rank_.value())))) ranks.push_back(rank.value());
  std::vector<int> sockets(static_cast<size_t>(size_), -1);
  for (const Link& link : share_) sockets[link.peer.index()] = link.fd;
  return shm::ShareTree::Make(generation_, Members(ranks), rank_, std::move(sockets), waker_, deadline_us,
                              &tree_);
}

Status Wirer::MakeWindow(uint32_t id, const Members& members, int64_t deadline_us,
                         std::unique_ptr<Window>* window) {
  if (wiring_ == Wiring::kInproc) {
    if (members.Has(rank_)) *window = fabric_->MakeWindow(id, members, rank_, waker_);
    return Status::Ok();
  }
  if (tree_ == nullptr) HVD_RETURN_IF_ERROR(PlantTree(deadline_us));
  shm::WindowOptions options;
  options.set = id;
  options.members = members;
  options.deadline = deadline_us;
  for (const size_t bytes : {WindowControlBytes(), WindowBackendBytes(), CoreCountBytes()}) {
    options.bytes += WholePages(bytes);
  }
  return shm::ShmWindow::Make(options, tree_.get(), window);
}

Status Wirer::Prepare(uint32_t id, const Members& members, int64_t deadline_us, ProcessSetWires* wires) {
  wires->topology = job_.Of(members);
  if (!wires->topology.AllShareMemory()) return Status::Ok();
  HVD_RETURN_IF_ERROR(MakeWindow(id, members, deadline_us, &wires->window));
  if (wires->window == nullptr) return Status::Ok();  // not a member
  HVD_RETURN_IF_ERROR(MakeWindowControl(wires->window.get(), &wires->control));
  HVD_RETURN_IF_ERROR(MakeWindowBackend(wires->window.get(), &wires->backends.emplace_back()));
  return id == 0 ? CountCores(wires->window.get(), deadline_us, &cores_) : Status::Ok();
}

void Wirer::Interrupt() {
  for (const Link& link : share_) ::shutdown(link.fd, SHUT_RDWR);
}

void Wirer::Finish(uint32_t id, const Members& members, ProcessSetWires* wires) {
  if (wires->topology.AllShareMemory()) return;
  wires->control = MakeTransportControl(control_, id, members);
  wires->backends.push_back(MakeTransportBackend(data_, id, members, members.Find(rank_)));
}

}  // namespace hvd
