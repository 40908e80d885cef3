#include "runtime/engine/windows.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/inproc/fabric.h"
#include "transport/shm/arena.h"
#include "transport/shm/share_tree.h"
#include "transport/shm/window.h"

namespace hvd {

namespace {

// Among processes: over a tree of links among the ranks of the host, which is made with the first
// window.
class SharedWindows : public WindowSource {
 public:
  SharedWindows(EngineOptions* options, const Topology& job, const Waker& waker)
      : generation_(options->generation), rank_(options->rank), waker_(waker) {
    const Position self(options->rank);
    for (const Position rank : job.OnHost(job.HostOf(self))) ranks_.push_back(rank.value());
    sockets_.resize(ranks_.size(), -1);
    links_ = Take(LinkRole::kShare, &options->links);  // from here on nothing may fail
    for (const Link& link : links_) {
      const auto place = std::find(ranks_.begin(), ranks_.end(), link.peer.value());
      if (place != ranks_.end()) sockets_[place - ranks_.begin()] = link.fd;
    }
  }

  ~SharedWindows() override {
    for (const Link& link : links_) close(link.fd);
  }

  Status Make(uint32_t id, const Members& members, WindowBytes bytes, int64_t deadline_us,
              std::unique_ptr<Window>* window) override {
    if (tree_ == nullptr) HVD_RETURN_IF_ERROR(Plant(deadline_us));
    shm::WindowOptions options = OptionsOf(id, members, bytes);
    options.deadline = deadline_us;
    return shm::ShmWindow::Make(options, tree_.get(), window);
  }

  Status Reserve(uint32_t id, const Members& members, WindowBytes bytes,
                 std::string* place) override {
    if (arena_ == nullptr) return no_arena_;
    shm::Place made;
    HVD_RETURN_IF_ERROR(
        shm::ShmWindow::MakeIn(arena_.get(), OptionsOf(id, members, bytes), *tree_, &made));
    place->assign(reinterpret_cast<const char*>(&made), sizeof made);
    return Status::Ok();
  }

  Status Open(uint32_t id, const Members& members, WindowBytes bytes, const std::string& place,
              std::unique_ptr<Window>* window) override {
    shm::Place made;
    if (arena_ == nullptr || !Read(place, &made))
      return Status::Aborted("no place of shared memory was announced");
    return shm::ShmWindow::Open(*arena_, OptionsOf(id, members, bytes), *tree_, made, window);
  }

  void Close(const std::string& place) override {
    shm::Place made;
    if (arena_ != nullptr && Read(place, &made)) arena_->Close(made);
  }

  void Reclaim() override {
    if (arena_ != nullptr) arena_->Reclaim();
  }

  void Interrupt() override {
    for (const Link& link : links_) ::shutdown(link.fd, SHUT_RDWR);
  }

  GlobalRank failed_rank() const override {
    return tree_ == nullptr ? GlobalRank() : tree_->failed_rank();
  }

 private:
  // Without an arena a job runs all the same, as long as no set is made by its members alone.
  Status Plant(int64_t deadline_us) {
    HVD_RETURN_IF_ERROR(shm::ShareTree::Make(generation_, Members(ranks_), rank_, sockets_, waker_,
                                             deadline_us, &tree_));
    no_arena_ = shm::Arena::Make(tree_.get(), deadline_us, &arena_);
    return Status::Ok();
  }

  static bool Read(const std::string& place, shm::Place* made) {
    if (place.size() != sizeof *made) return false;
    std::memcpy(made, place.data(), sizeof *made);
    return true;
  }

  static shm::WindowOptions OptionsOf(uint32_t id, const Members& members, WindowBytes bytes) {
    shm::WindowOptions options;
    options.set = id;
    options.members = members;
    options.bytes = bytes.all;
    options.at_once = bytes.at_once;
    return options;
  }

  const uint64_t generation_;
  const GlobalRank rank_;
  const Waker& waker_;
  std::vector<int> ranks_;    // of the host
  std::vector<int> sockets_;  // by place in ranks_; -1: no link
  std::vector<Link> links_;   // owned; for as long as sets may be added
  std::unique_ptr<shm::ShareTree> tree_;
  std::unique_ptr<shm::Arena> arena_;
  Status no_arena_;  // why there is none
};

class FabricWindows : public WindowSource {
 public:
  FabricWindows(const EngineOptions& options, const Waker& waker)
      : fabric_(options.fabric), rank_(options.rank), waker_(waker) {}

  Status Make(uint32_t id, const Members& members, WindowBytes /*bytes*/, int64_t /*deadline_us*/,
              std::unique_ptr<Window>* window) override {
    if (members.Has(rank_)) *window = fabric_->MakeWindow(id, members, rank_, waker_);
    return Status::Ok();
  }

  Status Reserve(uint32_t /*id*/, const Members& /*members*/, WindowBytes /*bytes*/,
                 std::string* /*place*/) override {
    return Status::Ok();
  }
  Status Open(uint32_t id, const Members& members, WindowBytes /*bytes*/,
              const std::string& /*place*/, std::unique_ptr<Window>* window) override {
    *window = fabric_->MakeWindow(id, members, rank_, waker_);
    return Status::Ok();
  }

 private:
  inproc::Fabric* const fabric_;
  const GlobalRank rank_;
  const Waker& waker_;
};

}  // namespace

std::unique_ptr<WindowSource> MakeSharedWindows(EngineOptions* options, const Topology& job,
                                                const Waker& waker) {
  return std::make_unique<SharedWindows>(options, job, waker);
}

std::unique_ptr<WindowSource> MakeFabricWindows(const EngineOptions& options, const Waker& waker) {
  return std::make_unique<FabricWindows>(options, waker);
}

}  // namespace hvd
