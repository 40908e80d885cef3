#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/link.h"
#include "base/rank.h"
#include "base/topology.h"
#include "base/waker.h"
#include "runtime/liveness/cause.h"
#include "runtime/liveness/departures.h"
#include "runtime/liveness/diagnosis.h"
#include "runtime/liveness/launcher_link.h"
#include "runtime/liveness/peer.h"
#include "runtime/liveness/silence.h"
#include "runtime/liveness/stopped.h"
#include "runtime/liveness/suspicions.h"

namespace hvd {

struct WatcherOptions {
  uint64_t generation = 0;
  GlobalRank rank;
  int size = 1;
  Topology job;       // says on which host a rank is
  uint64_t home = 0;  // see HostIdentity
  // Owned from the constructor on. To every peer, or to so many that news reach everybody over
  // them, among them the rank's parent and children in the tree of ranks.
  std::vector<Link> links;
  Link launcher;  // owned; fd -1 = none
  double heartbeat_seconds = 1.0;
  Patience patience;
  double orphan_seconds = 2.0;  // see LauncherLink, and for the next
  std::function<bool()> ask_for_launcher;
  LinkSigns* signs = nullptr;  // of all links of the rank; null: it has no sockets
  StuckWithout stuck_without;
  std::function<void()> on_heartbeat;    // with every heartbeat that is sent
  std::function<int64_t()> blocked_us;   // see Blocked
  std::function<void()> on_show_stacks;  // a rank asks everybody to show where its threads are
  std::function<void()> on_abort;        // called once, from the watcher's thread
};

// The always-on thread that knows who is alive. It takes neither the GIL nor the progress lock, so
// it works whatever the program does. On the end of a link without a goodbye, or on silence, it
// fixes the first cause, wakes this rank and tells its peers before anyone closes; they tell
// theirs. Departures are passed on likewise, with the next heartbeat or soon.
class Watcher {
 public:
  Watcher(WatcherOptions options, AbortCell* abort);
  ~Watcher();

  // The first heartbeat is under way when it returns: whoever has worked with this rank can
  // describe it.
  Status Start();

  // From the engine: a link has ended. Unless its peer has said goodbye, that becomes the cause of
  // a failure once the watcher has heard out its own links for a moment: what names the true cause
  // may be under way.
  void Suspect(Cause cause);

  // From the engine: this rank cannot go on. Likewise, but a failure in any case: nobody else knows
  // of it. Only the first one counts. Needs no memory.
  void Abort(Cause cause) noexcept;

  // For how long every rank of the job has been Blocked, as far as is known here; those that have
  // left count as blocked. 0 = somebody is not.
  int64_t EverybodyBlockedMicros() const { return everybody_blocked_us_.load(); }

  // See LauncherLink::Renew.
  void RenewLauncher(const Link& link);

  // Asks the others to show their stacks.
  void AskForStacks();

  // Says goodbye, joins the thread, closes everything when the goodbye has arrived. `abandons`:
  // operations are in flight.
  void Stop(bool abandons = false);

 private:
  template <typename Work>
  void Attempt(Work work) noexcept;
  void Run() noexcept;
  void SayGoodbye() noexcept;
  void Wait(int timeout_ms);
  void Beat();
  void CheckSilence(int64_t now_us);
  void Close(WatchedPeer* peer);
  void CheckDeparted();
  int LongestRoundMs();
  void HearSuspicions(int64_t hear_out_us);
  void HearPeer(WatchedPeer& peer);
  void HearEnd(WatchedPeer& peer);
  void HearNews(WatchedPeer& peer, const WatchNews& news);
  void HearAbort(WatchedPeer& peer, const Cause& cause);
  bool PassesOn() const;
  void PassOnStacks(uint32_t asked);
  WatchNews News(WatchKind kind);
  WatchNews NewsOfItself(WatchKind kind) const noexcept;
  void Send(const WatchNews& news) noexcept;
  void Raise(const Cause& cause) noexcept;

  WatcherOptions options_;
  LauncherLink launcher_;  // the watcher thread's, once started, but for Renew
  std::vector<Descriptor>
      links_;  // on their way to the peers, at the start, and from them at the end
  AbortCell* abort_;
  Waker waker_;
  Peers peers_;            // the watcher thread's, once started
  Departures departures_;  // likewise, and what follows
  StoppedRanks stopped_;
  const Diagnosis diagnosis_;
  SilenceCheck silence_;
  bool untold_ = false;  // something of them is to be passed on soon
  BlockedNews blocked_;
  uint32_t stacks_asked_ = 0;  // how often, by anybody
  std::vector<pollfd> fds_;    // to wait on
  Suspicions suspicions_;      // not the thread's alone, and what follows
  const Cause out_of_memory_;
  std::atomic<bool> asks_for_stacks_{false};
  std::atomic<int64_t> everybody_blocked_us_{0};
  std::atomic<bool> stopping_{false};
  bool abandons_ = false;  // written before stopping_
  std::thread thread_;
};

}  // namespace hvd
