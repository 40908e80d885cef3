#include "runtime/engine/engine.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "backend/nccl/reduction.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "base/text.h"
#include "runtime/engine/rank_engine.h"
#include "settings/log.h"

namespace hvd {

namespace {

constexpr int64_t kSecond = 1000000;
// How long an operation may wait for a member that has left, before that counts as a failure.
constexpr int64_t kDepartureGraceUs = kSecond;
// How often the watcher asks, four times a second, until an engine that does nothing counts as
// caught up.
constexpr int kMostAsked = 20;
constexpr int64_t kFlushLimitUs = kSecond;
// The same for what waits for a link: its peer's interpreter may be held up.
constexpr int64_t kLinkLimitUs = 5 * kSecond;
// How long what was sent last may take to arrive before its link is closed all the same.
constexpr int64_t kLingerUs = kSecond / 2;
constexpr int64_t kStacksPatienceUs = kSecond;
constexpr int kMostNamed = 8;  // messages in a report

// A receive ends with the rank that its message came from.
Status PrepareMessage(Handle* handle) {
  if (handle->entry.peer->sends) return Status::Ok();
  return Output::Allocate(DataType::kInt64, {1}, &handle->outputs.emplace_back());
}

// Of a wait that ends before the operation; `without_name` where there is no memory to name it.
Status NotComplete(const Handle& handle, const Status& without_name) noexcept {
  Status status = without_name;
  HasMemoryFor([&] {
    status = {Code::kTimeout, "'" + Shown(handle.name()) + "' is not complete yet"};
  });
  return status;
}

void CloseLinks(const EngineOptions& options) {
  for (const Link& link : options.links) close(link.fd);
  if (options.launcher.fd >= 0) close(options.launcher.fd);
}

// The handler writes for as long as standard error takes it, and interrupts the thread that raises:
// one that nobody needs.
void ShowStacksByHandler(int signal) {
  try {
    std::thread([signal] { raise(signal); }).detach();
  } catch (const std::system_error&) {
    Log(LogLevel::kWarning, "they cannot be shown: no more threads are allowed");
  }
}

}  // namespace

RankEngine::~RankEngine() {
  Shutdown();
  CloseLinks(options_);
}

// Called from the watcher's thread.
std::string RankEngine::StuckWithout(const Departure& departure, bool broken) {
  AtDeparture& then =
      departed_.try_emplace(departure.rank, AtDeparture{cycle_->rounds(), 0}).first->second;
  const int64_t now = NowMicros();
  for (const HandlePtr& handle : queue_.InFlight()) {
    const bool concerned = Concerns(*handle, departure.rank);
    // What all have agreed on goes on without a leaver that has completed its own part.
    const bool needed = broken || departure.abandoned || !handle->decided.load();
    const int64_t since = std::max(handle->submitted_us, departure.since_us);
    if (!concerned || !needed || (!broken && now - since < kDepartureGraceUs)) continue;
    if (!broken && !CaughtUp(&then)) return "";
    return Name(rank()) + " waits for '" + Shown(handle->name()) + "'.";
  }
  return "";
}

// Whether an operation waits for a rank that has left. What may come from anybody does while nobody
// else is left to send it.
bool RankEngine::Concerns(const Handle& handle, GlobalRank leaver) const {
  const Members members = sets_.MembersOf(handle.entry.process_set);
  if (!members.Has(leaver) || !handle.entry.peer) return members.Has(leaver);
  if (handle.entry.peer->rank.known()) return handle.entry.peer->rank == leaver;
  const auto gone = [this](GlobalRank member) {
    return member == rank() || departed_.count(member) > 0;
  };
  return std::all_of(members.ranks().begin(), members.ranks().end(), gone);
}

// Whether all that the rank sent before it left has been looked at since. To ask wakes the engine,
// and one that is held up all the same does not put off the verdict for ever.
bool RankEngine::CaughtUp(AtDeparture* then) {
  if (cycle_->rounds() >= then->rounds + 2 || ++then->asked > kMostAsked) return true;
  loop_->Poke();
  return false;
}

// Those that have met no counterpart.
std::string RankEngine::OpenMessages() {
  std::string lines;
  int named = 0;
  for (const HandlePtr& handle : queue_.InFlight()) {
    if (!handle->entry.peer || handle->decided.load()) continue;
    if (++named > kMostNamed) return lines + "\n...";
    if (named > 1) lines += '\n';
    lines += Name(rank()) + " waits for '" + handle->name() + "'.";
  }
  if (named == 0) return lines;
  for (const std::string& missing : link_requests_.Missing(rank(), wirer_->job()))
    lines += '\n' + missing + '.';
  return lines;
}

Status RankEngine::Usable(const Entry& entry) const {
  if (shut_down_.load()) return AlreadyShutDown();
  if (abort_.is_set()) return abort_.status();
  if (entry.peer) return UsableMessage(entry);
  auto members = static_cast<size_t>(options_.size);  // the set of all ranks is the usual one
  if (entry.process_set != 0) HVD_RETURN_IF_ERROR(sets_.Admits(entry.process_set, &members));
  if (KindOf(entry.request.device) == DeviceKind::kGpu) {
    HVD_RETURN_IF_ERROR(CheckGpu(entry.request));
  }
  return CheckEntry(entry, members);
}

Status RankEngine::UsableMessage(const Entry& entry) const {
  size_t members = 0;
  HVD_RETURN_IF_ERROR(sets_.Admits(entry.process_set, &members));
  return CheckMessage(entry, sets_.MembersOf(entry.process_set));
}

bool RankEngine::ServesGpu(OpKind kind, DataType dtype, ReduceOp op, double prescale,
                           double postscale) const {
  nccl::GpuRuntime* const gpu = wirer_->gpu();
  if (gpu == nullptr || !nccl::Carries(kind, dtype, op, prescale, postscale)) return false;
  return !nccl::IsFloat8Reduction(kind, dtype) || gpu->ReducesFloat8();
}

Status RankEngine::CheckGpu(const negotiate::Request& request) const {
  for (const negotiate::TensorMeta& tensor : request.tensors) {
    if (!ServesGpu(request.kind, tensor.dtype, request.reduce_op, request.prescale,
                   request.postscale)) {
      return Status::Invalid(negotiate::Submission(request) +
                             ": no backend of this job carries it on a GPU");
    }
  }
  return Status::Ok();
}

// As in Wait, but the thread waits elsewhere; from when the operation is queued.
void RankEngine::CountAsBlocked(Entry* entry, std::shared_ptr<ProgramThread> thread) {
  entry->on_complete = [this, thread = std::move(thread),
                        deliver = std::move(entry->on_complete)](const Handle& handle) {
    LeaveWait(thread.get());
    CountShared(counters_.waited_us, NowMicros() - handle.submitted_us);
    deliver(handle);
  };
}

// `thread`: null where there was no memory for it.
void RankEngine::EnterWait(ProgramThread* thread) {
  if (thread != nullptr) thread->waits.fetch_add(1);
  blocked_.Enter(NowMicros());
}

void RankEngine::LeaveWait(ProgramThread* thread) {
  if (thread != nullptr) thread->waits.fetch_sub(1);
  blocked_.Leave(NowMicros());
}

// An operation that there is no memory for has not begun: only its submitter hears of that.
Status RankEngine::Submit(Entry&& entry, HandlePtr* handle) {
  PrepareToThrow();
  Status status;
  if (HasMemoryFor([&] { status = Begin(std::move(entry), handle); })) return status;
  return {Code::kUnavailable, prepared_.no_memory_to_submit.reason};
}

Status RankEngine::Begin(Entry&& entry, HandlePtr* handle) {
  std::string& name = entry.request.name;
  if (name.size() > negotiate::kMaxNameBytes)
    name = Fitted(std::move(name), negotiate::kMaxNameBytes);
  HVD_RETURN_IF_ERROR(Usable(entry));
  if (entry.request.kind == OpKind::kJoin) {
    *handle = queue_.ResumeJoin(entry.process_set);
    if (*handle != nullptr) return Status::Ok();
  }
  const bool urgent = entry.urgent;
  const bool driven = urgent && !entry.on_complete;  // by its submitter, who is about to wait
  *handle = std::make_shared<Handle>(std::move(entry));
  if ((*handle)->entry.peer) {
    HVD_RETURN_IF_ERROR(PrepareMessage(handle->get()));
    CountShared(counters_.messages);
  }
  (*handle)->generation = options_.generation;
  (*handle)->submitted_us = NowMicros();
  blocked_.Touch((*handle)->submitted_us);
  const std::shared_ptr<ProgramThread>& thread = threads_.Caller();
  if ((*handle)->entry.awaited) CountAsBlocked(&(*handle)->entry, thread);
  HVD_RETURN_IF_ERROR(queue_.Push(*handle));
  // Perhaps after its end: then both cancel out.
  if ((*handle)->entry.awaited) EnterWait(thread.get());
  if (!driven) loop_->Notify(urgent);
  if (abort_.is_set()) FailWhatIsLeft();  // it came in between
  return Status::Ok();
}

Status RankEngine::Wait(const HandlePtr& handle, int64_t timeout_us, bool (*interrupted)()) {
  const bool at_once = handle->entry.urgent && timeout_us < 0;  // its submitter waits
  int64_t now = at_once ? handle->submitted_us : NowMicros();
  const int64_t deadline = timeout_us < 0 ? -1 : now + timeout_us;
  if (!handle->done.load(std::memory_order_acquire) && !handle->entry.urgent) queue_.Urge(handle);
  std::shared_ptr<ProgramThread> thread;  // of a long wait
  bool long_wait = false;
  bool stop = false;
  while (!handle->done.load(std::memory_order_acquire)) {
    const Waited waited = loop_->Wait(*handle, now, deadline);
    if (waited == Waited::kDone) break;
    stop = waited == Waited::kTimeout || (interrupted != nullptr && interrupted());
    if (stop) break;
    if (!std::exchange(long_wait, true)) EnterWait((thread = threads_.Caller()).get());
    now = NowMicros();
  }
  if (long_wait) LeaveWait(thread.get());
  return stop ? NotComplete(*handle, prepared_.not_complete) : handle->status;
}

bool RankEngine::Poll(const HandlePtr& handle) {
  constexpr uint64_t kHurried = UINT64_MAX;
  if (handle->done.load(std::memory_order_acquire)) return true;
  const uint64_t submitted = queue_.submitted();
  const uint64_t before = handle->asked_at.load(std::memory_order_relaxed);
  if (before == kHurried) return false;
  const bool again = before == submitted;
  handle->asked_at.store(again ? kHurried : submitted, std::memory_order_relaxed);
  if (!again || handle->entry.urgent) return false;
  queue_.Urge(handle);
  loop_->Notify(true);
  return false;
}

// Between two rounds, so that no machine sees a transport change under it.
void RankEngine::AddLink(const Link& link) {
  if (link.role == LinkRole::kLauncher) return watcher_->RenewLauncher(link);
  Descriptor given(link.fd);
  const auto socket = std::make_shared<Descriptor>(std::move(given));
  cycle_->Post([this, link, socket] {
    const Status status = wirer_->AddLink(link, std::move(*socket));
    link_requests_.Made({link.peer, link.role});
    if (!status.ok()) watcher_->Abort(About(CauseKind::kFault, rank(), status.text()));
  });
  loop_->Poke();
  loop_->WakeAll();
}

void RankEngine::GiveUpLink(GlobalRank peer, const std::string& reason) {
  if (!peer.known()) return watcher_->RenewLauncher({});
  watcher_->Suspect(About(CauseKind::kFault, peer, reason));
}

// The last responses to slower peers may still wait for room, and a small message, which is
// complete once it is posted, for its link.
void RankEngine::Flush() noexcept {
  const FloatMode mode;
  const int64_t begin = NowMicros();
  int64_t deadline = begin + kFlushLimitUs;
  while (cycle_->HasWork() && queue_.in_flight() == 0 && !abort_.is_set()) {
    const int64_t now = NowMicros();
    if (now < begin + kLinkLimitUs && link_requests_.open()) deadline = now + kFlushLimitUs;
    if (now >= deadline) return;
    // Without the lock a waiter drives, which is about to leave: nothing is in flight.
    const std::unique_lock<std::mutex> lock(loop_->progress(), std::try_to_lock);
    if (!lock.owns_lock() || !cycle_->Round()) usleep(50);
  }
}

// On the watcher's thread, which needs no interpreter.
void RankEngine::OnHeartbeat() {
  if (cycle_->relays()) loop_->Poke();
  TellOfMissingLinks();
  int signal = 0;
  if (!stacks_.TakeOverdue(NowMicros(), kStacksPatienceUs, &signal)) return;
  const std::string pid = std::to_string(getpid());
  Log(LogLevel::kWarning,
      "the Python threads of this rank (pid " + pid +
          ") do not answer: native code holds the interpreter lock. Look at it with: py-spy "
          "dump --native --pid " +
          pid + ", or: gdb -p " + pid +
          (signal > 0 ? ". Its Python stacks, seen from outside, innermost call first:" : ""));
  if (signal > 0) ShowStacksByHandler(signal);
}

// An operation that waits for one is held up by nothing that its program does.
void RankEngine::TellOfMissingLinks() {
  const Config& config = options_.config;
  if (config.stall_check_disable) return;
  const auto limit = static_cast<int64_t>(config.stall_check_seconds * kSecond);
  for (const std::string& line :
       link_requests_.TakeOverdue(rank(), wirer_->job(), NowMicros(), limit)) {
    Log(LogLevel::kWarning, line + ". Look at that rank, and at the network to its host.");
  }
}

// What all have submitted completes by itself and lets its waiter go on, and so may another thread
// of the program: until then nobody is blocked.
int64_t RankEngine::BlockedMicros() {
  if (!blocked_.any()) return 0;
  const std::vector<HandlePtr> all = queue_.InFlight();
  const auto runs = [](const HandlePtr& handle) { return handle->decided.load(); };
  const int64_t now = NowMicros();
  const bool stands_still = threads_.AllStandStill(now);
  if (!stands_still || std::any_of(all.begin(), all.end(), runs)) blocked_.Touch(now);
  return blocked_.Micros(now);
}

void RankEngine::ShowStacks() {
  stacks_.Ask(NowMicros());
  watcher_->AskForStacks();
}

void RankEngine::Shutdown() {
  stacks_.End();
  if (shut_down_.exchange(true) || loop_ == nullptr) return;
  queue_.Close();  // so that what the goodbye says of operations in flight stays true
  loop_->Stop();
  wirer_->Listen({});  // from here on the watcher may be gone
  Flush();
  link_requests_.Close();
  // The goodbye comes before any link closes: peers must not take the leaver for lost.
  if (watcher_) watcher_->Stop(queue_.in_flight() > 0);
  if (abort_.is_set()) wirer_->Lose(abort_.cause());
  // Whoever waits sees this as the cause, fails what is in flight and releases the progress lock.
  abort_.Set(prepared_.shut_down);
  wirer_->Interrupt();
  loop_->WakeAll();
  FailWhatIsLeft();
  const std::lock_guard<std::mutex> lock(loop_->progress());
  cycle_->Close(kLingerUs);
  (void)StopTimeline();
}

void RankEngine::FailWhatIsLeft() noexcept {
  std::unique_lock<std::mutex> lock(loop_->progress());
  cycle_->FailAll(abort_.status());
  HandleChain finished = cycle_->TakeFinished();
  lock.unlock();
  loop_->WakeAll();  // nobody drove, so nobody else tells the waiters
  while (const HandlePtr handle = finished.PopFront()) handle->entry.on_complete(*handle);
}

Status RankEngine::StartTimeline(const std::string& path, bool mark_cycles) {
  if (timeline_ != nullptr) return timeline_->Start(path, mark_cycles);
  return Status::Invalid(
      "Set HOROVOD_TIMELINE=DYNAMIC before hvd.init() to start a timeline later.");
}

Status Engine::Make(EngineOptions options, std::unique_ptr<Engine>* engine) {
  const GlobalRank rank(options.rank);
  std::unique_ptr<RankEngine> made(new (std::nothrow) RankEngine(std::move(options)));
  if (made == nullptr) CloseLinks(options);  // which nobody has taken
  if (made == nullptr) return {Code::kUnavailable, OutOfMemory(rank, "started").reason};
  HVD_RETURN_IF_ERROR(made->Start());
  *engine = std::move(made);
  return Status::Ok();
}

}  // namespace hvd
