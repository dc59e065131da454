// Loaded before the command's other libraries (LD_PRELOAD): the call of the C library that ATTEND_FAULT names fails
// with EIO, the n-th time it is made: "fsync 0"; "SIGTERM 0" comes when a file is about to be renamed. A write counts
// where it is to a file. tests/cli/test_faults.py has it.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<long> calls{0};

bool fails(const char* call) {
  const char* fault = std::getenv("ATTEND_FAULT");
  const std::size_t length = std::strlen(call);
  if (!fault || std::strncmp(fault, call, length) != 0 || fault[length] != ' ') return false;
  if (calls++ != std::strtol(fault + length, nullptr, 10)) return false;
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
  if (fails("SIGTERM")) kill(getpid(), SIGTERM);
  return fails("rename") ? -1 : next<decltype(&rename)>("rename")(from, to);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (fails("pthread_create")) return EAGAIN;
  return next<decltype(&pthread_create)>("pthread_create")(thread, attributes, start, argument);
}
}
