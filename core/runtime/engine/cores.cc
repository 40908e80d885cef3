#include "runtime/engine/cores.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "runtime/progress/patience.h"

namespace hvd {

namespace {

constexpr useconds_t kShortestUs = 50;
constexpr useconds_t kLongestUs = 2000;

struct Card {
  alignas(64) Flag written;
  uint64_t mask[kMaskWords];
};

Card& CardOf(Window* window, Position member, SegmentId id) {
  return *reinterpret_cast<Card*>(window->Span(member, id));
}

}  // namespace

size_t CensusBytes() { return sizeof(Card); }

Status CountCores(Window* window, int64_t deadline_us, int* cores) {
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(Card), &id));
  Card& mine = CardOf(window, window->position(), id);
  ReadAffinity(mine.mask);
  window->Post(mine.written, 1);
  uint64_t all[kMaskWords] = {};
  for (Position member(0); member.value() < window->size(); member = Next(member)) {
    Card& card = CardOf(window, member, id);
    for (useconds_t pause = kShortestUs; Window::Try(card.written) == 0;
         pause = std::min(2 * pause, kLongestUs)) {
      if (NowMicros() > deadline_us) return Status::Aborted("a rank of this host did not finish its start");
      usleep(pause);
    }
    for (int w = 0; w < kMaskWords; ++w) all[w] |= card.mask[w];
  }
  int count = 0;
  for (uint64_t word : all) count += __builtin_popcountll(word);
  const int quota = QuotaCores();
  *cores = std::max(1, quota != 0 ? std::min(count, quota) : count);
  return Status::Ok();
}

}  // namespace hvd
