#include "backend/nccl/outstanding.h"

namespace hvd::nccl {

namespace {

constexpr unsigned kWithoutTiming = 2;

}  // namespace

Status Outstanding::Begin(void* stream, std::string title, int64_t now_us) {
  HVD_RETURN_IF_ERROR(ForgetDone());
  if (spare_.empty()) {
    Given& made = spare_.emplace_back();
    for (void** event : {&made.start, &made.end}) {
      HVD_RETURN_IF_ERROR(
          driver_.Check(driver_.call().create_event(event, kWithoutTiming), "making an event"));
    }
  }
  Given given = std::move(spare_.back());
  spare_.pop_back();
  given.title = std::move(title);
  given.since_us = now_us;
  given.complete = given.reached = false;
  given_.push_back(std::move(given));
  if (!watched_ && wake_) wake_();
  watched_ = true;
  return driver_.Check(driver_.call().record_event(given_.back().start, stream),
                       "recording an event");
}

Status Outstanding::End(void* stream, void** end) {
  Given& last = given_.back();
  *end = last.end;
  HVD_RETURN_IF_ERROR(
      driver_.Check(driver_.call().record_event(last.end, stream), "recording an event"));
  last.complete = true;
  return Status::Ok();
}

Status Outstanding::ForgetDone() {
  while (!given_.empty() && given_.front().complete) {
    bool done = false;
    HVD_RETURN_IF_ERROR(driver_.Happened(given_.front().end, &done));
    if (!done) return Status::Ok();
    spare_.push_back(std::move(given_.front()));
    given_.pop_front();
  }
  return Status::Ok();
}

Status Outstanding::Look() {
  HVD_RETURN_IF_ERROR(ForgetDone());
  watched_ = !given_.empty();
  return watched_ ? driver_.Happened(given_.front().start, &given_.front().reached) : Status::Ok();
}

void Outstanding::Free() {
  for (Given& given : given_) spare_.push_back(std::move(given));
  given_.clear();
  for (const Given& given : spare_) {
    for (void* event : {given.start, given.end}) {
      if (event != nullptr) driver_.call().destroy_event(event);
    }
  }
  spare_.clear();
}

}  // namespace hvd::nccl
