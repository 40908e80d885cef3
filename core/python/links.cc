// Links as bootstrap hands them over, at the start and on demand.

#include <fcntl.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/process.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace hvd::python {

Link LinkOf(const PyLink& given) {
  Link link;
  link.fd = std::get<0>(given);
  link.peer = GlobalRank(std::get<1>(given));
  link.role = static_cast<LinkRole>(std::get<2>(given));
  const std::string send = std::get<3>(given);
  const std::string receive = std::get<4>(given);
  if (send.size() != link.send_key.size() || receive.size() != link.recv_key.size()) {
    throw py::value_error("a link has two keys of 32 bytes");
  }
  std::memcpy(link.send_key.data(), send.data(), send.size());
  std::memcpy(link.recv_key.data(), receive.data(), receive.size());
  return link;
}

Link LauncherOf(int fd, const py::bytes& key, uint64_t frames) {
  Link link = LinkOf({fd, -1, static_cast<int>(LinkRole::kLauncher), key, key});
  link.sealed = frames;
  return link;
}

std::shared_ptr<Engine> NeedEngine() {
  std::shared_ptr<Engine> engine = api::CurrentEngine();
  if (engine == nullptr) ThrowIfError(api::NotRunning());
  return engine;
}

namespace {

// A descriptor of the caller's, readable when take_link_requests has something to say.
int LinkRequestsDescriptor() {
  const int fd = fcntl(NeedEngine()->link_requests().fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) ThrowIfError(Status::Errno("cannot hear which links are wanted"));
  return fd;
}

// (peer, role) of each; None when there will be no more.
py::object TakeLinkRequests() {
  const std::shared_ptr<Engine> engine = api::LinkingEngine();
  std::vector<WantedLink> wanted;
  if (engine == nullptr || !engine->link_requests().Take(&wanted)) return py::none();
  py::list list;
  for (const WantedLink& link : wanted) {
    list.append(py::make_tuple(link.peer.value(), static_cast<int>(link.role)));
  }
  return std::move(list);
}

// Closes it where `convert` fails.
template <typename Convert>
void Add(int fd, Convert convert) {
  Link link;
  try {
    link = convert();
  } catch (...) {
    close(fd);
    throw;
  }
  const py::gil_scoped_release release;
  api::AddLink(link);
}

// The core's from here on, also when it fails.
void AddLink(const PyLink& given) {
  Add(std::get<0>(given), [&] { return LinkOf(given); });
}

// Likewise.
void AddLauncher(int fd, const py::bytes& key, uint64_t frames) {
  Add(fd, [&] { return LauncherOf(fd, key, frames); });
}

void GiveUpLink(int peer, const std::string& reason) {
  const std::shared_ptr<Engine> engine = api::LinkingEngine();
  const py::gil_scoped_release release;
  if (engine != nullptr) engine->GiveUpLink(GlobalRank(peer), reason);
}

}  // namespace

void BindLinks(py::module_& module) {
  using py::arg;
  module.attr("LINK_WATCH") = static_cast<int>(LinkRole::kWatch);
  module.attr("LINK_CONTROL") = static_cast<int>(LinkRole::kControl);
  module.attr("LINK_DATA") = static_cast<int>(LinkRole::kData);
  module.attr("LINK_SHARE") = static_cast<int>(LinkRole::kShare);
  module.def("link_requests_descriptor", &LinkRequestsDescriptor);
  module.def("take_link_requests", &TakeLinkRequests);
  module.def("add_link", &AddLink, arg("link"));
  module.def("add_launcher", &AddLauncher, arg("fd"), arg("key"), arg("frames"));
  module.def("give_up_link", &GiveUpLink, arg("peer"), arg("reason"));
}

}  // namespace hvd::python
