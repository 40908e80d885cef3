#pragma once

// Engines as threads of one process: every rank of a job, wired as in production or in memory.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "transport/inproc/fabric.h"
#include "transport/transport_ranks.h"

namespace hvd::test {

// kHosts: several hosts, each with shared memory, and links between all ranks.
enum class Wires { kInprocWindow, kInprocLinks, kShm, kTcp, kHosts };
constexpr Wires kAllWires[] = {Wires::kInprocWindow, Wires::kInprocLinks, Wires::kShm, Wires::kTcp,
                               Wires::kHosts};

class Cluster {
 public:
  // `hosts`: by rank, for kHosts; without, hosts of unequal size.
  Cluster(int size, Wires wires, std::vector<std::vector<int>> process_sets = {},
          Config config = {}, std::vector<int> hosts = {});
  ~Cluster();

  int size() const { return size_; }
  // Makes every rank's engine and runs the body on it, a thread each. The engines are shut down
  // when all bodies have returned.
  void Run(const std::function<void(Engine&, int rank)>& body);

  // To run on each rank's thread before its engine is made.
  void BeginWith(std::function<void(int rank)> begin) { begin_ = std::move(begin); }

  // One rank's engine alone.
  Status Make(int rank, std::unique_ptr<Engine>* engine);

  // As if `rank` were killed: its watch links end without a goodbye.
  void CutLinks(int rank);

 private:
  void AddShareLinks();
  EngineOptions OptionsFor(int rank);

  const int size_;
  const Wires wires_;
  const std::vector<std::vector<int>> process_sets_;
  const Config config_;
  std::vector<int> hosts_;  // by rank; empty: one
  std::function<void(int)> begin_;
  inproc::Fabric fabric_;
  std::vector<std::vector<Link>> links_;      // by rank
  std::vector<std::vector<int>> duplicates_;  // of the watch links, by rank
};

// One-line operations on float tensors.
Entry AllreduceEntry(const std::string& name, std::vector<float>* data,
                     ReduceOp op = ReduceOp::kSum, uint32_t set = 0);
Status Submit(Engine& engine, Entry entry, HandlePtr* handle);
Status Run(Engine& engine, Entry entry, HandlePtr* handle = nullptr);
Status Allreduce(Engine& engine, const std::string& name, std::vector<float>* data,
                 ReduceOp op = ReduceOp::kSum, uint32_t set = 0);
Status Barrier(Engine& engine, uint32_t set = 0);

// Whether one of several rounds, each of so many scheduled tensors, takes no control message. On a
// busy machine not every round is: a rank that loses its processor for too long in the middle of a
// step leaves the schedule.
bool SomeRoundIsSilent(Engine* engine, uint64_t tensors, const std::function<void()>& round);

}  // namespace hvd::test
