#include "api/process.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hvd::api {

namespace {

// The engine closes a link that ends and the program may open something else under its number,
// which a forked child must keep: so a descriptor is known by what it was opened for.
struct OpenFile {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
};

OpenFile Identify(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return {};
  return {fd, info.st_dev, info.st_ino};
}

struct State {
  std::mutex mutex;  // guards everything
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Engine> stopping;  // what it sent last may still want links
  std::optional<RankIdentity> identity;
  pid_t rank_pid = 0;  // of the rank that this process was forked from; 0 = of none
  std::vector<OpenFile> descriptors;
};

// Never destroyed: threads may use it while the interpreter ends. Replaced, not cleaned, in a
// forked child, where the engine's threads do not exist and its locks may be held for ever.
State* state = new State;

// So that a child finds a list that is whole.
void BeforeFork() { state->mutex.lock(); }
void InParent() { state->mutex.unlock(); }

void InForkedChild() {
  // Peers must see the end of this process's parent even while children of it live on.
  for (const OpenFile& known : state->descriptors) {
    const OpenFile now = Identify(known.fd);
    if (now.fd >= 0 && now.device == known.device && now.inode == known.inode) close(known.fd);
  }
  auto* const fresh = new State;
  fresh->identity = state->identity;
  if (state->identity) fresh->rank_pid = state->rank_pid != 0 ? state->rank_pid : getppid();
  state = fresh;
}

}  // namespace

std::shared_ptr<Engine> CurrentEngine() {
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->engine;
}

std::optional<RankIdentity> KnownIdentity() {
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->identity;
}

Status NotRunning() {
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (state->rank_pid == 0)
    return {Code::kNotInitialized, "Horovod has not been initialized; use hvd.init()."};
  return {Code::kNotInitialized, "This process was forked from rank " +
                                     std::to_string(state->identity->rank) + " (process " +
                                     std::to_string(state->rank_pid) +
                                     ") and is no rank itself: it can ask for rank and size, but "
                                     "not run collectives. Call them in "
                                     "the parent; let a DataLoader's workers only load data."};
}

Status StartEngine(const RankIdentity& identity, EngineOptions options) {
  [[maybe_unused]] static const int registered =
      pthread_atfork(BeforeFork, InParent, InForkedChild);
  std::unique_ptr<Engine> engine;
  HVD_RETURN_IF_ERROR(Engine::Make(std::move(options), &engine));
  std::vector<OpenFile> descriptors;
  for (const int fd : engine->Descriptors()) descriptors.push_back(Identify(fd));
  std::shared_ptr<Engine> shared = std::move(engine);
  const std::lock_guard<std::mutex> lock(state->mutex);
  state->identity = identity;
  state->descriptors = std::move(descriptors);
  state->engine = std::move(shared);
  return Status::Ok();
}

void StopEngine() {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    engine = std::exchange(state->engine, nullptr);
    if (engine != nullptr) state->stopping = engine;
    if (state->rank_pid == 0) state->identity.reset();
  }
  if (engine == nullptr) return;
  engine->Shutdown();
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (state->stopping == engine) state->stopping = nullptr;
  if (state->engine == nullptr) state->descriptors.clear();
}

std::shared_ptr<Engine> LinkingEngine() {
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->engine != nullptr ? state->engine : state->stopping;
}

void AddLink(const Link& link) {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    engine = state->engine != nullptr ? state->engine : state->stopping;
    if (engine != nullptr) state->descriptors.push_back(Identify(link.fd));
  }
  if (engine == nullptr) {
    close(link.fd);
  } else {
    engine->AddLink(link);
  }
}

}  // namespace hvd::api
