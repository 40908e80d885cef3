#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "negotiate/bytes/wire.h"
#include "negotiate/message.h"

// The bytes of the parts that both messages have.
namespace hvd::negotiate {

// Room that is made for a list before its elements are read: a count alone must not claim memory.
constexpr size_t kReserved = 1024;
constexpr uint64_t kMaxDim = std::numeric_limits<int64_t>::max();

void Put(const std::vector<int64_t>& dims, Encoder* out);
void Take(Decoder* in, const char* field, size_t max, std::vector<int64_t>* dims);

// What is as by default is not sent: so one message has one encoding, and the parts of which a tag
// tells are not empty.
void TakeSizes(Decoder* in, size_t max, Shape* sizes);
uint64_t TakeOrdinal(Decoder* in);
std::string_view TakeText(Decoder* in, const char* field, size_t max);

// How many ids a run has, from `first` on: more than one, and all of them are ids.
void PutRun(uint32_t count, Encoder* out);
uint32_t TakeRun(Decoder* in, uint32_t first);

void Put(const Request& request, Encoder* out);
void Take(Decoder* in, Request* request);

// What lists are made of.
void Put(const Variant& variant, Encoder* out);
void Put(const Announcement& announcement, Encoder* out);
void Put(const Waiting& waiting, Encoder* out);
void Put(const Decision& decision, Encoder* out);
void Take(Decoder* in, Variant* variant);
void Take(Decoder* in, Announcement* announcement);
void Take(Decoder* in, Waiting* waiting);
void Take(Decoder* in, Decision* decision);

template <typename T>
void Put(const std::vector<T>& list, Encoder* out) {
  out->Varint(list.size());
  for (const T& element : list) Put(element, out);
}

// Each element takes at least two bytes.
template <typename T>
void TakeList(Decoder* in, const char* field, size_t max, std::vector<T>* list) {
  list->clear();
  const size_t count = in->Count(field, 2, max);
  list->reserve(std::min(count, kReserved));
  while (in->ok() && list->size() < count) Take(in, &list->emplace_back());
}

template <typename T>
void TakeSome(Decoder* in, const char* field, std::vector<T>* list) {
  TakeList(in, field, std::numeric_limits<size_t>::max(), list);
  if (list->empty()) in->Fail(field);
}

// Both messages begin with the version and two numbers.
struct Head {
  uint64_t number;
  uint64_t join;  // what is to be known of joins, and what else follows
};

void Put(const Head& head, Encoder* out);
// An error: of another version. `message`: which of the two.
Status Take(Decoder* in, const char* message, uint64_t max_join, Head* head);

}  // namespace hvd::negotiate
