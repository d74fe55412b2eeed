/* amqpload: load for any AMQP 0-9-1 broker, by librabbitmq; prints its figures as one line of JSON.
 *
 *   cc -O2 -o amqpload *.c -lrabbitmq -lpthread
 *   ./amqpload HOST PORT NAME MODE [OPTION=VALUE …]
 *
 * flow          A producer publishes to QUEUES queues message by message in turn; a consumer on another connection has
 *               CONSUMERS consumers on each. order=both: at the same time, once everything is subscribed; seq: one
 *               after the other; publish: nothing is consumed. Consuming alone is counted from the last consume-ok, and
 *               nothing is acked before: its rate is not that of subscribing. WARMUP messages come first, which are not
 *               measured, and a pause in which the broker does what it has put off (order=both).
 * nothing       The same with one queue, against a server of this program's that keeps nothing: what the client itself takes.
 * each          CONNECTIONS connections share the messages; each publishes to a queue of its own and consumes from it,
 *               and every message has a message id and three headers that no other message has.
 * latency       Messages are due at RATE a second whatever the broker does; each is acked by itself. Latency is from
 *               when a message was due to its delivery.
 * devices       CONNECTIONS connections with a queue each, RATE messages a second among them in turn, each acked by
 *               itself; one thread does all.
 * round-trips   Requests with direct reply-to, and a server that answers them.
 * commits       One message in each `tx` transaction, one after the other.
 * declarations  queue.declare, queue.bind, basic.consume, basic.cancel, queue.delete, each MESSAGES times, one after
 *               the other.
 * stream        A producer publishes to a stream (TYPE=stream) or a queue, and CONSUMERS connections read all of it from
 *               the first message on, in the group GROUP where one is named. order=both: while it is published; seq:
 *               when everything is confirmed, all readers together; publish: nothing is read.
 * members       CONSUMERS members of the shared group GROUP, each on a channel, of CONNECTIONS connections. They work
 *               WORK_MS on each message of the topic NAME, which is there already, empty, with QUEUES partitions. All is
 *               published before, and nobody works until all have joined.
 *
 * Every message is checked: it must be of its queue, whole, never redelivered, and come and be confirmed once; in order
 * where one consumer reads a queue without priorities. None may be left in its queue. Anything else ends the program
 * with a sentence and exit code 1. PIDS are the broker's processes, comma-separated: their processor time is measured
 * with the messages. guest/guest, vhost "/".
 *
 * Of bytes written to disk, in mode flow, the lower of two counts is taken, as either may be too high: that of the
 * processes has all of a folio, of up to some MB, for each byte that is changed in it (ext4 since Linux 6.16: 256 KB for
 * 1 KB appended to a file that was made in pieces of 256 KB, of which 4 KB were written); that of the disk, whose
 * counters are in the file DISK, has what others write, and the journal.
 *
 * No answer of the broker is waited for by the library while deliveries may come: it would queue them in a list that it
 * searches again for every frame.
 */
#include "amqpload.h"

#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

options_t o = {
    .messages = 20000, .bytes = 100, .window = 1000, .queues = 1, .consumers = 1, .prefetch = 1000, .ack_every = 100,
    .connections = 1, .rate = 1000, .confirms = 1, .persistent = 1, .work_ms = 5, .exchange = "", .order = "both",
    .pids = "", .disk = "", .type = "", .group = "",
};
const char *host, *prefix;
int port;

static const struct {
  const char *name;
  uint64_t *number;
  const char **text;
  uint64_t least;
} options[] = {
    {"messages", &o.messages, NULL, 1},        {"bytes", &o.bytes, NULL, BODY_BYTES_MIN},
    {"window", &o.window, NULL, 1},            {"queues", &o.queues, NULL, 1},
    {"consumers", &o.consumers, NULL, 1},      {"prefetch", &o.prefetch, NULL, 1},
    {"ack_every", &o.ack_every, NULL, 1},      {"connections", &o.connections, NULL, 1},
    {"rate", &o.rate, NULL, 1},                {"priorities", &o.priorities, NULL, 0},
    {"bindings", &o.bindings, NULL, 0},        {"global", &o.global, NULL, 0},
    {"confirms", &o.confirms, NULL, 0},        {"persistent", &o.persistent, NULL, 0},
    {"exchange", NULL, &o.exchange, 0},        {"order", NULL, &o.order, 0},
    {"pids", NULL, &o.pids, 0},                {"disk", NULL, &o.disk, 0},
    {"type", NULL, &o.type, 0},                {"group", NULL, &o.group, 0},
    {"warmup", &o.warmup, NULL, 0},            {"work_ms", &o.work_ms, NULL, 1},
};

static const struct {
  const char *name;
  void (*run)(void);
} modes[] = {
    {"flow", mode_flow},       {"each", mode_each},
    {"latency", mode_latency}, {"devices", mode_devices},
    {"round-trips", mode_round_trips}, {"commits", mode_commits},
    {"declarations", mode_declarations}, {"stream", mode_stream},
    {"members", mode_members}, {"nothing", mode_nothing},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

void die(const char *layout, ...) {
  va_list more;
  va_start(more, layout);
  fputs("amqpload: ", stderr);
  vfprintf(stderr, layout, more);
  fputc('\n', stderr);
  va_end(more);
  _exit(1); /* other threads are still at work */
}

void *allocate(uint64_t count, size_t bytes) {
  void *made = calloc(count ? count : 1, bytes);
  if (!made) die("no memory for %" PRIu64 " times %zu bytes", count, bytes);
  return made;
}

void run(pthread_t *thread, void *(*work)(void *), void *of) {
  if (pthread_create(thread, NULL, work, of)) die("a thread cannot be started");
}

/* --- figures ----------------------------------------------------------------------------------------------------- */

static char printed[4096];

void figure(const char *name, double value) {
  size_t used = strlen(printed);
  snprintf(printed + used, sizeof printed - used, "%s\"%s\":%.9g", used ? "," : "", name, value);
}

void rate_figure(const char *name, uint64_t count, double from, double to) {
  double seconds = to - from;
  figure(name, count / (seconds > 1e-9 ? seconds : 1e-9));
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

void latency_figures(double *latencies, uint64_t count) {
  qsort(latencies, count, sizeof *latencies, ascending);
  figure("p50_ms", latencies[count / 2] * 1e3);
  figure("p99_ms", latencies[(uint64_t)(count * 0.99)] * 1e3);
  figure("p999_ms", latencies[(uint64_t)(count * 0.999)] * 1e3);
  figure("max_ms", latencies[count - 1] * 1e3);
}

/* proc_pid_stat(5), fields 14 and 15, behind the name, which may have spaces and brackets. */
static double cpu_ticks(const char *pid) {
  char path[64], line[1024];
  unsigned long user = 0, kernel = 0;
  snprintf(path, sizeof path, "/proc/%s/stat", pid);
  FILE *f = fopen(path, "r");
  if (!f) die("process %s of the broker has ended", pid);
  char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
  fclose(f);
  if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2)
    die("%s is not as proc_pid_stat(5) says", path);
  return (double)user + (double)kernel;
}

/* proc_pid_io(5); 0 where this user may not read it. */
static double written_bytes(const char *pid) {
  char path[64], line[128];
  double bytes = 0;
  snprintf(path, sizeof path, "/proc/%s/io", pid);
  FILE *f = fopen(path, "r");
  if (!f) return 0;
  while (fgets(line, sizeof line, f))
    if (sscanf(line, "write_bytes: %lf", &bytes) == 1) break;
  fclose(f);
  return bytes;
}

usage_t usage(void) {
  usage_t used = {0, 0, 0};
  char *pids = strdup(o.pids), *rest = pids, *pid;
  while ((pid = strsep(&rest, ",")))
    if (*pid) {
      used.cpu_seconds += cpu_ticks(pid) / (double)sysconf(_SC_CLK_TCK);
      used.disk_bytes += written_bytes(pid);
    }
  free(pids);
  return used;
}

/* Documentation/block/stat.rst of the kernel: the seventh number is of sectors written, of 512 bytes each. */
static double device_bytes(void) {
  double sectors = 0;
  FILE *f = *o.disk ? fopen(o.disk, "r") : NULL;
  if (!f) return 0;
  if (fscanf(f, "%*u %*u %*u %*u %*u %*u %lf", &sectors) != 1) sectors = 0;
  fclose(f);
  return sectors * 512;
}

usage_t usage_with_disk(void) {
  sync();
  usage_t used = usage();
  used.device_bytes = device_bytes();
  return used;
}

void usage_figures(usage_t before, usage_t after, uint64_t messages) {
  if (!*o.pids) return;
  figure("cpu_us", (after.cpu_seconds - before.cpu_seconds) * 1e6 / (double)messages);
  double written = after.disk_bytes - before.disk_bytes, device = after.device_bytes - before.device_bytes;
  if (before.device_bytes && after.device_bytes && device < written) written = device;
  figure("disk_bytes", written / (double)messages);
}

/* --- the command line -------------------------------------------------------------------------------------------- */

static void set_option(char *word) {
  char *value = strchr(word, '=');
  if (!value) die("'%s' is no option; write OPTION=VALUE", word);
  *value++ = 0;
  for (size_t i = 0; i < LENGTH(options); i++) {
    if (strcmp(word, options[i].name)) continue;
    if (options[i].text) {
      *options[i].text = value;
      return;
    }
    char *end;
    *options[i].number = strtoull(value, &end, 10);
    if (*end || end == value) die("%s=%s is no number", word, value);
    if (*options[i].number < options[i].least)
      die("%s=%s is too few; at least %" PRIu64 " is needed", word, value, options[i].least);
    return;
  }
  die("there is no option '%s'", word);
}

/* As many connections as the system allows; nothing between a sleep's end and the time that was asked for. */
static void prepare(void) {
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fputs("usage: amqpload HOST PORT NAME MODE [OPTION=VALUE ...]\n", stderr);
    return 2;
  }
  host = argv[1], port = atoi(argv[2]), prefix = argv[3];
  for (int i = 5; i < argc; i++) set_option(argv[i]);
  prepare();
  for (size_t i = 0; i < LENGTH(modes); i++) {
    if (strcmp(argv[4], modes[i].name)) continue;
    figure("messages", (double)o.messages);
    modes[i].run();
    printf("{%s}\n", printed);
    return 0;
  }
  die("there is no mode '%s'", argv[4]);
}
