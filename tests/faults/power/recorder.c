/* What processes write to the files below a folder, and what of it they have had synced: preloaded into them, it writes
 * a log of each process, <POWER_LOG>/<pid>, which recording.py reads. Nothing is changed on the way.
 *
 * A record, in the machine's byte order:
 *     kind u8 | is_synced u8 | start_ns u64 | end_ns u64 | file u64 (inode) | offset u64 | length u64 | length bytes
 *
 * `start_ns` and `end_ns` are CLOCK_MONOTONIC around the call. `is_synced`: the file was opened with O_DSYNC or O_SYNC.
 * The bytes are what was written, or a path, or two with a zero between. The offset of a new folder is 1.
 *
 * A file <POWER_LOG>/kill-<pid> ends the process before its next call that is recorded. With "unsynced" in it, the
 * process ends in its next synchronous write to an LMDB file: the bytes are in the page cache, and not on the disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, REMOVE, PUNCH };

#define FILES_MAX 4096

static char root[PATH_MAX], log_folder[PATH_MAX], kill_path[PATH_MAX];
static int log_file = -1;
static pid_t log_pid;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t inode; int is_synced; char is_ours; } files[FILES_MAX];

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POWER_LOG"), *data = getenv("POWER_ROOT");
    if (folder && data) {
        snprintf(log_folder, sizeof log_folder, "%s", folder);
        snprintf(root, sizeof root, "%s", data);
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void put(const void *bytes, size_t count) {
    const char *at = bytes;
    while (count) {
        long written = syscall(SYS_write, log_file, at, count);
        if (written < 0 && errno != EINTR) abort();
        if (written > 0) { at += written; count -= (size_t)written; }
    }
}

static void note(int kind, int is_synced, uint64_t start, uint64_t inode, uint64_t offset, const struct iovec *parts,
                 int count) {
    uint64_t end = now(), length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    uint8_t head[42];
    head[0] = (uint8_t)kind;
    head[1] = (uint8_t)is_synced;
    uint64_t numbers[5] = {start, end, inode, offset, length};
    memcpy(head + 2, numbers, sizeof numbers);
    int kept = errno;
    pthread_mutex_lock(&lock);
    if (log_file < 0 || log_pid != getpid()) {
        char path[PATH_MAX + 32];
        log_pid = getpid();
        snprintf(path, sizeof path, "%s/%d", log_folder, log_pid);
        log_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log_file < 0) abort();
    }
    put(head, sizeof head);
    for (int i = 0; i < count; i++) put(parts[i].iov_base, parts[i].iov_len);
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static void note_text(int kind, uint64_t start, uint64_t inode, const char *text, size_t length) {
    struct iovec part = {(void *)text, length};
    note(kind, 0, start, inode, 0, &part, 1);
}

/* The absolute path of a name, if it is one of the recorded files. */
static int is_recorded(int folder, const char *name, char *path) {
    if (!root[0]) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char link[64], base[PATH_MAX - 300];
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
        snprintf(path, PATH_MAX, "%s/%s", base, name);
    }
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static char wanted_end(void) {
    snprintf(kill_path, sizeof kill_path - 1, "%.*s/kill-%d", 4000, log_folder, getpid());
    int asked = (int)syscall(SYS_openat, AT_FDCWD, kill_path, O_RDONLY | O_CLOEXEC);
    if (asked < 0) return 0;
    char how = 'n';
    if (syscall(SYS_read, asked, &how, 1) < 0) abort();
    syscall(SYS_close, asked);
    return how;
}

static void end_if_asked(void) {
    int kept = errno;
    if (wanted_end() == 'n') kill(getpid(), SIGKILL);
    errno = kept;
}

static void opened(int file, int folder, const char *name, int flags, int was_there, uint64_t start) {
    char path[PATH_MAX];
    if (file < 0 || file >= FILES_MAX) return;
    files[file].is_ours = 0;
    if (!is_recorded(folder, name, path)) return;
    struct stat stats;
    if (fstat(file, &stats)) return;
    files[file].is_ours = 1;
    files[file].inode = stats.st_ino;
    files[file].is_synced = (flags & O_DSYNC) != 0;
    if (!was_there) note_text(CREATE, start, stats.st_ino, path, strlen(path));
    if (was_there && flags & O_TRUNC) note(TRUNCATE, 0, start, stats.st_ino, 0, NULL, 0);
}

static int open_any(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int is_ours = is_recorded(folder, name, path);
    struct stat stats;
    int was_there = !is_ours || !stat(path, &stats);
    if (is_ours) end_if_asked();
    uint64_t start = now();
    int file = (int)syscall(SYS_openat, folder, name, flags, mode);
    opened(file, folder, name, flags, was_there, start);
    return file;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *name, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags) return open_any(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return open_any(folder, name, flags, mode); }

int close(int file) {
    REAL(int, "close", int);
    if (file >= 0 && file < FILES_MAX) files[file].is_ours = 0;
    return real(file);
}

static int ours(int file) { return file >= 0 && file < FILES_MAX && files[file].is_ours; }

static ssize_t write_parts(int file, const struct iovec *parts, int count, off_t offset) {
    if (!ours(file)) return offset < 0 ? syscall(SYS_writev, file, parts, count)
                                       : syscall(SYS_pwritev, file, parts, count, offset, 0);
    end_if_asked();
    int is_synced = files[file].is_synced;
    uint64_t start = now();
    off_t place = offset < 0 ? lseek(file, 0, SEEK_CUR) : offset;
    if (is_synced && wanted_end() == 'u') {
        char link[64], name[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t length = readlink(link, name, sizeof name - 1);
        if (length > 4 && !memcmp(name + length - 4, ".mdb", 4)) {
            name[length] = 0;
            int other = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY);
            if (other < 0 || syscall(SYS_pwritev, other, parts, count, place, 0) < 0) abort();
            note(WRITE, 0, start, files[file].inode, (uint64_t)place, parts, count);
            kill(getpid(), SIGKILL);
        }
    }
    ssize_t written = offset < 0 ? syscall(SYS_writev, file, parts, count)
                                 : syscall(SYS_pwritev, file, parts, count, offset, 0);
    if (written > 0) {
        struct iovec done[count];
        int used = 0;
        for (ssize_t left = written; left > 0 && used < count; used++) {
            done[used] = parts[used];
            if ((ssize_t)done[used].iov_len > left) done[used].iov_len = (size_t)left;
            left -= (ssize_t)done[used].iov_len;
        }
        note(WRITE, is_synced, start, files[file].inode, (uint64_t)place, done, used);
    }
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
    if (ours(file)) end_if_asked();
    uint64_t start = now();
    int result = (int)syscall(SYS_ftruncate, file, size);
    if (!result && ours(file)) note(TRUNCATE, 0, start, files[file].inode, (uint64_t)size, NULL, 0);
    return result;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int fallocate(int file, int mode, off_t offset, off_t length) {
    if (ours(file)) end_if_asked();
    uint64_t start = now();
    int result = (int)syscall(SYS_fallocate, file, mode, offset, length);
    if (!result && ours(file) && mode & 2 /* FALLOC_FL_PUNCH_HOLE */) {
        uint64_t size = (uint64_t)length;
        struct iovec part = {&size, sizeof size};
        note(PUNCH, 0, start, files[file].inode, (uint64_t)offset, &part, 1);
    }
    return result;
}
int fallocate64(int file, int mode, off64_t offset, off64_t length) { return fallocate(file, mode, offset, length); }

static int sync_file(int file, long call) {
    if (ours(file)) end_if_asked();
    uint64_t start = now();
    int result = (int)syscall(call, file);
    if (!result && ours(file)) note(SYNC, 0, start, files[file].inode, 0, NULL, 0);
    return result;
}
int fsync(int file) { return sync_file(file, SYS_fsync); }
int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    char paths[2 * PATH_MAX], other[PATH_MAX];
    int is_ours = is_recorded(from_folder, from, paths) && is_recorded(to_folder, to, other);
    if (is_ours) end_if_asked();
    uint64_t start = now();
    int result = (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
    if (!result && is_ours) {
        size_t length = strlen(paths);
        memcpy(paths + length + 1, other, strlen(other));
        note_text(RENAME, start, 0, paths, length + 1 + strlen(other));
    }
    return result;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    int is_ours = is_recorded(folder, name, path);
    if (is_ours) end_if_asked();
    uint64_t start = now();
    int result = (int)syscall(SYS_unlinkat, folder, name, flags);
    if (!result && is_ours) note_text(REMOVE, start, 0, path, strlen(path));
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int is_ours = is_recorded(folder, name, path);
    if (is_ours) end_if_asked();
    uint64_t start = now();
    int result = (int)syscall(SYS_mkdirat, folder, name, mode);
    struct stat stats;
    if (!result && is_ours && !stat(path, &stats)) {
        struct iovec part = {path, strlen(path)};
        note(CREATE, 0, start, stats.st_ino, 1, &part, 1);
    }
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
