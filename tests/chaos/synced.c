/* Keeps a copy of every file as it was when it was last synced: what a power cut would leave.
 *
 *     cc -shared -fPIC -O2 -o synced.so synced.c -ldl
 *     SYNCED_ROOT=/data SYNCED_COPIES=/copies LD_PRELOAD=synced.so program
 *
 * After each fsync, fdatasync or msync of a file below SYNCED_ROOT its content goes to
 * SYNCED_COPIES/{inode}, whole or not at all, before the caller hears that it is synced. A file that
 * was never synced has no copy. An inode must not be used twice, which tmpfs promises.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *root, *copies;

__attribute__((constructor)) static void begin(void) {
    /* copies of them: a program that shows a title of its own writes it where they stand */
    if (getenv("SYNCED_ROOT") != NULL && getenv("SYNCED_COPIES") != NULL) {
        root = strdup(getenv("SYNCED_ROOT"));
        copies = strdup(getenv("SYNCED_COPIES"));
    }
}

static void check(int good, const char *what) {
    if (!good) { /* a copy that is missing would blame the product */
        perror(what);
        abort();
    }
}

static void copy(int from, int to, off_t size) {
    static const size_t part = 1 << 16;
    char *buffer = malloc(part);
    off_t at = 0, hole;
    check(buffer != NULL && ftruncate(to, size) == 0, "synced: size");
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        hole = lseek(from, at, SEEK_HOLE);
        while (at < hole) {
            size_t want = hole - at < (off_t)part ? (size_t)(hole - at) : part;
            ssize_t got = pread(from, buffer, want, at);
            check(got >= 0, "synced: read");
            if (got == 0)
                break;
            check(pwrite(to, buffer, got, at) == got, "synced: write");
            at += got;
        }
        at = hole;
    }
    free(buffer);
}

static void keep(const char *name) {
    char path[4096], draft[4096], place[4096];
    struct stat about;
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        length = snprintf(path, sizeof path, "%s", name);
    path[length] = 0;
    if (strncmp(path, root, strlen(root)) != 0)
        return;
    int from = open(name, O_RDONLY | O_CLOEXEC);
    if (from < 0 || fstat(from, &about) != 0 || !S_ISREG(about.st_mode)) {
        if (from >= 0)
            close(from);
        return;
    }
    snprintf(path, sizeof path, "%s/lock", copies);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    check(lock >= 0 && flock(lock, LOCK_EX) == 0, "synced: lock"); /* a later copy stays the later */
    check(fstat(from, &about) == 0, "synced: stat");
    snprintf(draft, sizeof draft, "%s/draft", copies);
    snprintf(place, sizeof place, "%s/%ju", copies, (uintmax_t)about.st_ino);
    int to = open(draft, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(to >= 0, "synced: draft");
    copy(from, to, about.st_size);
    check(rename(draft, place) == 0, "synced: rename");
    close(to);
    close(from);
    close(lock);
}

static void keep_open(int descriptor) {
    char name[64];
    int before = errno;
    if (root == NULL || copies == NULL)
        return;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    keep(name);
    errno = before;
}

static void keep_mapped(uintptr_t address) {
    char line[4400], path[4096];
    int before = errno;
    FILE *maps;
    if (root == NULL || copies == NULL)
        return;
    maps = fopen("/proc/self/maps", "re");
    check(maps != NULL, "synced: maps");
    while (fgets(line, sizeof line, maps) != NULL) {
        uintptr_t first, last;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &first, &last, path) == 3 &&
            first <= address && address < last) {
            keep(path);
            break;
        }
    }
    fclose(maps);
    errno = before;
}

int fsync(int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int result = real(descriptor);
    if (result == 0)
        keep_open(descriptor);
    return result;
}

int fdatasync(int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int result = real(descriptor);
    if (result == 0)
        keep_open(descriptor);
    return result;
}

int msync(void *address, size_t length, int flags) {
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    int result = real(address, length, flags);
    if (result == 0 && (flags & MS_SYNC))
        keep_mapped((uintptr_t)address);
    return result;
}
