#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/engine.h"

namespace hvd::python {

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

// Operations in flight by the number that Python holds.
int64_t Remember(HandlePtr handle);
HandlePtr Recall(int64_t number);  // null when unknown
void Forget(int64_t number);

}  // namespace hvd::python
