// Ranges from several threads, and trouble in the middle, by the first argument:
//
//   threads N M    N threads, M nested pairs of ranges each, one range a thread handed to the next thread to end
//   kill N         N ranges, one more left open, then SIGKILL
//   fork           a range, fork, ranges on both sides, and a fork of the fork
//   fork-silent    a child that only ends what its parent began
//   fill N LENGTH  N ranges with names of their own, LENGTH characters each; prints how many were pushed
//   daemon N FILE  N ranges, all descriptors closed, FILE opened (it gets the number), N more, "mine" written to FILE
//   unended N      N pushes without a pop, then N pops
//   short-threads N  as many threads one after the other, of two ranges each
//   open-names N   as many distinct names as N, twice over
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int pairs;
static pthread_barrier_t barrier;
static nvtxRangeId_t handed[64];
static int thread_count;

static void* briefly(void* unused) {
  nvtxRangePushA("outer");
  nvtxRangePushA("inner");
  nvtxRangePop();
  nvtxRangePop();
  return unused;
}

static void* work(void* argument) {
  int number = (int)(intptr_t)argument;
  char name[32];
  snprintf(name, sizeof(name), "handed %d", number);
  handed[number] = nvtxRangeStartA(name);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < pairs; ++i) {
    snprintf(name, sizeof(name), "outer %d", i % 100);
    nvtxRangePushA(name);
    nvtxRangePushA("inner");
    nvtxRangePop();
    nvtxRangePop();
  }
  nvtxRangeEnd(handed[(number + 1) % thread_count]);
  return NULL;
}

static void threads(int count, int pair_count) {
  pthread_t all[64];
  pairs = pair_count;
  thread_count = count;
  pthread_barrier_init(&barrier, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) pthread_create(&all[i], NULL, work, (void*)(intptr_t)i);
  for (int i = 0; i < count; ++i) pthread_join(all[i], NULL);
}

static void child(const char* name, int grandchild) {
  nvtxRangePop();  // the parent's: not to be ended here
  nvtxRangePushA(name);
  if (grandchild && fork() == 0) child("grandchild", 0);
  nvtxRangePop();
  if (grandchild) wait(NULL);
  _exit(0);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  int count = argc > 2 ? atoi(argv[2]) : 0;
  if (strcmp(what, "threads") == 0) {
    threads(count, atoi(argv[3]));
  } else if (strcmp(what, "kill") == 0) {
    for (int i = 0; i < count; ++i) {
      nvtxRangePushA("done");
      nvtxRangePop();
    }
    nvtxRangePushA("open");
    kill(getpid(), SIGKILL);
  } else if (strcmp(what, "fork") == 0) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("shared");
    nvtxDomainNameCategoryA(domain, 5, "five");
    nvtxStringHandle_t registered = nvtxDomainRegisterStringA(domain, "registered");
    nvtxEventAttributes_t event = {0};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = registered;
    nvtxDomainMarkEx(domain, &event);
    nvtxRangePushA("parent");
    if (fork() == 0) {
      nvtxDomainMarkEx(domain, &event);
      child("child", 1);
    }
    nvtxRangePushA("beside");
    wait(NULL);
    nvtxRangePop();
    nvtxRangePop();
  } else if (strcmp(what, "fork-silent") == 0) {
    nvtxRangePushA("parent");
    if (fork() == 0) {
      nvtxRangePop();
      _exit(0);
    }
    wait(NULL);
    nvtxRangePop();
  } else if (strcmp(what, "fill") == 0) {
    size_t length = (size_t)atoi(argv[3]);
    char* name = malloc(length + 1);
    memset(name, 'n', length);
    name[length] = 0;
    nvtxRangePushA("around");
    for (int i = 0; i < count; ++i) {
      name[snprintf(name, length, "%d", i)] = '-';
      nvtxRangePushA(name);
      nvtxRangePop();
    }
    nvtxRangePop();
    printf("%d\n", count);
  } else if (strcmp(what, "daemon") == 0) {
    int file = 0;
    for (int i = 0; i < 2 * count; ++i) {
      if (i == count) {
        for (int fd = 3; fd < 100; ++fd) close(fd);
        for (int k = 0; k < 20; ++k) file = open(argv[3], O_RDWR | O_CREAT, 0600);
      }
      nvtxRangePushA("daemon");
      nvtxRangePop();
    }
    if (write(file, "mine", 4) != 4) return 1;
  } else if (strcmp(what, "unended") == 0) {
    int level = 0;
    for (int i = 0; i < count; ++i) level = nvtxRangePushA("unended");
    printf("%d\n", level);
    for (int i = 0; i < count; ++i) level = nvtxRangePop();
    printf("%d\n", level);
    printf("%d\n", nvtxRangePop());
  } else if (strcmp(what, "short-threads") == 0) {
    pthread_t thread;
    for (int i = 0; i < count; ++i) {
      if (pthread_create(&thread, NULL, briefly, NULL)) return 2;
      pthread_join(thread, NULL);
    }
  } else if (strcmp(what, "open-names") == 0) {
    char name[32];
    for (int i = 0; i < 2 * count; ++i) {
      snprintf(name, sizeof(name), "name %d", i % count);
      nvtxRangePushA(name);
      nvtxRangePop();
    }
  } else {
    return 2;
  }
  return 0;
}
