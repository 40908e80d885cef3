#pragma once

// What a test asks the fake driver, besides the functions that every driver has.

#include <cstddef>

extern "C" {

// One line per call of either library since the last fake_gpu_forget(): its name and the arguments
// that matter. Valid until this thread asks again.
const char* fake_gpu_calls();

// Empties the list, mends devices that an error has broken, starts the counts of calls that fail
// anew, and reads the environment again.
void fake_gpu_forget();

// How many objects the program still holds, with their names in `text`: device memory, streams,
// events, retained contexts, communicators, registrations and reduce ops.
int fake_gpu_leaks(char* text, size_t bytes);

// A kernel of so many microseconds of simulated time. Streams have a clock each, which nothing but
// kernels and collectives (FAKE_NCCL_US) moves on; a stream that waits for an event takes its time.
void fake_gpu_compute(void* stream, long long microseconds);

// The simulated time, in microseconds, when a stream has done all that it was given so far; waits
// for that.
long long fake_gpu_time(void* stream);

// What cuStreamIsCapturing says of every stream: 0 no, 1 yes, 2 invalidated.
void fake_gpu_capture(int status);

// As if the program began to capture this stream, or ended that: meanwhile it is an error to put
// work on the stream, or to have it wait for an event.
void fake_gpu_capture_stream(void* stream, int captures);

}  // extern "C"
