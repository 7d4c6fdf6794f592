#include "capture/startup.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

namespace opspan::capture {
namespace {

// Environment variables of torchrun, MPI's launchers and Slurm. src/opspan/tables/told.py says what each of them means.
constexpr std::string_view kRankVariables[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "TORCHELASTIC_RUN_ID",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_NAMESPACE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
};

}  // namespace

void read_command_line(char* out, size_t size) {
  int fd = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  size_t used = 0;
  while (used < size - 2) {
    ssize_t count = read(fd, out + used, size - 2 - used);
    if (count <= 0) break;
    used += static_cast<size_t>(count);
  }
  ::close(fd);
}

// Reads the environment as it was at the start of the process, because getenv is not safe while another thread of the
// program calls setenv.
void read_environment(char* out, size_t size) {
  constexpr size_t kMost = size_t{4} << 20;
  int fd = ::open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  std::string all;
  char part[4096];
  for (ssize_t count; all.size() < kMost && (count = read(fd, part, sizeof(part))) > 0;) {
    all.append(part, static_cast<size_t>(count));
  }
  ::close(fd);
  size_t used = 0;
  for (size_t at = 0, end; at < all.size() && (end = all.find('\0', at)) != std::string::npos; at = end + 1) {
    std::string_view entry = std::string_view(all).substr(at, end - at);
    std::string_view name = entry.substr(0, entry.find('='));
    if (std::find(std::begin(kRankVariables), std::end(kRankVariables), name) == std::end(kRankVariables)) continue;
    if (used + entry.size() + 2 > size) continue;
    std::memcpy(out + used, entry.data(), entry.size());
    used += entry.size() + 1;
  }
}

}  // namespace opspan::capture
