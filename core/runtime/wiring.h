#pragma once

#include <memory>
#include <vector>

#include "base/waker.h"
#include "runtime/cycle.h"
#include "runtime/engine.h"

namespace hvd {

// Turns links (or a test's fabric) into the windows, transports, controls and backends of every process set.
struct Wired {
  std::vector<std::unique_ptr<Window>> windows;
  std::vector<std::unique_ptr<Transport>> transports;
  struct Set {
    std::unique_ptr<Control> control;
    std::unique_ptr<Backend> backend;
  };
  std::vector<Set> sets;    // by set id; both null where this rank is no member
  std::vector<Link> watch;  // what is left of the links, for the watcher
  int cores = 1;            // usable by the ranks of this host
};

// Collective and blocking. `sets[0]` is everybody. Takes the links out of *options.
Status Wire(EngineOptions* options, const std::vector<std::vector<int>>& sets, const Waker& waker,
            Wired* wired);

}  // namespace hvd
