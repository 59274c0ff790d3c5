/* A clock of the day that a test sets, for one process and its threads.
 *
 *     cc -shared -fPIC -O2 -o clock.so clock.c -ldl
 *     CLOCK_FILE=/tmp/clock LD_PRELOAD=clock.so program
 *
 * CLOCK_FILE holds two numbers of 64 bits, microseconds: the time since 1970, or 0 for the machine's
 * own; and what is added to the machine's own. They may change at any time. Clocks that no one can
 * set (CLOCK_MONOTONIC) stay as they are, so that timers of the process go on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *set;
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CLOCK_FILE");
    void *found;
    int file;
    real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (name == NULL)
        return;
    file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) { /* a clock that is not set would blame the product */
        perror("clock: open");
        abort();
    }
    found = mmap(NULL, 2 * sizeof *set, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED) {
        perror("clock: mmap");
        abort();
    }
    set = found;
}

static int64_t microseconds(void) {
    struct timespec now;
    if (set != NULL && set[0] != 0)
        return set[0];
    real_clock(CLOCK_REALTIME, &now);
    return now.tv_sec * (int64_t)1000000 + now.tv_nsec / 1000 + (set != NULL ? set[1] : 0);
}

int clock_gettime(clockid_t which, struct timespec *to) {
    if (set == NULL || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) {
        if (real_clock == NULL) /* asked by another library's constructor */
            real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        return real_clock(which, to);
    }
    int64_t now = microseconds();
    to->tv_sec = now / 1000000;
    to->tv_nsec = now % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    (void)zone;
    int64_t now = microseconds();
    to->tv_sec = now / 1000000;
    to->tv_usec = now % 1000000;
    return 0;
}

time_t time(time_t *to) {
    time_t now = microseconds() / 1000000;
    if (to != NULL)
        *to = now;
    return now;
}
