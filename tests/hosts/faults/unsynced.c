/* What was there before each write, until that is synced: preloaded into the processes of a host.
 *
 * For each file below $UNSYNCED_ROOT that is written, <UNSYNCED_LOG>/<inode> has records, in the machine's byte order:
 *     kind u8 | offset u64 | length u64 | size u64 | count u64 | count bytes
 * UNDO comes before a write or truncation: `size` of the file then, and the bytes of what will be overwritten.
 * KEEP comes after a write that was synchronous: what it wrote is on the disk.
 * SYNC comes after a sync: records before `offset` in this log are of no account. All of them: the log is empty instead.
 * A sync takes $UNSYNCED_MICROSECONDS longer, if that is set: memory is faster than disks are.
 * While the first byte of the file $UNSYNCED_STALL is not zero, no sync ends: the disk stalls.
 * Processes may be killed anywhere: what was not told to be synced counts as unsynced. Names are as they are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { UNDO = 1, KEEP, SYNC };
#define FILES_MAX 4096
#define HEAD 33

static char root[PATH_MAX], logs[PATH_MAX];
static useconds_t disk_microseconds;
static const volatile char *stall;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int is_ours, is_synced, log, reader; } files[FILES_MAX];

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("UNSYNCED_LOG"), *data = getenv("UNSYNCED_ROOT");
    if (!folder || !data) return;
    snprintf(logs, sizeof logs, "%s", folder);
    snprintf(root, sizeof root, "%s", data);
    const char *microseconds = getenv("UNSYNCED_MICROSECONDS");
    if (microseconds) disk_microseconds = (useconds_t)atoi(microseconds);
    const char *stalling = getenv("UNSYNCED_STALL");
    if (!stalling) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, stalling, O_RDONLY | O_CLOEXEC);
    if (file < 0) abort();
    stall = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (stall == MAP_FAILED) abort();
    syscall(SYS_close, file);
}

static void wait_for_disk(void) {
    if (disk_microseconds) usleep(disk_microseconds);
    while (stall && *stall) usleep(1000);
}

static int is_below_root(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t wanted = strlen(root);
    return length > (ssize_t)wanted && !memcmp(path, root, wanted) && path[wanted] == '/';
}

static uint64_t size_of(int file) {
    struct stat stats;
    if (fstat(file, &stats)) abort();
    return (uint64_t)stats.st_size;
}

static void put(int log, int kind, uint64_t offset, uint64_t length, uint64_t size, const void *bytes, uint64_t count) {
    uint8_t head[HEAD];
    uint64_t numbers[4] = {offset, length, size, count};
    head[0] = (uint8_t)kind;
    memcpy(head + 1, numbers, sizeof numbers);
    struct iovec parts[2] = {{head, HEAD}, {(void *)bytes, count}};
    uint64_t before = size_of(log);
    long written = syscall(SYS_writev, log, parts, 2);
    if (written == (long)(HEAD + count)) return;
    /* Where the size of files is limited, what follows is not written either. A process that cannot tell ends. */
    if ((written < 0 && errno != EFBIG) || kind != UNDO || syscall(SYS_ftruncate, log, before)) abort();
}

static void opened(int file, int flags) {
    char path[PATH_MAX + 32];
    if (file < 0 || file >= FILES_MAX) return;
    files[file].is_ours = 0;
    if (!root[0] || !is_below_root(file)) return;  /* those that are only read, too: they may be synced */
    struct stat stats;
    if (fstat(file, &stats) || !S_ISREG(stats.st_mode)) return;
    snprintf(path, sizeof path, "%s/%lu", logs, (unsigned long)stats.st_ino);
    int log = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int reader = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (log < 0 || reader < 0) abort();
    if (!stats.st_size && flags & O_CREAT && syscall(SYS_ftruncate, log, 0)) abort();  /* perhaps another file's inode */
    files[file].log = log;
    files[file].reader = reader;
    files[file].is_synced = (flags & O_DSYNC) != 0;
    files[file].is_ours = 1;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

static int open_any(int folder, const char *name, int flags, mode_t mode) {
    int file = (int)syscall(SYS_openat, folder, name, flags, mode);
    int kept = errno;
    opened(file, flags);
    errno = kept;
    return file;
}

int open(const char *name, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags) return open_any(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return open_any(folder, name, flags, mode); }

int close(int file) {
    if (file >= 0 && file < FILES_MAX && files[file].is_ours) {
        files[file].is_ours = 0;
        syscall(SYS_close, files[file].log);
        syscall(SYS_close, files[file].reader);
    }
    return (int)syscall(SYS_close, file);
}

static int ours(int file) { return file >= 0 && file < FILES_MAX && files[file].is_ours; }

/* Note what is at a place now. Returns how long the log was before. */
static uint64_t undo(int file, uint64_t offset, uint64_t length) {
    uint64_t size = size_of(file), count = offset >= size ? 0 : length < size - offset ? length : size - offset;
    char *bytes = malloc(count + 1);
    if (!bytes) abort();
    pthread_mutex_lock(&lock);
    uint64_t before = size_of(files[file].log);
    if (count && syscall(SYS_pread64, files[file].reader, bytes, count, offset) != (long)count) abort();
    put(files[file].log, UNDO, offset, length, size, bytes, count);
    pthread_mutex_unlock(&lock);
    free(bytes);
    return before;
}

static void keep(int file, uint64_t offset, uint64_t length, uint64_t before) {
    pthread_mutex_lock(&lock);
    if (before || syscall(SYS_ftruncate, files[file].log, 0)) put(files[file].log, KEEP, offset, length, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
}

static ssize_t write_parts(int file, const struct iovec *parts, int count, off_t offset) {
    uint64_t length = 0, before = 0;
    off_t place = offset;
    int is_ours = ours(file);
    if (is_ours) {
        for (int i = 0; i < count; i++) length += parts[i].iov_len;
        if (offset < 0) place = lseek(file, 0, SEEK_CUR);
        before = undo(file, (uint64_t)place, length);
    }
    ssize_t written = offset < 0 ? syscall(SYS_writev, file, parts, count)
                                 : syscall(SYS_pwritev, file, parts, count, offset, 0);
    int kept = errno;
    if (is_ours && files[file].is_synced && written > 0) {
        wait_for_disk();
        keep(file, (uint64_t)place, (uint64_t)written, before);
    }
    errno = kept;
    return written;
}

ssize_t write(int file, const void *bytes, size_t count) {
    if (!ours(file)) return syscall(SYS_write, file, bytes, count);
    struct iovec part = {(void *)bytes, count};
    return write_parts(file, &part, 1, -1);
}
ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    struct iovec part = {(void *)bytes, count};
    return write_parts(file, &part, 1, offset);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) { return pwrite(file, bytes, count, offset); }
ssize_t writev(int file, const struct iovec *parts, int count) { return write_parts(file, parts, count, -1); }
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) { return write_parts(file, parts, count, offset); }
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t offset) { return write_parts(file, parts, count, offset); }

int ftruncate(int file, off_t size) {
    if (ours(file)) {
        uint64_t now = size_of(file);
        undo(file, (uint64_t)size, now > (uint64_t)size ? now - (uint64_t)size : 0);
    }
    return (int)syscall(SYS_ftruncate, file, size);
}
int ftruncate64(int file, off_t size) { return ftruncate(file, size); }

int fallocate(int file, int mode, off_t offset, off_t length) {
    if (ours(file)) undo(file, (uint64_t)offset, mode & 2 /* FALLOC_FL_PUNCH_HOLE */ ? (uint64_t)length : 0);
    return (int)syscall(SYS_fallocate, file, mode, offset, length);
}
int fallocate64(int file, int mode, off64_t offset, off64_t length) { return fallocate(file, mode, offset, length); }
int posix_fallocate(int file, off_t offset, off_t length) { return fallocate(file, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int file, off64_t offset, off64_t length) { return posix_fallocate(file, offset, length); }

static int sync_file(int file, long call) {
    uint64_t before = ours(file) ? size_of(files[file].log) : 0;
    if (before) wait_for_disk();
    int result = (int)syscall(call, file), kept = errno;
    if (!result && before) {
        pthread_mutex_lock(&lock);
        if (size_of(files[file].log) != before || syscall(SYS_ftruncate, files[file].log, 0))
            put(files[file].log, SYNC, before, 0, 0, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    errno = kept;
    return result;
}
int fsync(int file) { return sync_file(file, SYS_fsync); }
int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }
