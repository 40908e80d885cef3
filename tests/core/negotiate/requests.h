#pragma once

#include <string>
#include <utility>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

inline Request Allreduce(std::string name, Shape shape = {4}, DataType dtype = DataType::kFloat32) {
  Request request;
  request.name = std::move(name);
  request.tensors = {{dtype, std::move(shape)}};
  return request;
}

inline Request Allgather(std::string name, Shape shape) {
  Request request = Allreduce(std::move(name), std::move(shape));
  request.kind = OpKind::kAllgather;
  return request;
}

inline Request Alltoall(std::string name, Shape shape, Shape splits) {
  Request request = Allreduce(std::move(name), std::move(shape));
  request.kind = OpKind::kAlltoall;
  request.splits = std::move(splits);
  return request;
}

inline Request Reducescatter(std::string name, Shape shape = {4}) {
  Request request = Allreduce(std::move(name), std::move(shape));
  request.kind = OpKind::kReducescatter;
  return request;
}

inline Request Broadcast(std::string name, int root, Shape shape = {4}) {
  Request request = Allreduce(std::move(name), std::move(shape));
  request.kind = OpKind::kBroadcast;
  request.root = GlobalRank(root);
  return request;
}

inline Request Barrier() {
  Request request;
  request.kind = OpKind::kBarrier;
  return request;
}

inline Announcement Full(const Request& request, uint64_t ordinal = 0) {
  Announcement announcement;
  announcement.request = request;
  announcement.ordinal = ordinal;
  announcement.sizes = SizesOf(request);
  return announcement;
}

inline Announcement Cached(uint32_t id, uint64_t ordinal = 0, Shape sizes = {}) {
  Announcement announcement;
  announcement.id = id;
  announcement.ordinal = ordinal;
  announcement.sizes = std::move(sizes);
  return announcement;
}

// The named operations of these ids.
inline Announcement Run(uint32_t first, uint32_t count) {
  Announcement announcement = Cached(first);
  announcement.count = count;
  return announcement;
}

// One for each operation, also of runs.
inline std::vector<Decision> EachOf(const Response& response) {
  std::vector<Decision> each;
  for (Decision decision : response.decisions) {
    const uint32_t count = std::exchange(decision.count, 1);
    for (uint32_t i = 0; i < count; ++i, ++decision.id) each.push_back(decision);
  }
  return each;
}

// Of a member that is blocked on so many of its announcements.
inline AnnounceMessage Message(std::vector<Announcement> announcements, uint64_t urgent = 0) {
  AnnounceMessage message;
  message.some_urgent = message.all_urgent = urgent;
  message.announcements = std::move(announcements);
  return message;
}

}  // namespace hvd::negotiate
