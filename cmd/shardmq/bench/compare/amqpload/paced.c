/* Modes latency and devices: messages are due at fixed times, whatever the broker does. */
#include "amqpload.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

static inbox_t *inboxes;
static double *latencies;
static double begun_at;
static pthread_barrier_t both;

static double due_at(uint64_t number) { return begun_at + (double)number / (double)o.rate; }

static void sleep_until(double due) {
  struct timespec t = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
    ;
}

static void ask_confirms(link_t c) {
  if (o.confirms) confirm_select(c);
}

/* Publish when it is due; confirms that have come are heard in between. */
static void *produce_in_time(void *unused) {
  (void)unused;
  link_t c = open_channel();
  confirms_t confirms;
  message_t m;
  event_t e;
  begin_message(&m, 0);
  begin_confirms(&confirms, o.messages);
  ask_confirms(c);
  pthread_barrier_wait(&both);
  for (uint64_t n = 0; n < o.messages; n++) {
    if (due_at(n) > now()) sleep_until(due_at(n));
    fill_message(&m, n % o.queues, n / o.queues, due_at(n));
    confirms.sent++;
    publish(c, "", routing_key(n), &m.properties, body_of(&m));
    while (event_if_any(c, &e))
      if (!hear(&confirms, &e)) die_of("publishing", &e);
  }
  while (o.confirms && confirms.confirmed < o.messages) {
    next_event(c, &e, "waiting for confirms");
    if (!hear(&confirms, &e)) die_of("waiting for confirms", &e);
  }
  close_connection(c);
  return NULL;
}

static uint64_t *shares(uint64_t among) {
  uint64_t *expected = allocate(among, sizeof *expected);
  for (uint64_t i = 0; i < among; i++) expected[i] = o.messages / among + (i < o.messages % among);
  return expected;
}

void mode_latency(void) {
  pthread_t producer;
  link_t c = open_channel(), reader = open_channel();
  event_t e;
  char tag[32];
  declare_queues(c);
  inboxes = new_inboxes(o.queues, shares(o.queues), 1);
  latencies = allocate(o.messages, sizeof *latencies);
  qos(reader, o.prefetch, o.global != 0);
  for (uint64_t i = 0; i < o.queues; i++) {
    snprintf(tag, sizeof tag, "%" PRIu64, i);
    ask_consume(reader, queue_name(i), tag, 0);
    expect(reader, AMQP_BASIC_CONSUME_OK_METHOD, &e, "basic.consume");
  }
  pthread_barrier_init(&both, NULL, 2);
  run(&producer, produce_in_time, NULL);
  usage_t before = usage();
  begun_at = now() + 0.05;
  pthread_barrier_wait(&both);
  for (uint64_t got = 0; got < o.messages; got++) {
    expect(reader, AMQP_BASIC_DELIVER_METHOD, &e, "waiting for messages");
    latencies[got] = now() - note(inboxes, &e).at;
    ack(reader, e.tag, 0);
  }
  double end = now();
  rate_figure("end_to_end_msgs_per_s", o.messages, begun_at, end);
  figure("seconds", end - begun_at);
  usage_figures(before, usage(), o.messages);
  pthread_join(producer, NULL);
  close_connection(reader);
  latency_figures(latencies, o.messages);
  delete_all(c, 0);
  close_connection(c);
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

typedef struct {
  link_t c;
  confirms_t confirms;
} device_t;

static uint64_t got, confirmed;

static void open_device(device_t *d, uint64_t place, uint64_t messages, int poll) {
  event_t e;
  char tag[32];
  struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = place};
  d->c = open_channel();
  begin_confirms(&d->confirms, messages);
  ask_confirms(d->c);
  qos(d->c, o.prefetch, 0);
  snprintf(tag, sizeof tag, "%" PRIu64, place);
  ask_consume(d->c, queue_name(place), tag, 0);
  expect(d->c, AMQP_BASIC_CONSUME_OK_METHOD, &e, "basic.consume");
  if (epoll_ctl(poll, EPOLL_CTL_ADD, amqp_get_sockfd(d->c), &wanted)) die("epoll: %s", strerror(errno));
}

static void read_device(device_t *d) {
  event_t e;
  while (event_if_any(d->c, &e)) {
    uint64_t before = d->confirms.confirmed;
    if (e.id == AMQP_BASIC_DELIVER_METHOD) {
      latencies[got++] = now() - note(inboxes, &e).at;
      ack(d->c, e.tag, 0);
    } else if (!hear(&d->confirms, &e)) {
      die_of("reading", &e);
    }
    confirmed += d->confirms.confirmed - before;
  }
}

/* Read what comes until a message is due, or for a minute where none is. */
static void read_until(device_t *devices, int poll, double due) {
  struct epoll_event events[256];
  double wait = due > 0 ? due - now() : 60;
  int count = epoll_wait(poll, events, 256, wait > 0 ? (int)(wait * 1e3 + 0.5) : 0);
  if (count < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
  if (!count && due <= 0) die("the broker has been silent for a minute");
  for (int i = 0; i < count; i++) read_device(&devices[events[i].data.u64]);
}

void mode_devices(void) {
  link_t c = open_channel();
  message_t m;
  int poll = epoll_create1(0);
  uint64_t count = o.connections;
  device_t *devices = allocate(count, sizeof *devices);
  uint64_t *expected = shares(count);
  declare_queues(c);
  inboxes = new_inboxes(count, expected, 1);
  latencies = allocate(o.messages, sizeof *latencies);
  begin_message(&m, 0);
  for (uint64_t i = 0; i < count; i++) open_device(&devices[i], i, expected[i], poll);
  usage_t before = usage();
  begun_at = now();
  for (uint64_t n = 0; n < o.messages || got < o.messages || (o.confirms && confirmed < o.messages);) {
    for (; n < o.messages && due_at(n) <= now(); n++) {
      device_t *d = &devices[n % count];
      d->confirms.sent++;
      fill_message(&m, n % count, n / count, due_at(n));
      publish(d->c, "", queue_name(n % count), &m.properties, body_of(&m));
    }
    read_until(devices, poll, n < o.messages ? due_at(n) : 0);
  }
  double end = now();
  usage_t after = usage();
  rate_figure("end_to_end_msgs_per_s", o.messages, begun_at, end);
  figure("seconds", end - begun_at);
  usage_figures(before, after, o.messages);
  if (*o.pids) figure("cpu_share", (after.cpu_seconds - before.cpu_seconds) / (end - begun_at));
  latency_figures(latencies, o.messages);
  for (uint64_t i = 0; i < count; i++) close_connection(devices[i].c);
  delete_all(c, 0);
  close_connection(c);
}
