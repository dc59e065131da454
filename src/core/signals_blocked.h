// A stretch of code in which no signal from outside ends the process.
#pragma once

#include <pthread.h>

#include <csignal>

namespace attend::inline v1 {

// The calling thread takes no signal but those of its own faults, and a profiler's; nor does a thread that it starts
// meanwhile, which keeps that for life. A signal to the process goes to another thread, or waits.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int taken : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) sigdelset(&blocked, taken);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace attend::inline v1
