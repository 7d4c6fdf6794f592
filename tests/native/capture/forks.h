// Forks of a stress program.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

// A sanitizer's own run-time library does not survive a fork while other threads allocate.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif

// Whether a fork finds `work` good.
template <class Work>
bool good_in_fork(const Work& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
