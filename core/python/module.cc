#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "api/process.h"
#include "python/bindings.h"
#include "settings/config.h"
#include "settings/log.h"

namespace py = pybind11;

namespace hvd::python {
namespace {

// Closes what bootstrap handed over unless the engine has taken it: init owns it also when it
// fails.
class LinkOwner {
 public:
  LinkOwner(const std::vector<PyLink>& links, int launcher_fd) : fds_{launcher_fd} {
    for (const PyLink& link : links) fds_.push_back(std::get<0>(link));
  }
  ~LinkOwner() {
    for (const int fd : fds_) {
      if (fd >= 0) close(fd);
    }
  }
  void Release() { fds_.clear(); }

 private:
  std::vector<int> fds_;
};

Wiring WiringOf(const std::string& name) {
  if (name == "shm") return Wiring::kShm;
  if (name == "tcp") return Wiring::kTcp;
  throw py::value_error("wiring is 'shm' or 'tcp', not '" + name + "'");
}

// rank, size, local rank, local size, cross rank, cross size
using PyIdentity = std::tuple<int, int, int, int, int, int>;
// Descriptor, key and frames; see LauncherOf.
using PyLauncher = std::tuple<int, py::bytes, uint64_t>;

void Init(const PyIdentity& given, const std::vector<PyLink>& links,
          const std::optional<PyLauncher>& launcher, EngineOptions options) {
  LinkOwner owner(links, launcher ? std::get<0>(*launcher) : -1);
  if (api::CurrentEngine() != nullptr) throw py::value_error("the engine runs already");
  const auto& [rank, size, local_rank, local_size, cross_rank, cross_size] = given;
  const api::RankIdentity identity{rank, size, local_rank, local_size, cross_rank, cross_size};
  options.rank = rank;
  options.size = size;
  options.local_rank = local_rank;
  if (!options.hosts.empty() && options.hosts.size() != static_cast<size_t>(options.size)) {
    throw py::value_error("hosts has a number for every rank, or none");
  }
  for (const PyLink& link : links) options.links.push_back(LinkOf(link));
  if (launcher) options.launcher = std::apply(LauncherOf, *launcher);
  ThrowIfError(ReadConfig(&std::getenv, &options.config));
  owner.Release();  // the engine owns them from here on
  SetLogLevel(options.config.log_level);
  SetLogHideTime(options.config.log_hide_time);
  SetLogRank(rank);
  WithoutLock([&] { return api::StartEngine(identity, std::move(options)); });
}

// What bootstrap knows but for the links, which have owners.
void BindOptions(py::module_& module) {
  using Options = EngineOptions;
  py::class_<Options>(module, "EngineOptions")
      .def(py::init<>())
      .def_readwrite("generation", &Options::generation)
      .def_property("wiring", nullptr,
                    [](Options& o, const std::string& name) { o.wiring = WiringOf(name); })
      .def_property("start_seconds", nullptr,
                    [](Options& o, double s) { o.start_us = static_cast<int64_t>(s * 1e6); })
      .def_readwrite("hosts", &Options::hosts)
      .def_readwrite("host_names", &Options::host_names)
      .def_readwrite("library", &Options::library)
      .def_readwrite("address", &Options::address)
      .def_readwrite("gpu_driver", &Options::gpu_driver)
      .def_readwrite("gpu_library", &Options::gpu_library)
      .def_readwrite("links_on_demand", &Options::links_on_demand);
}

PyIdentity GetTopology() {
  const std::optional<api::RankIdentity> t = api::KnownIdentity();
  if (!t) ThrowIfError(api::NotRunning());
  return {t->rank, t->size, t->local_rank, t->local_size, t->cross_rank, t->cross_size};
}

bool ServesGpu(int kind, int dtype, int op, double prescale, double postscale) {
  if (kind == kSendKind || kind == kRecvKind) return false;
  const bool known = kind >= 0 && kind < kOpKinds && dtype >= 0 && dtype < kDataTypes && op >= 0 &&
                     op < kReduceOps;
  if (!known) throw py::value_error("unknown operation, reduction or dtype");
  const std::shared_ptr<Engine> engine = api::CurrentEngine();
  return engine != nullptr &&
         engine->ServesGpu(static_cast<OpKind>(kind), static_cast<DataType>(dtype),
                           static_cast<ReduceOp>(op), prescale, postscale);
}

std::map<std::string, uint64_t> GetCounters() { return NeedEngine()->CountersNow(); }

uint32_t AddProcessSet(std::vector<int> ranks) {
  uint32_t id = 0;
  const std::shared_ptr<Engine> engine = NeedEngine();
  WithoutLock([&] { return engine->AddProcessSet(std::move(ranks), &id); });
  return id;
}

uint32_t AddOwnProcessSet(std::vector<int> ranks, double timeout) {
  constexpr double kLongest = 1e9;
  const auto micros = static_cast<int64_t>(std::clamp(timeout, 0.0, kLongest) * 1e6);
  uint32_t id = 0;
  const std::shared_ptr<Engine> engine = NeedEngine();
  WithoutLock([&] { return engine->AddOwnProcessSet(std::move(ranks), micros, Interrupted, &id); });
  if (PyErr_Occurred() == nullptr) return id;
  // A signal handler has raised, but the others had made the set already.
  (void)engine->LeaveProcessSet(id);
  throw py::error_already_set();
}

void LeaveProcessSet(uint32_t id) {
  const std::shared_ptr<Engine> engine = NeedEngine();
  WithoutLock([&] { return engine->LeaveProcessSet(id); });
}

void RemoveProcessSet(uint32_t id) {
  const std::shared_ptr<Engine> engine = NeedEngine();
  WithoutLock([&] { return engine->RemoveProcessSet(id); });
}

bool AwaitStacksRequest(int signal) {
  const std::shared_ptr<Engine> engine = api::CurrentEngine();
  const py::gil_scoped_release release;
  return engine != nullptr && engine->AwaitStacksRequest(signal);
}

void ShowStacks() { NeedEngine()->ShowStacks(); }

std::vector<std::string> InFlight(uint32_t process_set) {
  return NeedEngine()->InFlight(process_set);
}

void StartTimeline(const std::string& path, bool mark_cycles) {
  ThrowIfError(NeedEngine()->StartTimeline(path, mark_cycles));
}
void StopTimeline() { ThrowIfError(NeedEngine()->StopTimeline()); }

py::list GetSettings() {
  py::list rows;
  for (const Setting& row : SettingsTable()) {
    rows.append(py::make_tuple(row.variable, row.type, row.default_value, row.help));
  }
  return rows;
}

py::dict DataTypes() {
  py::dict types;
  for (int i = 0; i < kDataTypes; ++i) types[Name(static_cast<DataType>(i))] = i;
  return types;
}

void AddConstants(py::module_& module) {
  module.attr("__version__") = HVD_VERSION;
  module.attr("ALLREDUCE") = static_cast<int>(OpKind::kAllreduce);
  module.attr("ALLGATHER") = static_cast<int>(OpKind::kAllgather);
  module.attr("BROADCAST") = static_cast<int>(OpKind::kBroadcast);
  module.attr("BARRIER") = static_cast<int>(OpKind::kBarrier);
  module.attr("ALLTOALL") = static_cast<int>(OpKind::kAlltoall);
  module.attr("REDUCESCATTER") = static_cast<int>(OpKind::kReducescatter);
  module.attr("JOIN") = static_cast<int>(OpKind::kJoin);
  module.attr("SEND") = kSendKind;
  module.attr("RECV") = kRecvKind;
  module.attr("HOST_DEVICE") = kHostDevice;
  module.attr("STAGED_DEVICE") = kStagedDevice;
  module.attr("DTYPES") = DataTypes();
}

void BindModule(py::module_& module) {
  using py::arg;
  AddConstants(module);
  BindOutput(module);
  BindCalls(module);
  BindDlpack(module);
  BindLinks(module);
  BindOptions(module);
  module.def("init", &Init, arg("identity"), arg("links"), arg("launcher"), arg("options"));
  module.def("shutdown", &api::StopEngine, py::call_guard<py::gil_scoped_release>());
  module.def("is_initialized", [] { return api::CurrentEngine() != nullptr; });
  module.def("has_topology", [] { return api::KnownIdentity().has_value(); });
  module.def("topology", &GetTopology);
  module.def("check_running", [] { NeedEngine(); });
  module.def("check_health", [] { ThrowIfError(NeedEngine()->Health()); });
  module.def("counters", &GetCounters);
  module.def("gpu_serves", &ServesGpu, arg("kind"), arg("dtype"), arg("op"), arg("prescale"),
             arg("postscale"));
  module.def("add_process_set", &AddProcessSet, arg("ranks"));
  module.def("add_own_process_set", &AddOwnProcessSet, arg("ranks"), arg("timeout"));
  module.def("leave_process_set", &LeaveProcessSet, arg("process_set"));
  module.def("remove_process_set", &RemoveProcessSet, arg("process_set"));
  module.def("await_stacks_request", &AwaitStacksRequest, arg("signal") = 0);
  module.def("show_stacks", &ShowStacks);
  module.def("in_flight", &InFlight, arg("process_set"));
  // The address of the C table (api/c_api.h), with a reference that the receiver owns.
  module.def("acquire_api", [] { return reinterpret_cast<uintptr_t>(api::AcquireTable()); });
  module.def(
      "handle_type",
      [](const py::dict& entries, const py::object& dropped) {
        PyObject* type = MakeHandleType(entries.ptr(), dropped.ptr());
        if (type == nullptr) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(type);
      },
      arg("entries"), arg("dropped"));
  module.def("settings", &GetSettings);
  module.def(
      "check_setting",
      [](const std::string& variable, const std::string& value) {
        ThrowIfError(CheckSetting(variable, value));
      },
      arg("variable"), arg("value"));
  module.def(
      "shared_file_bytes",
      [](int ranks) {
        Config config;
        ThrowIfError(ReadConfig(&std::getenv, &config));
        return SharedFileBytes(config, std::max(1, ranks));
      },
      arg("ranks"));
  module.def("start_timeline", &StartTimeline, arg("path"), arg("mark_cycles") = false);
  module.def("stop_timeline", &StopTimeline);
}

}  // namespace
}  // namespace hvd::python

PYBIND11_MODULE(_core, module) { hvd::python::BindModule(module); }
