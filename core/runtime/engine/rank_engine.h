#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/link_requests.h"
#include "runtime/engine/meeting.h"
#include "runtime/engine/set_registry.h"
#include "runtime/engine/wiring.h"
#include "runtime/liveness/blocked.h"
#include "runtime/liveness/program_threads.h"
#include "runtime/liveness/stacks.h"
#include "runtime/liveness/watcher.h"
#include "runtime/progress/loop.h"
#include "trace/timeline.h"

namespace hvd {

// The engine of this process: who owns what, and in which order it ends. How it is made is in
// start.cc, its operations are in engine.cc, its process sets in sets.cc.
class RankEngine : public Engine {
 public:
  // Owns the links of the options from here on. Throws nothing.
  explicit RankEngine(EngineOptions options) noexcept
      : options_(std::move(options)),
        sets_(rank()),
        link_signs_(options_.config.peer_timeout_seconds) {}

  ~RankEngine() override;

  Status Start();

  Status Submit(Entry&& entry, HandlePtr* handle) override;
  Status Wait(const HandlePtr& handle, int64_t timeout_us, bool (*interrupted)()) override;
  bool Poll(const HandlePtr& handle) override;
  bool ServesGpu(OpKind kind, DataType dtype, ReduceOp op, double prescale,
                 double postscale) const override;
  void Shutdown() override;
  Status AddProcessSet(std::vector<int> ranks, uint32_t* id) override;
  Status AddOwnProcessSet(std::vector<int> ranks, int64_t timeout_us, bool (*interrupted)(),
                          uint32_t* id) override;
  Status LeaveProcessSet(uint32_t id) override;
  Status RemoveProcessSet(uint32_t id) override;
  Status Health() override { return abort_.is_set() ? abort_.status() : Status::Ok(); }
  std::vector<uint32_t> ProcessSets() const override { return sets_.Included(); }
  std::vector<int> MembersOf(uint32_t process_set) const override;
  std::vector<std::string> InFlight(uint32_t process_set) override;
  bool AwaitStacksRequest(int signal) override { return stacks_.Await(signal); }
  void ShowStacks() override;
  Status StartTimeline(const std::string& path, bool mark_cycles) override;
  Status StopTimeline() override { return timeline_ == nullptr ? Status::Ok() : timeline_->Stop(); }
  LinkRequests& link_requests() override { return link_requests_; }
  void AddLink(const Link& link) override;
  void GiveUpLink(GlobalRank peer, const std::string& reason) override;
  std::map<std::string, uint64_t> CountersNow() const override { return counters_.Now(); }
  std::vector<int> Descriptors() const override { return descriptors_; }

 private:
  GlobalRank rank() const { return GlobalRank(options_.rank); }
  void PrepareErrors();
  void OpenTimeline();
  void MakeCycle();
  void ListenToGpus();
  Status WireFirstSets();
  int64_t StartDeadline() const;
  std::unique_ptr<ProcessSet> MakeSet(uint32_t id, const Members& members, ProcessSetWires wires);
  ProcessSetOptions SetOptions(uint32_t id, const Members& members) const;
  Status MakeWatcher();
  void OnHeartbeat();
  void TellOfMissingLinks();
  void EnterWait(ProgramThread* thread);
  void LeaveWait(ProgramThread* thread);
  int64_t BlockedMicros();
  Status Agree(const std::string& what, int64_t mine, int64_t* all);
  Status TryStart();
  void TellLauncher(const Status& status) noexcept;
  Status Begin(Entry&& entry, HandlePtr* handle);
  Status CheckMembers(const std::vector<int>& ranks) const;
  MeetingOptions MeetingOf(const std::vector<int>& ranks, int64_t timeout_us);
  Status Exchange(const PeerOperation& peer, std::string* note, int64_t deadline_us,
                  bool (*interrupted)());
  Status Leave(const HandlePtr& handle, const Status& late, Output memory);
  void LetGo(uint32_t id);
  void LetGoOfIdle();
  void Open(uint32_t id, const Members& members, std::shared_ptr<ProcessSetWires> wires);
  template <typename Work>
  Status Together(Work work);
  // How far the engine had come when a rank left.
  struct AtDeparture {
    uint64_t rounds;
    int asked;  // how often the watcher has asked since something waits for the rank
  };
  std::string StuckWithout(const Departure& departure, bool broken);
  bool Concerns(const Handle& handle, GlobalRank leaver) const;
  bool CaughtUp(AtDeparture* then);
  std::string OpenMessages();
  Status Usable(const Entry& entry) const;
  Status UsableMessage(const Entry& entry) const;
  Status CheckGpu(const negotiate::Request& request) const;
  void CountAsBlocked(Entry* entry, std::shared_ptr<ProgramThread> thread);
  void Flush() noexcept;
  void FailWhatIsLeft() noexcept;

  EngineOptions options_;
  SetRegistry sets_;
  std::mutex meetings_mutex_;                      // guards meetings_ and leaving_
  std::map<std::vector<int>, uint64_t> meetings_;  // by members: how many they have begun
  std::vector<uint32_t> leaving_;                  // sets that this rank lets go of once idle
  std::vector<int> descriptors_;                   // constant once started
  // By rank that has left, so at most as many; the watcher's thread's.
  std::map<GlobalRank, AtDeparture> departed_;
  // What has to be said when there may be no memory for it.
  struct Prepared {
    Cause no_memory_to_start;
    Cause no_memory_to_submit;
    Cause no_memory_for_sets;
    Cause shut_down;
    Status not_complete;
  };
  Prepared prepared_;
  AbortCell abort_;
  Counters counters_;
  Queue queue_;
  Waker waker_;
  LinkRequests link_requests_;
  LinkSigns link_signs_;
  Blocked blocked_;
  ProgramThreads threads_;
  StacksRequest stacks_;
  std::unique_ptr<Timeline> timeline_;  // null unless asked for
  std::unique_ptr<Wirer> wirer_;
  std::unique_ptr<Cycle> cycle_;
  std::unique_ptr<Loop> loop_;
  std::optional<Watcher> watcher_;
  std::atomic<bool> shut_down_{false};
};

}  // namespace hvd
