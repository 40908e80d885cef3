#pragma once

#include <memory>

#include "runtime/engine.h"

namespace hvd::api {

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
};

// The one engine of this process. A call keeps the engine alive while it uses it.
std::shared_ptr<Engine> CurrentEngine();  // null before init, after shutdown and in a forked child
Topology CurrentTopology();

Status StartEngine(const Topology& topology, EngineOptions options);
void StopEngine();

}  // namespace hvd::api
