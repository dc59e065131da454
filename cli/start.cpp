// What both programs, attend and attend-mpi, begin with. Data goes to standard output, all else to standard error.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <new>

#include "attend/error.h"
#include "cli/command.h"
#include "cli/ranks.h"

namespace attend::cli {
namespace {

// `attend explain | head` ends quietly, even where the parent process has SIGPIPE ignored or blocked.
void restore_sigpipe() {
  (void)std::signal(SIGPIPE, SIG_DFL);  // it fails for numbers of no signal
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigprocmask(SIG_UNBLOCK, &pipe, nullptr);
}

// A stream that the parent process closed leaves its number to the next file that is opened, into which messages would
// then go. Opened the wrong way round, it is taken, and using it still fails.
void keep_stream_numbers() {
  for (const int number : {0, 1, 2}) {
    if (fcntl(number, F_GETFD) == -1) open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): of what is thrown, no memory for the last message is left
int start(int argc, char** argv) {
  keep_stream_numbers();
  restore_sigpipe();
  remember_line(argv);
  const auto status = [&] {
    try {
      return run_line(argc, argv);
    } catch (const SaidElsewhere& failure) {
      return failure.status;
    } catch (const Error& error) {
      return complain(error.code() == ErrorCode::bad_file ? Status::bad_file : Status::failed, error.what());
    } catch (const std::bad_alloc&) {
      return complain(Status::failed, "out of memory");
    } catch (const std::exception& error) {
      return complain(Status::failed, error.what());
    }
  };
  return static_cast<int>(status());
}

}  // namespace attend::cli
