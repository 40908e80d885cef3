#pragma once

#include <memory>
#include <vector>

#include "transport/mapping.h"

namespace hvd {

// Pre-faulted memory that collectives borrow. First touch of a page costs more than reducing it, so
// a returned buffer is kept for the next borrower. Not thread safe: used under the progress lock.
class ScratchPool : public std::enable_shared_from_this<ScratchPool> {
 public:
  // A borrowed buffer; goes back when it is destroyed.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) = default;
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(mapping_, other.mapping_);
      return *this;
    }
    ~Lease();
    std::byte* data() const { return mapping_.data(); }  // page aligned

   private:
    friend class ScratchPool;
    Lease(std::shared_ptr<ScratchPool> pool, Mapping mapping)
        : pool_(std::move(pool)), mapping_(std::move(mapping)) {}

    std::shared_ptr<ScratchPool> pool_;
    Mapping mapping_;
  };

  static std::shared_ptr<ScratchPool> Make() {
    return std::shared_ptr<ScratchPool>(new ScratchPool);
  }
  Status Borrow(size_t bytes, Lease* lease);

 private:
  ScratchPool();
  std::vector<Mapping> free_;
};

}  // namespace hvd
