#include "transport/shm/message.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace hvd::shm {

namespace {

constexpr useconds_t kCrowdedUs = 1000;  // until others have taken descriptors that are under way

struct Control {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
};

Status Await(int socket, short events, Deadline deadline) {
  constexpr int64_t kLongestMs = 1 << 30;
  const int64_t left_ms = (deadline - NowMicros() + 999) / 1000;
  pollfd entry{socket, events, 0};
  const int ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left_ms, 0, kLongestMs)));
  if (ready == 0) return Status::Aborted("no answer while sharing memory until the start timeout");
  if (ready < 0 && errno != EINTR) return Status::Errno("poll");
  return Status::Ok();
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

void Attach(msghdr* header, Control* control, const std::vector<int>& descriptors) {
  const size_t bytes = descriptors.size() * sizeof(int);
  header->msg_control = control->bytes;
  header->msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* rights = CMSG_FIRSTHDR(header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(rights), descriptors.data(), bytes);
}

void Collect(msghdr* header, std::vector<Descriptor>* descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      descriptors->emplace_back(fd);
    }
  }
}

}  // namespace

Status Send(int socket, const Message& message, const std::vector<int>& descriptors,
            Deadline deadline) {
  const char* at = reinterpret_cast<const char*>(&message);
  size_t left = sizeof message;
  while (left > 0) {
    iovec part{const_cast<char*>(at), left};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    Control control{};
    // The descriptors travel with the first byte.
    if (left == sizeof message && !descriptors.empty()) Attach(&header, &control, descriptors);
    const ssize_t sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == ETOOMANYREFS && NowMicros() < deadline) {
      usleep(kCrowdedUs);
      continue;
    }
    if (sent < 0 && !WouldBlock(errno)) return Status::Aborted(Status::Errno("sendmsg").message());
    if (sent < 0) {
      HVD_RETURN_IF_ERROR(Await(socket, POLLOUT, deadline));
      continue;
    }
    at += sent;
    left -= static_cast<size_t>(sent);
  }
  return Status::Ok();
}

Status Receive(int socket, Message* message, std::vector<Descriptor>* descriptors,
               Deadline deadline) {
  char bytes[sizeof(Message)];
  size_t have = 0;
  bool lost = false;
  while (have < sizeof bytes) {
    descriptors->reserve(descriptors->size() + kMostDescriptors);  // what comes is owned at once
    iovec part{bytes + have, sizeof bytes - have};
    msghdr header{};
    Control control{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && !WouldBlock(errno)) return Status::Aborted(Status::Errno("recvmsg").message());
    if (got < 0) {
      HVD_RETURN_IF_ERROR(Await(socket, POLLIN, deadline));
      continue;
    }
    Collect(&header, descriptors);
    if (got == 0) return Status::Aborted("the connection was closed");
    lost = lost || (header.msg_flags & MSG_CTRUNC) != 0;
    have += static_cast<size_t>(got);
  }
  std::memcpy(message, bytes, sizeof bytes);
  if (lost)
    return {Code::kUnavailable,
            "descriptors were lost: this process has too many files open (ulimit -n)"};
  return Status::Ok();
}

}  // namespace hvd::shm
