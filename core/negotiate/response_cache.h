#pragma once

#include <cstdint>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

// Which request has which id: the sequencer gives the ids, each member mirrors them with its own
// requests, so that a known operation is announced in a few bytes. Nothing is ever evicted: an id
// means one request for good.
class ResponseCache {
 public:
  // Every id costs memory for good, and a program of ever new names must not grow without bound: no
  // capacity is larger than this.
  static constexpr size_t kMostIds = 1 << 20;

  explicit ResponseCache(size_t capacity);

  // The id of a request that SameAs this one; kNoId when unknown. Constant time.
  uint32_t Find(const Request& request) const;

  // Ids are dense from 0. An error means that the stream and this mirror do not fit together.
  Status Learn(uint32_t id, Request request);

  // id < size(). What SameAs leaves out (device number, first dimensions) is that of the first
  // time.
  const Request& At(uint32_t id) const { return entries_[id].request; }

  size_t size() const { return entries_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Entry {
    uint64_t hash;
    Request request;
  };

  uint32_t Lookup(const Request& request, uint64_t hash) const;
  void Insert(uint32_t id);
  void Grow();

  size_t capacity_;
  std::vector<Entry> entries_;     // by id
  std::vector<uint32_t> buckets_;  // linear probing; a power of two, at most half full
};

}  // namespace hvd::negotiate
