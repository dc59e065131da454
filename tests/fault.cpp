#include "tests/fault.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <sstream>

namespace attend::test {

namespace {

struct Fault {
  std::string function, then;
  std::int64_t n = -1;
  int here = -1, go = -1;
  std::atomic<std::int64_t> calls{0};
  const Fault* before = nullptr;  // a thread may still look at it

  explicit Fault(const std::string& text) {
    std::istringstream words(text);
    words >> function >> n >> then >> here >> go;
  }
};

std::atomic<Fault*> armed{nullptr};

Fault* fault() {
  static const bool read = [] {
    const char* text = std::getenv("ATTEND_FAULT");
    if (text && !armed) arm_fault(text);
    return true;
  }();
  return read ? armed.load() : nullptr;
}

// A signal may come meanwhile; whoever was to let it go may be gone.
void wait_at(const Fault& fault) {
  char byte = 0;
  while (write(fault.here, &byte, 1) < 0 && errno == EINTR) continue;
  while (read(fault.go, &byte, 1) < 0 && errno == EINTR) continue;
}

}  // namespace

void arm_fault(const std::string& text) {
  auto* next = new Fault(text);
  next->before = armed;
  armed = next;
}

std::int64_t fault_calls() {
  const Fault* now = fault();
  return now ? now->calls.load() : 0;
}

bool fails(std::string_view function) {
  Fault* now = fault();
  if (!now || now->function != function || now->calls++ != now->n) return false;
  if (now->then.empty()) return true;
  if (now->then == "exit")
    _exit(3);
  else if (now->then == "hold")
    wait_at(*now);
  else
    (void)kill(getpid(), static_cast<int>(std::strtol(now->then.c_str(), nullptr, 10)));
  return false;
}

}  // namespace attend::test

// std::chrono::steady_clock::now(), in libstdc++'s place and under its name there. Python reads the system's clock
// itself, and is left alone. Whoever waits until a time that it had here waits for hours: when the race is over the
// clock is right again.
std::chrono::steady_clock::time_point now_here() noexcept asm("_ZNSt6chrono3_V212steady_clock3nowEv");
std::chrono::steady_clock::time_point now_here() noexcept {
  static std::atomic<std::int64_t> hours{0};
  const attend::test::Fault* fault = attend::test::fault();
  const bool races = fault && fault->function == "clock";
  if (races) (void)attend::test::fails("clock");
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const auto now = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  return std::chrono::steady_clock::time_point(now + std::chrono::hours(races ? ++hours : 0));
}
