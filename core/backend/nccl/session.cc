#include "backend/nccl/session.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "backend/nccl/watch.h"
#include "base/clock.h"

namespace hvd::nccl {

namespace {

using Clock = GpuRuntime::Clock;

constexpr std::chrono::milliseconds kPause(1);  // between two looks at what NCCL does by itself
// NCCL tells of a dead peer sooner than the watcher, and without its name: so its failure is told
// so much later, when the true cause has come.
constexpr std::chrono::seconds kLate(1);
constexpr std::chrono::seconds kMostToIdle(10);  // of a GPU whose communicator is aborted

enum class Stage : uint8_t { kPreparing, kPrepared, kConnecting, kConnected, kFailed, kEnded };
enum class Wish : uint8_t { kNone, kConnect, kEnd, kAbort };

// For a thread that starts meanwhile: the program's signals are for its own threads.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

// The thread's, too.
struct Session::Shared : Occupant {
  Shared(std::shared_ptr<GpuRuntime> given, uint32_t set, int size, int position, int32_t device,
         const Waker& of_rank)
      : runtime(std::move(given)),
        makes_id(position == 0),
        waker(&of_rank),
        communicator(std::make_unique<Communicator>(runtime, set, size, position, device)) {}

  const std::shared_ptr<GpuRuntime> runtime;
  const bool makes_id;
  std::mutex mutex;  // guards what follows, but not the communicator
  std::condition_variable changed;
  Stage stage = Stage::kPreparing;
  Wish wish = Wish::kNone;
  bool watches = false;  // the GPU has work
  Status status;         // of the stage
  const Status no_memory = Status::Aborted("there is no memory to set up a communicator of NCCL");
  UniqueId id = {};
  const Waker* waker;  // null once nobody sleeps on it
  // The thread's until it is connected and from its end on; in between the driver's, and both hold
  // its in_use.
  std::unique_ptr<Communicator> communicator;

  void Reach(Stage reached, Status why) noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    stage = reached;
    status = std::move(why);
    if (waker != nullptr) waker->Ring();
    changed.notify_all();
  }

  void Want(Wish wanted) noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    if (wanted > wish) wish = wanted;
    if (wanted >= Wish::kEnd) waker = nullptr;
    changed.notify_all();
  }

  void WantAbort() noexcept override { Want(Wish::kAbort); }

  // Sleeps until somebody wants more than `known`, or for so long; what is wanted then.
  Wish Await(Wish known) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return wish > known; });
    return wish;
  }
  Wish Await(Wish known, Clock::duration limit) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_for(lock, limit, [&] { return wish > known; });
    return wish;
  }

  // From the driver: the GPU gets work.
  void BeginToWatch() noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    watches = true;
    changed.notify_all();
  }

  // Until somebody wants it to end; what is wanted then.
  Wish WatchGpu() {
    Watch watch(runtime.get(), communicator.get());
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return watches || wish > Wish::kConnect; });
        watches = false;
      }
      do {
        if (const Wish wanted = Await(Wish::kConnect, Watch::kPeriod); wanted > Wish::kConnect)
          return wanted;
      } while (Looks(&watch));
    }
  }
  // Where there is no memory for it, the next look may find some.
  static bool Looks(Watch* watch) noexcept {
    bool looks = true;
    HasMemoryFor([&] { looks = watch->Look(NowMicros()); });
    return looks;
  }

  void Prepare() {
    Status why = communicator->Prepare();
    if (why.ok()) communicator->outstanding().WatchBy([this] { BeginToWatch(); });
    if (why.ok() && makes_id) why = communicator->MakeId(&id);
    Reach(Stage::kPrepared, why);
  }

  bool SetUp() {
    const Status why = Connect();
    if (!why.ok()) Await(Wish::kConnect, kLate);
    Reach(why.ok() ? Stage::kConnected : Stage::kFailed, why);
    return why.ok();
  }

  // Until all members have come, or somebody wants it to end.
  Status Connect() {
    const auto deadline = Clock::now() + std::chrono::microseconds(runtime->options().timeout_us);
    HVD_RETURN_IF_ERROR(communicator->Connect(id));
    int state = kInProgress;
    while (state == kInProgress) {
      if (Await(Wish::kConnect, kPause) != Wish::kConnect) return Status::Aborted("it is ended");
      if (Clock::now() > deadline) return TooLate();
      state = communicator->Look();
    }
    if (state != kSuccess) return communicator->Error(state, "setting up a communicator");
    return communicator->MakeBuffer();
  }

  Status TooLate() const {
    const int64_t seconds = runtime->options().timeout_us / 1000000;
    return Status::Aborted("NCCL did not set up a communicator within " + std::to_string(seconds) +
                           " s (HOROVOD_START_TIMEOUT). NCCL_DEBUG=INFO in the environment of all "
                           "ranks shows where it waits.");
  }

  // Gives up on what peers do not finish. First comes the end of the GPU's own work: until then it
  // may need what is registered, which is taken back before the communicator ends.
  void Finalize() {
    const auto deadline = Clock::now() + GpuRuntime::kMostToFinalize;
    communicator->MarkEnd();
    if (!AwaitUntil(deadline, [this] { return communicator->HasEnded(); })) return;
    communicator->Finalize();
    if (!AwaitUntil(deadline, [this] { return communicator->Look() != kInProgress; })) return;
    if (communicator->Look() == kSuccess) communicator->Destroy();
  }

  // False: it is to be aborted, or has taken too long.
  template <typename Holds>
  bool AwaitUntil(Clock::time_point deadline, Holds holds) {
    while (!holds()) {
      if (Await(Wish::kEnd, kPause) == Wish::kAbort || Clock::now() > deadline) return false;
    }
    return true;
  }

  void AwaitIdleGpu() const {
    const auto deadline = Clock::now() + kMostToIdle;
    communicator->MarkEnd();
    while (!communicator->HasEnded() && Clock::now() < deadline)
      std::this_thread::sleep_for(kPause);
  }
};

Status Session::Begin(std::shared_ptr<GpuRuntime> runtime, uint32_t set, int size, int position,
                      int32_t device, const Waker& waker, std::unique_ptr<Session>* session) {
  auto shared = std::make_shared<Shared>(std::move(runtime), set, size, position, device, waker);
  std::unique_ptr<Session> begun(new Session(shared));
  const WithoutSignals scope;
  shared->runtime->Enter(shared.get());
  try {
    std::thread([shared] { Run(shared.get()); }).detach();
  } catch (const std::system_error& error) {
    shared->runtime->Leave(shared.get());
    return {Code::kUnavailable, std::string("a thread for NCCL cannot start: ") + error.what()};
  } catch (const std::bad_alloc&) {
    shared->runtime->Leave(shared.get());
    throw;
  }
  *session = std::move(begun);
  return Status::Ok();
}

Session::~Session() { shared_->Want(Wish::kEnd); }

void Session::Run(Shared* shared) {
  PrepareToThrow();
  pthread_setname_np(pthread_self(), "hvd-nccl");
  bool connected = false;
  const bool ready = HasMemoryFor([&] {
    shared->Prepare();
    if (shared->Await(Wish::kNone) == Wish::kConnect) connected = shared->SetUp();
  });
  if (!ready) shared->Reach(Stage::kFailed, shared->no_memory);
  const Wish wish = connected ? shared->WatchGpu() : shared->Await(Wish::kConnect);
  if (wish == Wish::kEnd && connected) shared->Finalize();
  shared->communicator->Abort();
  shared->AwaitIdleGpu();
  shared->communicator.reset();
  shared->Reach(Stage::kEnded, Status::Ok());
  shared->runtime->Leave(shared);
}

Step Session::Look() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  switch (shared_->stage) {
    case Stage::kPreparing:
    case Stage::kConnecting:
      return Step::kBlocked;
    case Stage::kPrepared:
    case Stage::kConnected:
      return Step::kDone;
    default:
      return Step::kFailed;
  }
}

Status Session::status() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->status;
}

int Session::version() const { return shared_->communicator->version(); }

UniqueId Session::id() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->id;
}

void Session::BeginToConnect(const UniqueId& id) {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->id = id;
    shared_->stage = Stage::kConnecting;
  }
  shared_->Want(Wish::kConnect);
}

Communicator& Session::communicator() const { return *shared_->communicator; }

void Session::Abort() noexcept {
  shared_->Want(Wish::kAbort);
  const auto limit = shared_->runtime->AbortAll();
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->changed.wait_until(lock, limit, [this] { return shared_->stage == Stage::kEnded; });
}

}  // namespace hvd::nccl
