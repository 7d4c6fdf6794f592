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

std::string read_some(int fd, size_t most) {
  std::string all;
  char part[4096];
  while (all.size() < most) {
    ssize_t count = read(fd, part, std::min(sizeof(part), most - all.size()));
    if (count <= 0) break;
    all.append(part, static_cast<size_t>(count));
  }
  return all;
}

std::string read_start(const std::string& path, size_t most) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text = read_some(fd, most);
  ::close(fd);
  return text;
}

void read_command_line(char* out, size_t size) {
  std::string text = read_start("/proc/self/cmdline", size - 2);
  std::memcpy(out, text.data(), text.size());
}

std::string environment_at_start() { return read_start("/proc/self/environ", size_t{4} << 20); }

size_t copy_rank(std::string_view variables, char* out, size_t size) {
  size_t used = 0;
  for (size_t at = 0, end; (end = variables.find('\0', at)) != std::string_view::npos; at = end + 1) {
    std::string_view entry = variables.substr(at, end - at);
    std::string_view name = entry.substr(0, entry.find('='));
    if (std::find(std::begin(kRankVariables), std::end(kRankVariables), name) == std::end(kRankVariables)) continue;
    if (used + entry.size() + 2 > size) continue;
    std::memcpy(out + used, entry.data(), entry.size());
    used += entry.size() + 1;
  }
  return used;
}

}  // namespace opspan::capture
