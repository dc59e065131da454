#include "memory.h"

#include <fstream>
#include <string>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace attend::bench {

bool reset_peak_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);  // else a call could use what an earlier one freed, and look as if it needed nothing
#endif
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;  // 5 sets VmHWM back to what is in use now (man 5 proc)
  return file.good();
}

std::int64_t peak_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  }
  return -1;
}

}  // namespace attend::bench
