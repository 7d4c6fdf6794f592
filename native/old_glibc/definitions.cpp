// Defines symbols that old releases of glibc lack. Only the libraries in opspan's wheels have these definitions, and do
// not export them.
#include <sys/syscall.h>
#include <unistd.h>

struct stat;

extern "C" {

// True promises that the process has only one thread, so that counters need not be atomic. Before glibc 2.32, nothing
// can promise this.
char __libc_single_threaded = false;

// glibc exports these functions since 2.33. On the processors that opspan runs on, the kernel and the C library have
// the same `struct stat`.
int fstat(int file, struct stat* status) { return static_cast<int>(syscall(SYS_fstat, file, status)); }
int stat(const char* path, struct stat* status) {
  constexpr int kHere = -100;  // AT_FDCWD
  return static_cast<int>(syscall(SYS_newfstatat, kHere, path, status, 0));
}

}  // extern "C"
