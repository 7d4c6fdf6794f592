// Defines what old glibcs lack. Only libraries of a release have these definitions, and they export none of them.
#include <sys/syscall.h>
#include <unistd.h>

struct stat;

extern "C" {

// True promises that the process has only one thread, so that counters need not be atomic. Before glibc 2.32, nothing
// can promise this.
char __libc_single_threaded = false;

// Functions since glibc 2.33. On the processors that opspan runs on, the kernel's struct is that of the C library.
int fstat(int file, struct stat* status) { return static_cast<int>(syscall(SYS_fstat, file, status)); }
int stat(const char* path, struct stat* status) {
  constexpr int kHere = -100;  // AT_FDCWD
  return static_cast<int>(syscall(SYS_newfstatat, kHere, path, status, 0));
}

}  // extern "C"
