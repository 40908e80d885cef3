#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

// Which request has which id: the sequencer gives the ids, each member and each inner node of the
// tree mirrors them with its own requests, so that a known operation is announced in a few bytes.
// An id means one request until all is forgotten at once, which a response tells everybody.
//
// A request is kept as its key: the bytes of what SameAs compares, which are equal for requests
// that are the same. They are a fifth of the request itself.
class ResponseCache {
 public:
  // Every id costs memory, and a program of ever new names must not grow without bound: no capacity
  // is larger than this.
  static constexpr size_t kMostIds = 1 << 20;

  explicit ResponseCache(size_t capacity);

  // The id of a request that SameAs this one; kNoId when unknown. Constant time.
  uint32_t Find(const Request& request) const;

  // Ids are dense from 0. An error means that the stream and this mirror do not fit together.
  Status Learn(uint32_t id, const Request& request);

  // Ids begin at 0 again.
  void Clear();

  // id < size(). Of what SameAs leaves out, the device is that of the first time, and the rest as
  // by default (the first dimensions of an allgather or alltoall 0).
  Request At(uint32_t id) const;
  OpKind KindOf(uint32_t id) const { return static_cast<OpKind>(keys_[entries_[id].key]); }

  size_t size() const { return entries_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Entry {
    uint64_t key;   // where it begins in keys_; it ends with the next one
    uint32_t hash;  // its lowest bits
    int32_t device;
  };

  std::string_view KeyOf(uint32_t id) const;
  uint32_t Lookup(std::string_view key, uint32_t hash) const;
  void Keep(std::string_view key);
  void Insert(uint32_t id);
  void Grow();

  size_t capacity_;
  std::vector<Entry> entries_;     // by id
  std::vector<uint32_t> buckets_;  // linear probing; a power of two, at most half full
  std::vector<char> keys_;         // one after another
  mutable std::string key_;        // of the request that is looked for, reused
};

}  // namespace hvd::negotiate
