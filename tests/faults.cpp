// Loaded before a program's other libraries (LD_PRELOAD): something happens at the n-th call (from 0) of the function
// that ATTEND_FAULT names, so that a test meets a program in the middle of what it does, wherever it likes, on any
// machine and however slowly that goes.
//   "fsync 0"            the call fails with EIO; where it is to make a thread, with EAGAIN
//   "rename 0 15"        signal 15 comes just before it
//   "pwrite 2 exit"      the process is gone there, without another word
//   "clock 5 hold 8 9"   the thread writes a byte to descriptor 8 there, and goes on when it has read one from 9
// A write counts where it is to a file. "clock" is std::chrono::steady_clock: where it is named, each reading is an
// hour after the last. tests/faults.py has this for Python, tests/fault.h for C++.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "tests/fault.h"

namespace {

bool fails(const char* function) {
  if (!attend::test::fails(function)) return false;
  errno = EIO;
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

// For a program that says itself when (tests/faults.py).
void attend_arm_fault(const char* text) {
  attend::test::arm_fault(text);
}
long attend_fault_calls() {
  return attend::test::fault_calls();
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (descriptor > 2 && fails("write")) return -1;
  return next<decltype(&write)>("write")(descriptor, bytes, count);
}
ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  return fails("pwrite") ? -1 : next<decltype(&pwrite)>("pwrite")(descriptor, bytes, count, offset);
}
int fsync(int descriptor) {
  return fails("fsync") ? -1 : next<decltype(&fsync)>("fsync")(descriptor);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return fails("linkat") ? -1 : next<decltype(&linkat)>("linkat")(from_folder, from, to_folder, to, flags);
}
int rename(const char* from, const char* to) {
  return fails("rename") ? -1 : next<decltype(&rename)>("rename")(from, to);
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);  // without O_CREAT or O_TMPFILE it is not looked at
  va_end(more);
  return fails("open") ? -1 : next<decltype(&open)>("open")(path, flags, mode);
}
int close(int descriptor) {
  return fails("close") ? -1 : next<decltype(&close)>("close")(descriptor);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (fails("pthread_create")) return EAGAIN;
  return next<decltype(&pthread_create)>("pthread_create")(thread, attributes, start, argument);
}
}
