#pragma once

#include <memory>
#include <optional>

#include "api/c_api.h"
#include "runtime/engine/engine.h"

namespace hvd::api {

struct RankIdentity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
};

// The one engine of this process. A call keeps the engine alive while it uses it.
std::shared_ptr<Engine> CurrentEngine();  // null before init, after shutdown and in a forked child
// Of the engine; in a child that was forked from a rank, that rank's: a worker that prepares data
// may ask who it does so for. Nothing before init and after shutdown.
std::optional<RankIdentity> KnownIdentity();

// Why there is no engine, and what to do.
Status NotRunning();

Status StartEngine(const RankIdentity& identity, EngineOptions options);
void StopEngine();

// For whom links are made: the engine, also while it stops. Null: nobody.
std::shared_ptr<Engine> LinkingEngine();
// See Engine::AddLink; a forked child closes its copy. Without an engine the socket is closed.
void AddLink(const Link& link);

// The table of api/c_api.h, with a reference that the caller releases. It works on whatever engine
// there is.
hvd_api* AcquireTable();

}  // namespace hvd::api
