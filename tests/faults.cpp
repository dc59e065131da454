// Loaded before a program's other libraries (LD_PRELOAD): the call of the C library that ATTEND_FAULT names fails with
// EIO the n-th time it is made, as in "fsync 0", or a signal comes just before it: "rename 0 15". A write counts where
// it is to a file. Where the clock is named, each reading is an hour after the last: everything takes long then, on any
// machine, and "clock_gettime 5 2" is a Ctrl-C after hours. tests/faults.py has it.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

std::atomic<long> calls{0};

// What follows the name of the call, if it is that one.
char* fault_of(const char* call) {
  char* fault = std::getenv("ATTEND_FAULT");
  const std::size_t length = std::strlen(call);
  return fault && std::strncmp(fault, call, length) == 0 && fault[length] == ' ' ? fault + length : nullptr;
}

bool fails(const char* call) {
  char* fault = fault_of(call);
  if (!fault || calls++ != std::strtol(fault, &fault, 10)) return false;
  const long signal = std::strtol(fault, nullptr, 10);
  if (signal != 0) return kill(getpid(), static_cast<int>(signal)) != 0;
  errno = EIO;
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (descriptor > 2 && fails("write")) return -1;
  return next<decltype(&write)>("write")(descriptor, bytes, count);
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
int clock_gettime(clockid_t clock, timespec* time) {
  static std::atomic<long> readings{0};
  if (!fault_of("clock_gettime")) return next<decltype(&clock_gettime)>("clock_gettime")(clock, time);
  if (fails("clock_gettime")) return -1;
  *time = {.tv_sec = 3600 * ++readings, .tv_nsec = 0};
  return 0;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (fails("pthread_create")) return EAGAIN;
  return next<decltype(&pthread_create)>("pthread_create")(thread, attributes, start, argument);
}
}
