#include "api/process.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <vector>

namespace hvd::api {

namespace {

// The engine closes a link that ends and the program may open something else under its number, which a
// forked child must keep: so a descriptor is known by what it was opened for.
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
  Topology topology;
  std::vector<OpenFile> descriptors;
};

// Never destroyed: threads may use it while the interpreter ends. Replaced, not cleaned, in a forked child,
// where the engine's threads do not exist and its locks may be held for ever.
State* state = new State;

void InForkedChild() {
  // Peers must see the end of this process's parent even while children of it live on.
  for (const OpenFile& known : state->descriptors) {
    const OpenFile now = Identify(known.fd);
    if (now.fd >= 0 && now.device == known.device && now.inode == known.inode) close(known.fd);
  }
  state = new State;
}

}  // namespace

std::shared_ptr<Engine> CurrentEngine() {
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->engine;
}

Topology CurrentTopology() {
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->topology;
}

Status StartEngine(const Topology& topology, EngineOptions options) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, InForkedChild);
  std::unique_ptr<Engine> engine;
  HVD_RETURN_IF_ERROR(Engine::Make(std::move(options), &engine));
  const std::lock_guard<std::mutex> lock(state->mutex);
  state->topology = topology;
  state->descriptors.clear();
  for (const int fd : engine->Descriptors()) state->descriptors.push_back(Identify(fd));
  state->engine = std::move(engine);
  return Status::Ok();
}

void StopEngine() {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    engine = std::move(state->engine);
    state->engine = nullptr;
    state->descriptors.clear();
  }
  if (engine != nullptr) engine->Shutdown();
}

}  // namespace hvd::api
