#pragma once

#include "negotiate/message.h"
#include "target.h"

namespace hvd::fuzz {

// Messages as the input says: every value that the format can carry, the few names and shapes that
// make ranks meet more often than others.
negotiate::Request AnyRequest(Input* input);
negotiate::Announcement AnyAnnouncement(Input* input);
// How many operations it may be.
uint32_t AnyRun(Input* input, const negotiate::Announcement& announcement);
negotiate::AnnounceMessage AnyAnnouncements(Input* input);
negotiate::Response AnyResponse(Input* input);

bool Same(const negotiate::AnnounceMessage& a, const negotiate::AnnounceMessage& b);
bool Same(const negotiate::Response& a, const negotiate::Response& b);

}  // namespace hvd::fuzz
