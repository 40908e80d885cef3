// Runs of operations in messages.

#include "negotiate/message.h"

namespace hvd::negotiate {

bool IsRun(const Announcement& announcement) {
  return announcement.id != kNoId && announcement.ordinal == 0 && announcement.sizes.empty() &&
         announcement.variants.empty();
}

bool IsRun(const Decision& decision) {
  return decision.known && decision.ordinal == 0 && decision.sizes.empty() && !decision.partial;
}

bool Extend(uint32_t id, Position last, Micros waited, std::vector<Announcement>* list) {
  if (list->empty()) return false;
  Announcement& run = list->back();
  const bool same = IsRun(run) && run.id + run.count == id && run.last == last &&
                    (!last.known() || run.waited == waited);
  if (same) ++run.count;
  return same;
}

bool Extend(uint32_t id, std::vector<Decision>* list) {
  if (list->empty()) return false;
  Decision& run = list->back();
  const bool same = IsRun(run) && run.id + run.count == id;
  if (same) ++run.count;
  return same;
}

uint64_t OperationsIn(const AnnounceMessage& message) {
  uint64_t operations = 0;
  for (const Announcement& announcement : message.announcements) operations += announcement.count;
  return operations;
}

uint64_t OperationsIn(const Response& response) {
  uint64_t operations = 0;
  for (const Decision& decision : response.decisions) operations += decision.count;
  return operations;
}

}  // namespace hvd::negotiate
