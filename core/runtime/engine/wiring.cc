#include "runtime/engine/wiring.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backend/host/host_backend.h"
#include "backend/library/staged_backend.h"
#include "backend/nccl/nccl_backend.h"
#include "runtime/control/control.h"
#include "runtime/engine/cores.h"
#include "runtime/engine/set_registry.h"
#include "transport/inproc/fabric.h"
#include "transport/mapping.h"
#include "transport/shm/arena.h"
#include "transport/shm/shared_memory.h"

namespace hvd {

namespace {

// Every link has a transport for control and one for data.
enum Channel : uint32_t { kControlChannel, kDataChannel };

// Shutdown is nothing that the ranks do together: a slower one may still be reading.
constexpr int64_t kLibraryLingerUs = 10'000'000;

// Over TCP the ranks of a host use links as those of several hosts do.
Topology JobOf(const EngineOptions& options) {
  const bool links = options.wiring == Wiring::kTcp || options.inproc_transport;
  if (options.hosts.empty()) return Topology::OneHost(options.size, !links);
  return {options.hosts, !links, options.host_names};
}

// The members of a set that share this rank's host.
Members OnHostOf(GlobalRank rank, const Topology& job, const Members& members) {
  std::vector<int> local;
  const int host = job.HostOf(Position(rank.value()));
  for (const GlobalRank member : members.ranks()) {
    if (job.HostOf(Position(member.value())) == host) local.push_back(member.value());
  }
  return Members(local);
}

// Of a window of a process set, whose members are on one host or on several.
WindowBytes BytesOfSet(const BoardShape& board, bool several_hosts) {
  size_t bytes = 0;
  for (const size_t part : {WindowControlBytes(), Watermarks::WindowBytes(several_hosts),
                            WindowBackendBytes(board), HostCores::Bytes()}) {
    bytes += WholePages(part);
  }
  return {bytes, bytes};
}

// Of one that its members have made by themselves: there may be very many, and few of them in use.
WindowBytes BytesOfOwnSet(const BoardShape& board, bool several_hosts) {
  WindowBytes bytes = BytesOfSet(board, several_hosts);
  bytes.at_once =
      WholePages(WindowControlBytes()) + WholePages(Watermarks::WindowBytes(several_hosts));
  return bytes;
}

Status OpenLibrary(const EngineOptions& options, std::unique_ptr<Library>* library) {
  if (options.library.empty()) return Status::Ok();
  if (options.config.encrypt && !JobOf(options).AllShareMemory()) {
    return Status::Invalid(
        "HOROVOD_ENCRYPT=1: Gloo and MPI send over connections of their own, which nobody "
        "encrypts. "
        "Leave HOROVOD_CPU_OPERATIONS away, or encrypt the network.");
  }
  LibraryOptions given;
  given.address = options.address;
  given.job_size = options.size;
  given.timeout_us = static_cast<int64_t>(options.config.gloo_timeout_seconds * 1e6);
  given.linger_us = kLibraryLingerUs;
  return LoadLibrary(options.library, given, library);
}

std::shared_ptr<nccl::GpuRuntime> OpenGpu(const EngineOptions& options) {
  if (options.gpu_library.empty()) return nullptr;
  // NCCL does not encrypt: what leaves a host goes by way of its memory.
  if (options.config.encrypt && !JobOf(options).AllShareMemory()) return nullptr;
  nccl::GpuOptions gpu;
  gpu.driver = options.gpu_driver;
  gpu.library = options.gpu_library;
  gpu.rank = GlobalRank(options.rank);
  gpu.local_rank = options.local_rank;
  gpu.timeout_us = static_cast<int64_t>(options.config.start_timeout_seconds * 1e6);
  return std::make_shared<nccl::GpuRuntime>(gpu);
}

}  // namespace

size_t SharedFileBytes(const Config& config, int ranks) {
  const BoardShape board = BoardShape::Of(config.shm_chunk_bytes, config.shm_staging_slots);
  shm::Identity file;
  file.members = static_cast<uint32_t>(ranks);
  file.bytes =
      std::max(BytesOfSet(board, /*several_hosts=*/true).all, peer::ChannelNeeds(ranks).bytes);
  return std::max(shm::SharedMemory::Bytes(file), shm::Arena::LeastFileBytes(ranks));
}

Wirer::Wirer(const EngineOptions& options)
    : rank_(options.rank),
      job_(JobOf(options)),
      board_(BoardShape::Of(options.config.shm_chunk_bytes, options.config.shm_staging_slots)) {}

Status Wirer::Make(EngineOptions* options, const Waker& waker, LinkRequests* requests,
                   LinkSigns* signs, std::unique_ptr<Wirer>* wirer) {
  std::unique_ptr<Wirer> made(new Wirer(*options));
  HVD_RETURN_IF_ERROR(OpenLibrary(*options, &made->library_));
  made->gpu_ = OpenGpu(*options);
  if (!made->job_.AllShareMemory()) {
    HVD_RETURN_IF_ERROR(made->MakeTransports(options, waker, requests, signs));
    made->control_ = made->transports_[kControlChannel].get();
    made->data_ = made->transports_[kDataChannel].get();
  }
  if (!made->job_.hosts_share_memory()) {
    // Over links alone.
  } else if (options->wiring == Wiring::kInproc) {
    made->windows_ = MakeFabricWindows(*options, waker);
  } else {
    made->windows_ = MakeSharedWindows(options, made->job_, waker);
  }
  *wirer = std::move(made);
  return Status::Ok();
}

// By channel.
Status Wirer::MakeTransports(EngineOptions* options, const Waker& waker, LinkRequests* requests,
                             LinkSigns* signs) {
  transports_.resize(2);  // before anything owns the links
  std::unique_ptr<Transport>& control = transports_[kControlChannel];
  std::unique_ptr<Transport>& data = transports_[kDataChannel];
  if (options->wiring == Wiring::kInproc) {
    control =
        options->fabric->MakeTransport(kControlChannel, rank_, waker, /*peers_may_leave=*/true);
    data = options->fabric->MakeTransport(kDataChannel, rank_, waker);
    return Status::Ok();
  }
  HVD_RETURN_IF_ERROR(MakeTcp(options, LinkRole::kControl, requests, signs, &control));
  return MakeTcp(options, LinkRole::kData, requests, signs, &data);
}

Status Wirer::MakeTcp(EngineOptions* options, LinkRole role, LinkRequests* requests,
                      LinkSigns* signs, std::unique_ptr<Transport>* transport) {
  tcp::TcpTransport::Options tcp;
  tcp.generation = static_cast<uint32_t>(options->generation);
  tcp.rank = rank_;
  tcp.size = options->size;
  const bool control = role == LinkRole::kControl;
  tcp.integrity = control ? tcp::Integrity::kSealed : tcp::Integrity::kChecksum;
  tcp.peers_may_leave = control;
  tcp.signs = signs;
  tcp.role = role;
  tcp.encrypted = options->config.encrypt;
  if (options->links_on_demand) {
    tcp.ask_for_link = [requests](GlobalRank peer, LinkRole wanted) {
      requests->Ask({peer, wanted});
    };
    if (!control) tcp.strands = static_cast<int>(options->config.data_links);
  }
  std::unique_ptr<tcp::TcpTransport> made;
  HVD_RETURN_IF_ERROR(tcp::TcpTransport::Make(tcp, Take(role, &options->links), &made));
  over_sockets_[role] = made.get();
  *transport = std::move(made);
  return Status::Ok();
}

Status Wirer::AddLink(const Link& link, Descriptor socket) {
  const auto found = over_sockets_.find(StrandOf(link.role) > 0 ? LinkRole::kData : link.role);
  if (found == over_sockets_.end()) {
    return Status::Internal("a " + std::string(Name(link.role)) + " link comes after the start");
  }
  return found->second->AddLink(link, std::move(socket));
}

Wirer::~Wirer() {
  if (gpu_ != nullptr) gpu_->AwaitAll();
}

Status Wirer::Prepare(uint32_t id, const Members& members, int64_t deadline_us,
                      ProcessSetWires* wires) {
  wires->topology = job_.Of(members);
  if (!job_.hosts_share_memory()) return Status::Ok();
  // All ranks of a host come to the same answer, and make the window together.
  const Members local = OnHostOf(rank_, job_, members);
  if (local.size() == 0) return Status::Ok();
  const WindowBytes bytes = BytesOfSet(board_, wires->topology.hosts() > 1);
  HVD_RETURN_IF_ERROR(windows_->Make(id, local, bytes, deadline_us, &wires->window));
  if (wires->window == nullptr) return Status::Ok();  // not a member
  HVD_RETURN_IF_ERROR(Furnish(id, members, wires));
  return id == 0 ? cores_.Tell(wires->window.get()) : Status::Ok();
}

Members Wirer::Companions(const Members& members) const {
  return job_.hosts_share_memory() ? OnHostOf(rank_, job_, members) : Members({rank_.value()});
}

std::vector<GlobalRank> Wirer::FirstsOf(const Members& members) const {
  if (!job_.hosts_share_memory()) return members.ranks();
  const Topology topology = job_.Of(members);
  std::vector<GlobalRank> firsts;
  for (int host = 0; host < topology.hosts(); ++host)
    firsts.push_back(members[topology.OnHost(host).front()]);
  return firsts;
}

Status Wirer::Reserve(uint32_t id, const Members& members, std::string* place) {
  if (!job_.hosts_share_memory()) return Status::Ok();
  const WindowBytes bytes = BytesOfOwnSet(board_, job_.Of(members).hosts() > 1);
  return windows_->Reserve(id, Companions(members), bytes, place);
}

Status Wirer::PrepareIn(uint32_t id, const Members& members, const std::string& place,
                        ProcessSetWires* wires) {
  wires->topology = job_.Of(members);
  if (!job_.hosts_share_memory()) return Status::Ok();
  const WindowBytes bytes = BytesOfOwnSet(board_, wires->topology.hosts() > 1);
  HVD_RETURN_IF_ERROR(windows_->Open(id, Companions(members), bytes, place, &wires->window));
  return Furnish(id, members, wires);
}

void Wirer::Close(const std::string& place) {
  if (windows_ != nullptr) windows_->Close(place);
}

void Wirer::Reclaim() {
  if (windows_ != nullptr) windows_->Reclaim();
}

// What works over the window that it has.
Status Wirer::Furnish(uint32_t id, const Members& members, ProcessSetWires* wires) {
  const Topology& topology = wires->topology;
  HVD_RETURN_IF_ERROR(MakeWindowControl(
      wires->window.get(), topology.OnHost(topology.HostOf(members.Find(rank_))), &wires->control));
  HVD_RETURN_IF_ERROR(Watermarks::Make(wires->window.get(), control_, id, members, topology,
                                       members.Find(rank_), &wires->watermarks));
  if (wires->window->size() == members.size()) {
    HVD_RETURN_IF_ERROR(
        MakeWindowBackend(wires->window.get(), board_, &wires->backends.emplace_back()));
  } else {
    HVD_RETURN_IF_ERROR(MakeHierarchicalBackend(wires->window.get(), board_, data_, id, members,
                                                members.Find(rank_), topology,
                                                &wires->backends.emplace_back()));
  }
  return Status::Ok();
}

Status Wirer::MakeChannels(int64_t deadline_us, peer::Channels* channels) {
  if (control_ != nullptr) channels->links = peer::MakeTransportChannel(control_, data_);
  if (!job_.hosts_share_memory()) return Status::Ok();
  const Members local = OnHostOf(rank_, job_, Members::Everybody(job_.size()));
  if (local.size() == 1) return Status::Ok();
  const peer::WindowNeeds needs = peer::ChannelNeeds(local.size());
  std::unique_ptr<Window> window;
  HVD_RETURN_IF_ERROR(
      windows_->Make(peer::kChannelSet, local, {needs.bytes, needs.at_once}, deadline_us, &window));
  channels->local = local;
  return peer::MakeWindowChannel(std::move(window), local, &channels->window);
}

void Wirer::Finish(uint32_t id, const Members& members, ProcessSetWires* wires) {
  wires->control = MakeTreeControl(std::move(wires->control), control_, id, members,
                                   wires->topology, members.Find(rank_));
  // Over links it needs nothing that could fail.
  if (wires->watermarks == nullptr)
    (void)Watermarks::Make(nullptr, control_, id, members, wires->topology, members.Find(rank_),
                           &wires->watermarks);
  if (wires->backends.empty()) {
    wires->backends.push_back(MakeTransportBackend(data_, id, members, members.Find(rank_)));
  }
  UseGpu(id, members, wires);
  UseLibrary(id, members, wires);
}

void Wirer::UseGpu(uint32_t id, const Members& members, ProcessSetWires* wires) {
  if (gpu_ == nullptr) return;
  Backend* const host = wires->backends.back().get();
  auto made = MakeNcclBackend(gpu_, host, id, members, members.Find(rank_));
  wires->backends.insert(wires->backends.begin(), std::move(made));
}

// One that others have waited for in vain will not come to the end of MPI, either.
void Wirer::Lose(const Cause& cause) noexcept {
  const bool lost = cause.kind == CauseKind::kDied || cause.kind == CauseKind::kSilent ||
                    cause.kind == CauseKind::kStall;
  if (lost && library_ != nullptr) library_->LoseRank();
}

// Before the backend of our own, which serves what the library does not have. A library has a
// thread and connections for a set, or one communicator for equal members, which collectives of two
// sets at once would confuse; so not for sets that come and go, several of them with equal members.
void Wirer::UseLibrary(uint32_t id, const Members& members, ProcessSetWires* wires) {
  const bool own = id >= SetRegistry::kFirstOwn;
  if (library_ == nullptr || own || members.size() == 1) return;
  const int position = members.Find(rank_).value();
  Backend* const host = wires->backends.back().get();
  auto staged = MakeStagedBackend(library_->MakeSet(id, position, members.size()), library_->name(),
                                  host, position, members.size());
  wires->backends.insert(wires->backends.begin(), std::move(staged));
}

}  // namespace hvd
