/* redisload: what amqpload's mode stream does, on a stream of Redis; prints its figures as one line of JSON.
 *
 *   cc -O2 -o redisload redisload.c -lpthread
 *   ./redisload HOST PORT NAME [OPTION=VALUE …]
 *
 * A producer has WINDOW entries (XADD, BYTES bytes each) unanswered at most. CONSUMERS connections read all of it from
 * the first entry on, COUNT at a time (XREAD), with the next request on its way while one answer is read; in the group
 * GROUP where one is named (XREADGROUP), every answer acknowledged (XACK). order=both: while it is published; seq: when
 * all is answered, all readers together; publish: nothing is read.
 *
 * Every entry is checked: it must be whole and come once, in order. Anything else ends the program with a sentence and
 * exit code 1. PIDS are Redis's processes: their processor time is measured with the messages.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, ID_BYTES = 64, REQUEST_BYTES = 512, SILENCE_MS = 60000 };

static struct {
  uint64_t messages, bytes, window, consumers, count;
  const char *order, *group, *pids;
} o = {20000, 100, 1000, 1, 1000, "seq", "", ""};
static const char *host, *name;
static int port;
static pthread_barrier_t everybody;
static double published_from, confirmed_at;

static void die(const char *layout, ...) {
  va_list more;
  va_start(more, layout);
  fputs("redisload: ", stderr);
  vfprintf(stderr, layout, more);
  fputc('\n', stderr);
  va_end(more);
  _exit(1); /* other threads are still at work */
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *allocate(uint64_t count, size_t bytes) {
  void *made = calloc(count ? count : 1, bytes);
  if (!made) die("no memory for %" PRIu64 " times %zu bytes", count, bytes);
  return made;
}

/* --- a connection, and the protocol (redis.io/docs/reference/protocol-spec) ---------------------------------------- */

typedef struct {
  int fd;
  char *bytes;
  size_t start, end;
} link_t;

static link_t *open_link(void) {
  link_t *c = allocate(1, sizeof *c);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int yes = 1;
  inet_pton(AF_INET, host, &to.sin_addr);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect to %s port %d failed", host, port);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  c->bytes = allocate(BUFFER_BYTES, 1);
  return c;
}

static void close_link(link_t *c) {
  close(c->fd);
  free(c->bytes);
  free(c);
}

static void send_all(link_t *c, const char *bytes, size_t length) {
  for (size_t sent = 0; sent < length;) {
    ssize_t done = write(c->fd, bytes + sent, length - sent);
    if (done <= 0) die("the connection ended");
    sent += (size_t)done;
  }
}

/* Reads more into the buffer; what was taken out is dropped. */
static void fill(link_t *c) {
  struct pollfd one = {.fd = c->fd, .events = POLLIN};
  if (c->start) {
    memmove(c->bytes, c->bytes + c->start, c->end - c->start);
    c->end -= c->start, c->start = 0;
  }
  if (c->end == BUFFER_BYTES) die("an answer is too large");
  if (poll(&one, 1, SILENCE_MS) <= 0) die("nothing came for %d s", SILENCE_MS / 1000);
  ssize_t got = read(c->fd, c->bytes + c->end, BUFFER_BYTES - c->end);
  if (got <= 0) die("the connection ended");
  c->end += (size_t)got;
}

/* A line without its end; valid until more is read. */
static char *line(link_t *c) {
  for (;;) {
    char *from = c->bytes + c->start, *end = memchr(from, '\n', c->end - c->start);
    if (end) {
      *(end - 1) = 0;
      c->start = (size_t)(end + 1 - c->bytes);
      if (*from == '-') die("Redis answered %s", from + 1);
      return from;
    }
    fill(c);
  }
}

static int64_t header(link_t *c, char kind) {
  char *said = line(c);
  if (*said != kind) die("Redis answered %s where %c was due", said, kind);
  return strtoll(said + 1, NULL, 10);
}

/* A text of known length; valid until more is read. */
static char *text(link_t *c, size_t *length) {
  int64_t size = header(c, '$');
  if (size < 0) die("Redis answered nothing where a text was due");
  while (c->end - c->start < (size_t)size + 2) fill(c);
  char *from = c->bytes + c->start;
  c->start += (size_t)size + 2;
  *length = (size_t)size;
  return from;
}

static void command(link_t *c, const char *layout, ...) {
  char request[REQUEST_BYTES];
  va_list more;
  va_start(more, layout);
  int length = vsnprintf(request, sizeof request - 2, layout, more);
  va_end(more);
  memcpy(request + length, "\r\n", 2);
  send_all(c, request, (size_t)length + 2);
}

/* --- publishing ---------------------------------------------------------------------------------------------------- */

static void *produce(void *unused) {
  (void)unused;
  link_t *c = open_link();
  uint64_t sent = 0, confirmed = 0;
  char head[REQUEST_BYTES];
  size_t ahead = (size_t)snprintf(head, sizeof head, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nb\r\n$%" PRIu64
                                  "\r\n", strlen(name), name, o.bytes);
  size_t size = ahead + o.bytes + 2, used = 0;
  char *batch = allocate(o.window, size);
  if (!strcmp(o.order, "both")) pthread_barrier_wait(&everybody);
  published_from = now();
  while (confirmed < o.messages) {
    for (used = 0; sent < o.messages && sent - confirmed < o.window; sent++, used += size) {
      char *to = batch + used;
      memcpy(to, head, ahead);
      memset(to + ahead, 'x', o.bytes);
      memcpy(to + ahead, &sent, sizeof sent);
      memcpy(to + ahead + o.bytes, "\r\n", 2);
    }
    if (used) send_all(c, batch, used);
    size_t length;
    do {
      text(c, &length);
      confirmed++;
    } while (c->start < c->end);
  }
  confirmed_at = now();
  close_link(c);
  return NULL;
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

typedef struct {
  double from, first_at, at;
  uint64_t got;
} reader_t;

static void ask(link_t *c, const char *after) {
  if (*o.group)
    command(c, "XREADGROUP GROUP %s one COUNT %" PRIu64 " BLOCK 60000 STREAMS %s >", o.group, o.count, name);
  else
    command(c, "XREAD COUNT %" PRIu64 " BLOCK 60000 STREAMS %s %s", o.count, name, after);
}

/* Takes the entries of one answer: [[name, [[id, [field, value]], ...]]]. Returns how many. */
static uint64_t take(link_t *c, reader_t *r, char *last, char *acks, size_t *acks_used) {
  size_t length;
  uint64_t number;
  if (header(c, '*') != 1 || header(c, '*') != 2) die("Redis answered something else than one stream");
  text(c, &length);
  uint64_t entries = (uint64_t)header(c, '*');
  for (uint64_t i = 0; i < entries; i++) {
    if (header(c, '*') != 2) die("an entry is no pair");
    char *id = text(c, &length);
    if (length >= ID_BYTES) die("an id is too long");
    memcpy(last, id, length);
    last[length] = 0;
    if (acks) *acks_used += (size_t)sprintf(acks + *acks_used, "$%zu\r\n%s\r\n", length, last);
    if (header(c, '*') != 2) die("an entry has not one field");
    text(c, &length);
    char *body = text(c, &length);
    if (length != o.bytes) die("an entry has %zu bytes instead of %" PRIu64, length, o.bytes);
    memcpy(&number, body, sizeof number);
    if (number != r->got) die("entry %" PRIu64 " came where %" PRIu64 " was due", number, r->got);
    if (!r->got++) r->first_at = now();
  }
  return entries;
}

static void *read_all(void *reader_) {
  reader_t *r = reader_;
  link_t *c = open_link();
  char last[ID_BYTES] = "0-0", *acks = *o.group ? allocate(o.count + 8, ID_BYTES + 16) : NULL, *head = NULL;
  if (acks) head = allocate(REQUEST_BYTES, 1);
  pthread_barrier_wait(&everybody);
  r->from = now();
  while (r->got < o.messages) {
    size_t used = 0;
    ask(c, last);
    uint64_t entries = take(c, r, last, acks, &used);
    if (!acks) continue;
    size_t ahead = (size_t)snprintf(head, REQUEST_BYTES, "*%" PRIu64 "\r\n$4\r\nXACK\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                                    entries + 3, strlen(name), name, strlen(o.group), o.group);
    send_all(c, head, ahead);
    send_all(c, acks, used);
    if ((uint64_t)header(c, ':') != entries) die("not all entries of an answer were acknowledged");
  }
  r->at = now();
  close_link(c);
  return NULL;
}

/* --- figures ------------------------------------------------------------------------------------------------------- */

static char printed[4096];

static void figure(const char *key, double value) {
  size_t used = strlen(printed);
  snprintf(printed + used, sizeof printed - used, "%s\"%s\":%.9g", used ? "," : "", key, value);
}

/* proc_pid_stat(5), fields 14 and 15, behind the name. */
static double cpu_seconds(void) {
  double seconds = 0;
  char *pids = strdup(o.pids), *rest = pids, *pid;
  while ((pid = strsep(&rest, ","))) {
    char path[64], said[1024];
    unsigned long user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *f = *pid ? fopen(path, "r") : NULL;
    if (!f) continue;
    char *end = fgets(said, sizeof said, f) ? strrchr(said, ')') : NULL;
    fclose(f);
    if (end && sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) == 2)
      seconds += (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
  }
  free(pids);
  return seconds;
}

static void set_option(char *word) {
  struct {
    const char *name;
    uint64_t *number;
    const char **text;
  } options[] = {{"messages", &o.messages, NULL}, {"bytes", &o.bytes, NULL},   {"window", &o.window, NULL},
                 {"consumers", &o.consumers, NULL}, {"count", &o.count, NULL}, {"order", NULL, &o.order},
                 {"group", NULL, &o.group},       {"pids", NULL, &o.pids}};
  char *value = strchr(word, '=');
  if (!value) die("'%s' is no option; write OPTION=VALUE", word);
  *value++ = 0;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (strcmp(word, options[i].name)) continue;
    if (options[i].text) {
      *options[i].text = value;
      return;
    }
    char *end;
    *options[i].number = strtoull(value, &end, 10);
    if (*end || end == value || !*options[i].number) die("%s=%s is no number above 0", word, value);
    return;
  }
  die("there is no option '%s'", word);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fputs("usage: redisload HOST PORT NAME [OPTION=VALUE ...]\n", stderr);
    return 2;
  }
  host = argv[1], port = atoi(argv[2]), name = argv[3];
  for (int i = 4; i < argc; i++) set_option(argv[i]);
  if (o.bytes < sizeof(uint64_t)) die("bytes=%" PRIu64 " are too few", o.bytes);
  int is_tail = !strcmp(o.order, "both"), is_read = strcmp(o.order, "publish") != 0;
  link_t *c = open_link();
  reader_t *readers = allocate(o.consumers, sizeof *readers);
  pthread_t *threads = allocate(o.consumers, sizeof *threads), producer;
  pthread_barrier_init(&everybody, NULL, (unsigned)o.consumers + 1);
  if (*o.group) {
    command(c, "XGROUP CREATE %s %s 0 MKSTREAM", name, o.group);
    line(c);
  }
  double before = cpu_seconds();
  if (!is_tail) produce(NULL);
  double published = cpu_seconds();
  if (is_read) {
    for (uint64_t i = 0; i < o.consumers; i++)
      if (pthread_create(&threads[i], NULL, read_all, &readers[i])) die("a thread cannot be started");
    if (is_tail)
      pthread_create(&producer, NULL, produce, NULL);
    else
      pthread_barrier_wait(&everybody);
    for (uint64_t i = 0; i < o.consumers; i++) pthread_join(threads[i], NULL);
    if (is_tail) pthread_join(producer, NULL);
  }
  double after = cpu_seconds(), from = readers[0].from, end = readers[0].at, seconds = confirmed_at - published_from;
  for (uint64_t i = 1; i < o.consumers; i++) {
    if (readers[i].from < from) from = readers[i].from;
    if (readers[i].at > end) end = readers[i].at;
  }
  figure("publish_msgs_per_s", (double)o.messages / seconds);
  if (is_tail) {
    if (end < confirmed_at) end = confirmed_at;
    seconds = end - published_from;
    figure("end_to_end_msgs_per_s", (double)o.messages / seconds);
    figure("cpu_us", (after - before) * 1e6 / (double)o.messages);
  } else if (is_read) {
    double read = (double)(o.messages * o.consumers);
    figure("read_msgs_per_s", read / (end - from));
    figure("cpu_us", (after - published) * 1e6 / read);
    seconds += end - from;
  } else {
    figure("cpu_us", (after - before) * 1e6 / (double)o.messages);
  }
  figure("seconds", seconds);
  command(c, "DEL %s", name);
  line(c);
  close_link(c);
  printf("{\"messages\":%" PRIu64 ",%s}\n", o.messages, printed);
  return 0;
}
