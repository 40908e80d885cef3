#include "ranks.h"

#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>

#include "backend/library/staged_backend.h"
#include "backend_on_gpu.h"
#include "base/clock.h"
#include "transport/shm/window.h"
#include "transport/tcp/transport.h"
#include "transport/transport_sockets.h"

namespace hvd::test {

namespace {
constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kIdlePasses = 20;  // before a rank sleeps

// One machine after another, the second of which is made when the first is done.
class Then : public StepMachine {
 public:
  Then(std::unique_ptr<StepMachine> first, std::function<std::unique_ptr<StepMachine>()> second)
      : machine_(std::move(first)), second_(std::move(second)) {}

  Status status() const override { return machine_->status(); }
  int64_t deadline_us() const override { return machine_->deadline_us(); }

 private:
  Step TakeStep() override {
    const Step step = machine_->Advance();
    if (step != Step::kDone || !second_) return step;
    machine_ = second_();
    second_ = nullptr;
    return Step::kProgressed;
  }

  std::unique_ptr<StepMachine> machine_;
  std::function<std::unique_ptr<StepMachine>()> second_;
};

// One of a set's machines, which run one at a time, as the executor lets them.
class InTurn : public StepMachine {
 public:
  InTurn(uint64_t place, uint64_t* turn, std::function<std::unique_ptr<StepMachine>()> make)
      : place_(place), turn_(turn), make_(std::move(make)) {}

  Status status() const override { return machine_->status(); }
  int64_t deadline_us() const override { return machine_ ? machine_->deadline_us() : -1; }

 private:
  Step TakeStep() override {
    if (*turn_ != place_) return Step::kBlocked;
    if (machine_ == nullptr) machine_ = make_();
    const Step step = machine_->Advance();
    if (step == Step::kDone) ++*turn_;
    return step;
  }

  const uint64_t place_;
  uint64_t* const turn_;
  const std::function<std::unique_ptr<StepMachine>()> make_;
  std::unique_ptr<StepMachine> machine_;
};

// A library's backend and below it the host's, as the executor chooses among them.
class FirstThatServes : public Backend {
 public:
  FirstThatServes(std::unique_ptr<Backend> library, Backend* host, const Waker& waker)
      : library_(std::move(library)), host_(host), waker_(waker) {}

  bool Serves(const CollectiveSpec& /*spec*/) const override { return true; }
  std::unique_ptr<StepMachine> SetUp(const CollectiveSpec& /*first*/,
                                     const Waker& /*waker*/) override {
    return nullptr;
  }
  std::unique_ptr<StepMachine> Start(CollectiveSpec spec) override {
    return std::make_unique<InTurn>(started_++, &turn_,
                                    [this, spec = std::move(spec)] { return Begin(spec); });
  }
  Status Allocate(const DeviceOrder& order, int64_t bytes,
                  std::shared_ptr<std::byte>* memory) override {
    return library_->Allocate(order, bytes, memory);
  }
  void Abort() noexcept override { library_->Abort(); }

 private:
  std::unique_ptr<StepMachine> Begin(const CollectiveSpec& spec) {
    if (!library_->Serves(spec)) return host_->Start(spec);
    if (set_up_) return library_->Start(spec);
    set_up_ = true;
    return std::make_unique<Then>(library_->SetUp(spec, waker_),
                                  [this, spec] { return library_->Start(spec); });
  }

  const std::unique_ptr<Backend> library_;
  Backend* const host_;
  const Waker& waker_;
  bool set_up_ = false;
  uint64_t started_ = 0;
  uint64_t turn_ = 0;  // of the one that runs
};
}  // namespace

const char* Name(Medium medium) {
  constexpr const char* kNames[] = {
      "inproc window", "inproc transport", "shared memory", "TCP", "several hosts", "Gloo", "NCCL"};
  return kNames[static_cast<int>(medium)];
}

const std::vector<Medium>& AllMedia() {
  static const std::vector<Medium> media = [] {
    std::vector<Medium> all{Medium::kInprocWindow, Medium::kInprocTransport, Medium::kShmWindow,
                            Medium::kTcp,          Medium::kHosts,           Medium::kNccl};
    if (!std::string(HVD_GLOO_MODULE).empty()) all.push_back(Medium::kGloo);
    return all;
  }();
  return media;
}

World::World(Medium medium, int size, std::vector<int> hosts, BoardShape board)
    : medium_(medium),
      size_(size),
      hosts_(hosts.empty() ? HostsOfEveryShape(size) : std::move(hosts)),
      board_(board),
      fabric_(size),
      sockets_(size) {
  if (medium == Medium::kTcp) links_ = Mesh(size, TcpPair);
  if (medium != Medium::kShmWindow) return;
  for (auto& row : sockets_) row.resize(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
      sockets_[a][b] = Descriptor(pair[0]);
      sockets_[b][a] = Descriptor(pair[1]);
    }
  }
}

std::vector<int> World::Everybody() const {
  std::vector<int> members(size_);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// A rank that never comes holds up the others for a moment only.
void World::LeaveTogether() {
  std::unique_lock<std::mutex> lock(mutex_);
  const int all = (left_ / size_ + 1) * size_;
  ++left_;
  leaves_.notify_all();
  leaves_.wait_for(lock, std::chrono::seconds(5), [&] { return left_ >= all; });
}

Rank::Rank(World* world, int rank) : world_(world), rank_(rank) {
  if (world_->medium_ == Medium::kInprocTransport || world_->medium_ == Medium::kHosts) {
    transport_ = world_->fabric_.MakeTransport(0, GlobalRank(rank), waker_);
  }
  if (world_->medium_ != Medium::kTcp) return;
  tcp::TcpTransport::Options options;
  options.rank = GlobalRank(rank);
  options.size = world_->size();
  std::unique_ptr<tcp::TcpTransport> transport;
  const Status status = tcp::TcpTransport::Make(options, world_->links_[rank], &transport);
  if (!status.ok()) check::Fail(__FILE__, __LINE__, "links: " + status.message());
  transport_ = std::move(transport);
}

// Gloo drops what a slower member has not read yet; the engine's sets stay a while for that.
Rank::~Rank() {
  if (world_->medium_ == Medium::kGloo) world_->LeaveTogether();
}

Status Rank::Join(uint32_t set, const std::vector<int>& members, Backend** backend) {
  const Members ranks(members);
  if (world_->medium_ == Medium::kHosts) return JoinHosts(set, ranks, backend);
  if (transport_) {
    backends_.push_back(
        MakeTransportBackend(transport_.get(), set, ranks, ranks.Find(GlobalRank(rank_))));
    *backend = backends_.back().get();
    return Status::Ok();
  }
  std::unique_ptr<Window> window;
  if (world_->medium_ == Medium::kInprocWindow || world_->medium_ == Medium::kGloo ||
      world_->medium_ == Medium::kNccl) {
    window = world_->fabric_.MakeWindow(set, ranks, GlobalRank(rank_), waker_);
  } else {
    std::vector<int> sockets;
    for (int member : members) sockets.push_back(world_->sockets_[rank_][member].get());
    const int64_t deadline = NowMicros() + 60000000;
    std::unique_ptr<shm::ShareTree> tree;  // of the members alone
    HVD_RETURN_IF_ERROR(
        shm::ShareTree::Make(1, ranks, GlobalRank(rank_), sockets, waker_, deadline, &tree));
    HVD_RETURN_IF_ERROR(shm::ShmWindow::Make(
        {set, ranks, WindowBackendBytes(world_->board_), deadline}, tree.get(), &window));
  }
  windows_.push_back(std::move(window));
  backends_.emplace_back();
  HVD_RETURN_IF_ERROR(MakeWindowBackend(windows_.back().get(), world_->board_, &backends_.back()));
  *backend = backends_.back().get();
  if (world_->medium_ == Medium::kNccl) return JoinNccl(set, ranks, backend);
  return world_->medium_ == Medium::kGloo ? JoinGloo(set, members, backend) : Status::Ok();
}

// Above the backend that was just made.
Status Rank::JoinGloo(uint32_t set, const std::vector<int>& members, Backend** backend) {
  const auto size = static_cast<int>(members.size());
  if (size == 1) return Status::Ok();
  if (library_ == nullptr) {
    LibraryOptions options;
    options.address = "127.0.0.1";
    options.timeout_us = 30'000'000;
    HVD_RETURN_IF_ERROR(LoadLibrary(HVD_GLOO_MODULE, options, &library_));
  }
  const int place = Members(members).Find(GlobalRank(rank_)).value();
  backends_.push_back(
      std::make_unique<FirstThatServes>(MakeStagedBackend(library_->MakeSet(set, place, size),
                                                          library_->name(), *backend, place, size),
                                        *backend, waker_));
  *backend = backends_.back().get();
  return Status::Ok();
}

Status Rank::JoinNccl(uint32_t set, const Members& members, Backend** backend) {
  if (gpu_ == nullptr) {
    const std::string folder = HVD_FAKE_GPU_FOLDER;
    nccl::GpuOptions options;
    options.driver = folder + "/libcuda.so.1";
    options.library = folder + "/libnccl.so.2";
    options.rank = GlobalRank(rank_);
    options.timeout_us = 30'000'000;
    gpu_ = std::make_shared<nccl::GpuRuntime>(options);
  }
  auto gpu = MakeBackendOnGpu(gpu_, *backend, set, members, members.Find(GlobalRank(rank_)));
  backends_.push_back(std::make_unique<FirstThatServes>(std::move(gpu), *backend, waker_));
  *backend = backends_.back().get();
  return Status::Ok();
}

Status Rank::JoinHosts(uint32_t set, const Members& members, Backend** backend) {
  const Topology topology = Topology(world_->hosts_, true).Of(members);
  const Position position = members.Find(GlobalRank(rank_));
  std::vector<int> local;
  for (const Position member : topology.OnHost(topology.HostOf(position))) {
    local.push_back(members[member].value());
  }
  windows_.push_back(world_->fabric_.MakeWindow(set, Members(local), GlobalRank(rank_), waker_));
  HVD_RETURN_IF_ERROR(MakeHierarchicalBackend(windows_.back().get(), world_->board_,
                                              transport_.get(), set, members, position, topology,
                                              &backends_.emplace_back()));
  *backend = backends_.back().get();
  return Status::Ok();
}

Status Rank::Drive(const Machines& machines, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<bool> done(machines.size());
  int idle = 0;
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    bool moved = false;
    if (transport_) HVD_RETURN_IF_ERROR(transport_->Progress(&moved));
    HVD_RETURN_IF_ERROR(Pass(machines, &done, seed == 0 ? nullptr : &random, &moved));
    const auto now = std::chrono::steady_clock::now();
    if (moved) deadline = now + kPatience;
    if (now > deadline) return {Code::kTimeout, "rank " + std::to_string(rank_) + " is stuck"};
    idle = moved ? 0 : idle + 1;
    if (idle > kIdlePasses) HVD_RETURN_IF_ERROR(Sleep(machines, &done));
  }
  return Status::Ok();
}

// A machine that is blocked may have to be looked at again though nothing wakes the rank. Rounded
// up: ranks that look again and again take the processor from who they wait for.
int Rank::MillisecondsUntil(const Machines& machines, const std::vector<bool>& done) {
  int64_t first = NowMicros() + 1000000;
  for (size_t i = 0; i < machines.size(); ++i) {
    const int64_t deadline = done[i] ? -1 : machines[i]->deadline_us();
    if (deadline >= 0) first = std::min(first, deadline);
  }
  return static_cast<int>((std::max<int64_t>(0, first - NowMicros()) + 999) / 1000);
}

// As the engine sleeps: armed, after one more look at everything.
Status Rank::Sleep(const Machines& machines, std::vector<bool>* done) {
  for (const auto& window : windows_) window->Arm(true);
  bool moved = false;
  Status status = transport_ ? transport_->Progress(&moved) : Status::Ok();
  if (status.ok()) status = Pass(machines, done, nullptr, &moved);
  const int links = transport_ ? transport_->poll_fd() : -1;
  const int most = MillisecondsUntil(machines, *done);
  if (status.ok() && !moved && Readable(links >= 0 ? links : waker_.fd(), most) && links < 0)
    waker_.Drain();
  for (const auto& window : windows_) window->Arm(false);
  return status;
}

Status Rank::Pass(const Machines& machines, std::vector<bool>* done, std::mt19937* random,
                  bool* moved) {
  std::vector<size_t> order(machines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (random != nullptr) {
    std::shuffle(order.begin(), order.end(), *random);
    if ((*random)() % 16 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 200));
  }
  for (size_t i : order) {
    for (uint32_t left = random == nullptr ? 1 : (*random)() % 4; left > 0 && !(*done)[i]; --left) {
      const Step step = machines[i]->Advance();
      if (step == Step::kFailed) return machines[i]->status();
      (*done)[i] = step == Step::kDone;
      *moved |= step != Step::kBlocked;
      if (step == Step::kBlocked) break;
    }
  }
  return Status::Ok();
}

Status Rank::Run(Backend* backend, CollectiveSpec spec) {
  Machines machines;
  machines.push_back(backend->Start(std::move(spec)));
  return Drive(machines);
}

void SetMatrices(const std::vector<std::vector<int64_t>>& matrices, int rank, int ranks,
                 CollectiveSpec* spec) {
  const auto at = [ranks](int from, int to) { return static_cast<size_t>(from * ranks + to); };
  spec->shares.assign(matrices.size(), {});
  for (size_t piece = 0; piece < matrices.size(); ++piece) {
    for (int r = 0; r < ranks; ++r) {
      spec->shares[piece].to.push_back(matrices[piece][at(rank, r)]);
      spec->shares[piece].from.push_back(matrices[piece][at(r, rank)]);
    }
  }
  spec->senders.assign(static_cast<size_t>(ranks), {});
  for (int from = 0; from < ranks; ++from) {
    AlltoallSender& sender = spec->senders[static_cast<size_t>(from)];
    for (int step = 0; step < ranks; ++step) {
      const int to = (from + step) % ranks;
      int64_t part = 0;
      for (const std::vector<int64_t>& matrix : matrices) part += matrix[at(from, to)];
      if (to == rank) sender.before = sender.stream;
      if (to != from) sender.stream += part;
      sender.largest = std::max(sender.largest, part);
    }
  }
}

}  // namespace hvd::test
