/* Clocks that run at another rate: preloaded into the processes of a host.
 *
 * The file $CLOCK_RATE is mapped: sequence u64 | since i64 | ahead i64 | rate double, all of the machine. Elapsed time
 * since `since` (nanoseconds of CLOCK_BOOTTIME) counts `rate` times, and all clocks are `ahead` nanoseconds ahead of the
 * kernel's at that time. The sequence is odd while it is written. What a process waits for is scaled too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll

struct rate { volatile uint64_t sequence; volatile int64_t since, ahead; volatile double rate; };

static const struct rate *shared;
static int (*real_gettime)(clockid_t, struct timespec *);

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* dlsym may find the oldest of several versions. */
#define NEWEST(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CLOCK_RATE");
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (!name) return;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) abort();
    void *place = mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) abort();
    close(file);
    shared = place;
}

static int64_t real_time(clockid_t clock) {
    struct timespec t;
    if (!real_gettime) syscall(SYS_clock_gettime, clock, &t);
    else real_gettime(clock, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* How much the clocks are ahead, and their rate. */
static int64_t ahead(double *rate) {
    *rate = 1.0;
    if (!shared) return 0;
    for (;;) {
        uint64_t before = __atomic_load_n(&shared->sequence, __ATOMIC_ACQUIRE);
        int64_t since = shared->since, then = shared->ahead;
        double now = shared->rate;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before & 1 || before != shared->sequence) continue;
        *rate = now;
        if (now == 1.0) return then;
        return then + (int64_t)((double)(real_time(CLOCK_BOOTTIME) - since) * (now - 1.0));
    }
}

static int is_ours(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME: case CLOCK_MONOTONIC: case CLOCK_BOOTTIME: case CLOCK_MONOTONIC_RAW:
    case CLOCK_REALTIME_COARSE: case CLOCK_MONOTONIC_COARSE: case CLOCK_TAI: return 1;
    }
    return 0;
}

static struct timespec spec(int64_t ns) {
    if (ns < 0) ns = 0;
    return (struct timespec){ns / SECOND, ns % SECOND};
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (!shared || !is_ours(clock))
        return real_gettime ? real_gettime(clock, t) : (int)syscall(SYS_clock_gettime, clock, t);
    double rate;
    *t = spec(real_time(clock) + ahead(&rate));
    return 0;
}

int gettimeofday(struct timeval *t, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}

/* A time of our clocks by the kernel's. */
static struct timespec kernels(clockid_t clock, const struct timespec *t) {
    double rate;
    int64_t early = ahead(&rate), wanted = t->tv_sec * SECOND + t->tv_nsec - early;
    if (rate == 1.0) return spec(wanted);
    int64_t now = real_time(clock);
    return spec(now + (int64_t)((double)(wanted - now) / rate));
}

static int scaled(int milliseconds) {
    double rate;
    if (milliseconds <= 0) return milliseconds;
    ahead(&rate);
    return rate == 1.0 ? milliseconds : (int)(milliseconds / rate) + 1;
}

static struct timespec scaled_spec(const struct timespec *t) {
    double rate;
    ahead(&rate);
    return spec((int64_t)((double)(t->tv_sec * SECOND + t->tv_nsec) / rate));
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *left) {
    REAL(int, "clock_nanosleep", clockid_t, int, const struct timespec *, struct timespec *);
    if (!is_ours(clock)) return real(clock, flags, t, left);
    struct timespec wanted = flags & TIMER_ABSTIME ? kernels(clock, t) : scaled_spec(t);
    return real(clock, flags, &wanted, left);
}

int nanosleep(const struct timespec *t, struct timespec *left) {
    REAL(int, "nanosleep", const struct timespec *, struct timespec *);
    struct timespec wanted = scaled_spec(t);
    return real(&wanted, left);
}

int poll(struct pollfd *files, nfds_t count, int milliseconds) {
    REAL(int, "poll", struct pollfd *, nfds_t, int);
    return real(files, count, scaled(milliseconds));
}

int epoll_wait(int file, struct epoll_event *events, int count, int milliseconds) {
    REAL(int, "epoll_wait", int, struct epoll_event *, int, int);
    return real(file, events, count, scaled(milliseconds));
}

int select(int count, fd_set *read, fd_set *write, fd_set *other, struct timeval *t) {
    REAL(int, "select", int, fd_set *, fd_set *, fd_set *, struct timeval *);
    if (!t) return real(count, read, write, other, t);
    struct timespec wanted = {t->tv_sec, t->tv_usec * 1000};
    wanted = scaled_spec(&wanted);
    struct timeval left = {wanted.tv_sec, wanted.tv_nsec / 1000};
    return real(count, read, write, other, &left);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *t) {
    REAL(int, "sem_timedwait", sem_t *, const struct timespec *);
    struct timespec wanted = kernels(CLOCK_REALTIME, t);
    return real(semaphore, &wanted);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *t) {
    REAL(int, "sem_clockwait", sem_t *, clockid_t, const struct timespec *);
    struct timespec wanted = kernels(clock, t);
    return real(semaphore, clock, &wanted);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *t) {
    REAL(int, "pthread_cond_clockwait", pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec wanted = kernels(clock, t);
    return real(condition, mutex, clock, &wanted);
}

/* Which clock a condition goes by is not to be seen; its times tell: CLOCK_MONOTONIC counts from a start of the machine. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *t) {
    NEWEST(int, "pthread_cond_timedwait", pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    clockid_t clock = t->tv_sec > 1000000000 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    struct timespec wanted = kernels(clock, t);
    return real(condition, mutex, &wanted);
}
