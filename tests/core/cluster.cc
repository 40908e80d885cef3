#include "cluster.h"

#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "transport/transport_sockets.h"

namespace hvd::test {

namespace {

void AddMesh(int size, LinkRole role, const std::function<SocketPair()>& connect,
             std::vector<std::vector<Link>>* links) {
  auto mesh = Mesh(size, connect);
  for (int rank = 0; rank < size; ++rank) {
    for (Link& link : mesh[rank]) {
      link.role = role;
      (*links)[rank].push_back(link);
    }
  }
}

}  // namespace

Cluster::Cluster(int size, Wires wires, std::vector<std::vector<int>> process_sets, Config config,
                 std::vector<int> hosts)
    : size_(size),
      wires_(wires),
      process_sets_(std::move(process_sets)),
      config_(config),
      hosts_(std::move(hosts)),
      fabric_(size),
      links_(size),
      duplicates_(size) {
  AddMesh(size, LinkRole::kWatch, UnixPair, &links_);
  for (int rank = 0; rank < size; ++rank) {
    for (const Link& link : links_[rank]) duplicates_[rank].push_back(dup(link.fd));
  }
  if (wires == Wires::kHosts && hosts_.empty()) hosts_ = HostsOfEveryShape(size);
  AddShareLinks();
  if (wires != Wires::kTcp && wires != Wires::kHosts) return;
  AddMesh(size, LinkRole::kControl, TcpPair, &links_);
  AddMesh(size, LinkRole::kData, TcpPair, &links_);
}

// Among the ranks of each host.
void Cluster::AddShareLinks() {
  if (wires_ != Wires::kShm && wires_ != Wires::kHosts) return;
  std::vector<std::vector<Link>> all(size_);
  AddMesh(size_, LinkRole::kShare, UnixPair, &all);
  for (int rank = 0; rank < size_; ++rank) {
    for (const Link& link : all[rank]) {
      const bool same_host = hosts_.empty() || hosts_[rank] == hosts_[link.peer.index()];
      if (same_host) {
        links_[rank].push_back(link);
      } else {
        close(link.fd);
      }
    }
  }
}

Cluster::~Cluster() {
  for (const auto& fds : duplicates_) {
    for (const int fd : fds) close(fd);
  }
}

void Cluster::CutLinks(int rank) {
  for (const int fd : duplicates_[rank])
    shutdown(fd, SHUT_WR);  // one-sided: the rank itself hears no end and blames nobody
}

EngineOptions Cluster::OptionsFor(int rank) {
  EngineOptions options;
  options.rank = rank;
  options.size = size_;
  options.process_sets = process_sets_;
  options.config = config_;
  options.links = std::move(links_[rank]);
  options.fabric = &fabric_;
  options.hosts = hosts_;
  options.inproc_transport = wires_ == Wires::kInprocLinks;
  if (wires_ == Wires::kShm || wires_ == Wires::kHosts) {
    options.wiring = Wiring::kShm;
  } else {
    options.wiring = wires_ == Wires::kTcp ? Wiring::kTcp : Wiring::kInproc;
  }
  return options;
}

Status Cluster::Make(int rank, std::unique_ptr<Engine>* engine) {
  return Engine::Make(OptionsFor(rank), engine);
}

void Cluster::Run(const std::function<void(Engine&, int)>& body) {
  std::vector<std::unique_ptr<Engine>> engines(size_);
  RunRanks(size_, [&](int rank) {
    if (begin_) begin_(rank);
    ASSERT_OK(Make(rank, &engines[rank]));
    body(*engines[rank], rank);
  });
  engines.clear();
}

Entry AllreduceEntry(const std::string& name, std::vector<float>* data, ReduceOp op, uint32_t set) {
  Entry entry;
  entry.process_set = set;
  entry.request.kind = OpKind::kAllreduce;
  entry.request.reduce_op = op;
  entry.request.name = name;
  entry.request.tensors.push_back({DataType::kFloat32, {static_cast<int64_t>(data->size())}});
  const auto bytes = static_cast<int64_t>(data->size() * sizeof(float));
  entry.buffers.push_back(TensorBuffer::InPlace(data->data(), bytes));
  return entry;
}

Status Submit(Engine& engine, Entry entry, HandlePtr* handle) {
  return engine.Submit(std::move(entry), handle);
}

Status Run(Engine& engine, Entry entry, HandlePtr* handle) {
  HandlePtr own;
  entry.urgent = true;
  HVD_RETURN_IF_ERROR(engine.Submit(std::move(entry), &own));
  if (handle != nullptr) *handle = own;
  return engine.Wait(own, kPatienceMs * int64_t{1000}, nullptr);
}

Status Allreduce(Engine& engine, const std::string& name, std::vector<float>* data, ReduceOp op,
                 uint32_t set) {
  return Run(engine, AllreduceEntry(name, data, op, set));
}

Status Barrier(Engine& engine, uint32_t set) {
  Entry entry;
  entry.process_set = set;
  entry.request.kind = OpKind::kBarrier;
  return Run(engine, std::move(entry));
}

bool SomeRoundIsSilent(Engine* engine, uint64_t tensors, const std::function<void()>& round) {
  constexpr int kRounds = 5;  // all of them, since every rank has to do as many
  bool silent = false;
  for (int i = 0; i < kRounds; ++i) {
    const auto before = engine->CountersNow();
    round();
    const auto after = engine->CountersNow();
    silent = silent || (after.at("control_messages") == before.at("control_messages") &&
                        after.at("scheduled") == before.at("scheduled") + tensors);
  }
  return silent;
}

}  // namespace hvd::test
