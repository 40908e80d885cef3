#pragma once

#include "nccl/communicator.h"

namespace fake_gpu {

// The communicator of a handle for a call that it must be ready for; null with the result.
CommunicatorPtr Ready(const char* call, void* handle, int* result);
// Also one in progress or with an error.
CommunicatorPtr FindCommunicator(const char* call, void* handle, int* result);

// This thread's group. A call outside of one is a group of one.
void StartGroup();
int EndGroup();
bool IsInGroup();  // since the program's own ncclGroupStart
void AddToGroup(const CommunicatorPtr& communicator, Call call);
void AddInit(const CommunicatorPtr& communicator);
// An error of a call, which returns it. So does the end of the group, which then does nothing.
int FailGroup(int result);

}  // namespace fake_gpu
