// What `attend --diagnose` prints: what a report of a fault should say of the machine and the build.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "attend/attention.h"
#include "attend/error.h"
#include "attend/pages.h"
#include "attend/threads.h"
#include "attend/version.h"
#include "cli/command.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

namespace attend::cli {
namespace {

// The value of the first line that begins with this key, without its quotes; empty: there is none.
std::string value_in(const char* file, std::string_view key, char separator) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find(separator);
    if (end == std::string::npos || !line.starts_with(key)) continue;
    const std::size_t first = line.find_first_not_of(" \t\"", end + 1), last = line.find_last_not_of(" \t\"");
    return first == std::string::npos ? "" : line.substr(first, last + 1 - first);
  }
  return "";
}

std::string compiler() {
#ifdef __clang__
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string c_library() {
#ifdef __GLIBC__
  return fmt::format("glibc {}", gnu_get_libc_version());
#else
  return "musl or another C library";
#endif
}

std::string build() {
#ifdef __OPTIMIZE__
  const char* optimized = "optimized";
#else
  const char* optimized = "not optimized";
#endif
  return fmt::format("{}, {}, {} pages that compute", compiler(), optimized, pages_note().empty() ? "with" : "without");
}

std::string kernels() {
  try {
    const std::string target = plan({1, 1, 1, 16}, {1, 1, 1, 16}, {1, 1, 1, 16}, DType::f32).target;
    return target + (environment("ATTEND_TARGET").empty() ? ", the fastest that this processor runs"
                                                          : ", as ATTEND_TARGET says");
  } catch (const Error& error) {
    return error.what();
  }
}

std::string processor(const utsname& system) {
  std::string name = value_in("/proc/cpuinfo", "model name", ':');
  if (name.empty())
    name = "implementer and part " + value_in("/proc/cpuinfo", "CPU implementer", ':') + " " +
           value_in("/proc/cpuinfo", "CPU part", ':');
  return fmt::format("{}, {}", name, system.machine);
}

std::string system_name(const utsname& system) {
  const std::string name = value_in("/etc/os-release", "PRETTY_NAME", '=');
  return fmt::format("{}, {} {}, {}", name.empty() ? "no /etc/os-release" : name, system.sysname, system.release,
                     c_library());
}

}  // namespace

std::string diagnosis() {
  utsname system{};
  uname(&system);
  std::string text = "attend " ATTEND_VERSION_STRING "\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<12}{}\n", name, value);
  };
  line("build", build());
  line("kernels", kernels());
  line("processor", processor(system));
  line("threads", fmt::format("{} of {} processors", num_threads(), sysconf(_SC_NPROCESSORS_ONLN)));
  line("memory", bytes(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)));
  line("system", system_name(system));
  return printable_lines(text);
}

}  // namespace attend::cli
