#include "backend/nccl/outstanding.h"

namespace hvd::nccl {

Status Outstanding::Begin(void* stream, std::string title, int64_t now_us) {
  HVD_RETURN_IF_ERROR(ForgetDone());
  Given given;
  given.title = std::move(title);
  given.since_us = now_us;
  HVD_RETURN_IF_ERROR(GpuEvent::Make(driver_, device_, context_, &given.start));
  HVD_RETURN_IF_ERROR(GpuEvent::Make(driver_, device_, context_, &given.end));
  given_.push_back(std::move(given));
  if (!watched_ && wake_) wake_();
  watched_ = true;
  return given_.back().start->Record(stream);
}

Status Outstanding::End(void* stream, std::shared_ptr<const DeviceEnd>* end) {
  Given& last = given_.back();
  HVD_RETURN_IF_ERROR(last.end->Record(stream));
  last.complete = true;
  *end = last.end;
  return Status::Ok();
}

Status Outstanding::ForgetDone() {
  while (!given_.empty() && given_.front().complete) {
    bool done = false;
    HVD_RETURN_IF_ERROR(given_.front().end->Happened(&done));
    if (!done) return Status::Ok();
    given_.pop_front();
  }
  return Status::Ok();
}

Status Outstanding::Look() {
  HVD_RETURN_IF_ERROR(ForgetDone());
  watched_ = !given_.empty();
  return watched_ ? given_.front().start->Happened(&given_.front().reached) : Status::Ok();
}

void Outstanding::Lose() noexcept {
  for (const Given& given : given_) given.end->Lose();
}

}  // namespace hvd::nccl
