/* Mode members: members of a shared group that work for a while on each message; one thread does all.
 *
 *   basic.deliver -> tags that the member holds -> it works on one, until a time in `works` -> basic.ack
 *
 * All works take equally long, so they end in the order in which they began: a ring takes the place of a heap.
 */
#include "amqpload.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define SLACK_SECONDS 50e-6 /* works that end so soon after one another are ended together */

enum {
  ACK_BYTES = 21,
  ACKS = 3000, /* that wait to be written */
  SILENCE_MS = 60000
};

typedef struct {
  link_t c;
  uint64_t joined; /* members that consume */
  size_t acks;
  uint8_t unwritten[ACKS * ACK_BYTES];
} connection_t;

typedef struct {
  connection_t *connection;
  amqp_channel_t channel;
  int is_working;    /* on the oldest message that it holds */
  uint64_t in, out;  /* messages that came, and that were handled */
  uint64_t *tags;    /* of those between, a ring of o.prefetch */
} member_t;

typedef struct {
  double until;
  member_t *member;
} work_t;

static connection_t *connections;
static member_t *members;
static inbox_t *inbox;
static work_t *works; /* under way, a ring of o.consumers */
static uint64_t works_begun, works_ended;
static double *handled_at;
static uint64_t handled;
static int poller, timer, is_begun;

static double work_seconds(void) { return (double)o.work_ms / 1e3; }

static member_t *member_on(connection_t *on, amqp_channel_t channel) {
  return &members[(uint64_t)(channel - CHANNEL) * o.connections + (uint64_t)(on - connections)];
}

static uint64_t members_on(const connection_t *on) {
  return (o.consumers - (uint64_t)(on - connections) - 1) / o.connections + 1;
}

/* --- works ------------------------------------------------------------------------------------------------------- */

static void begin_work(member_t *m, double until) {
  m->is_working = 1;
  works[works_begun++ % o.consumers] = (work_t){until, m};
}

static void write_acks(connection_t *on) {
  struct pollfd room = {.fd = amqp_get_sockfd(on->c), .events = POLLOUT};
  size_t bytes = on->acks * ACK_BYTES;
  for (size_t written = 0; written < bytes;) {
    ssize_t count = send(room.fd, on->unwritten + written, bytes - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0)
      written += (size_t)count;
    else if (errno == EAGAIN)
      poll(&room, 1, SILENCE_MS);
    else if (errno != EINTR)
      die("ack: %s", strerror(errno));
  }
  on->acks = 0;
}

/* The frames of basic.ack are written here, those that are due at a time together, as by any client with an event loop:
 * librabbitmq's one write for each takes the system longer than everything else that this program does. */
static void put_ack(connection_t *on, amqp_channel_t channel, uint64_t tag) {
  uint8_t *frame = on->unwritten + on->acks * ACK_BYTES;
  const uint8_t start[11] = {AMQP_FRAME_METHOD, (uint8_t)(channel >> 8), (uint8_t)channel, 0, 0, 0, 13, 0, 60, 0, 80};
  memcpy(frame, start, sizeof start);
  for (int i = 0; i < 8; i++) frame[11 + i] = (uint8_t)(tag >> (56 - 8 * i));
  frame[19] = 0; /* not multiple */
  frame[20] = AMQP_FRAME_END;
  if (++on->acks == ACKS) write_acks(on);
}

static void end_works(void) {
  double at = now();
  while (works_ended < works_begun && works[works_ended % o.consumers].until <= at) {
    member_t *m = works[works_ended++ % o.consumers].member;
    put_ack(m->connection, m->channel, m->tags[m->out++ % o.prefetch]);
    handled_at[handled++] = at;
    m->is_working = 0;
    if (m->in > m->out) begin_work(m, at + work_seconds());
  }
  for (uint64_t i = 0; i < o.connections; i++)
    if (connections[i].acks) write_acks(&connections[i]);
}

/* Have all begin, somewhere in the middle of their first messages: else all would end theirs at once, time and again. */
static void begin_all(void) {
  double at = now();
  is_begun = 1;
  for (uint64_t i = 0; i < o.consumers; i++)
    if (members[i].in) begin_work(&members[i], at + work_seconds() * (double)(i + 1) / (double)o.consumers);
}

/* --- what comes -------------------------------------------------------------------------------------------------- */

static void take_message(connection_t *on, const event_t *e) {
  member_t *m = member_on(on, e->channel);
  note(inbox, e);
  if (m->in - m->out == o.prefetch) die("a member got more than its prefetch");
  m->tags[m->in++ % o.prefetch] = e->tag;
  if (is_begun && !m->is_working) begin_work(m, now() + work_seconds());
}

static void read_connection(connection_t *on) {
  event_t e;
  while (event_if_any(on->c, &e)) {
    if (e.id == AMQP_BASIC_DELIVER_METHOD)
      take_message(on, &e);
    else if (e.id == AMQP_BASIC_CONSUME_OK_METHOD)
      on->joined++;
    else
      die_of("reading", &e);
  }
}

/* Read what comes, until a work ends, or for a minute where nobody works. */
static void read_for_a_while(void) {
  struct epoll_event events[256];
  int is_working = works_ended < works_begun;
  double until = is_working ? works[works_ended % o.consumers].until + SLACK_SECONDS : 0;
  time_t seconds = (time_t)until;
  struct itimerspec due = {.it_value = {seconds, (long)((until - (double)seconds) * 1e9)}};
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &due, NULL);
  int count = epoll_wait(poller, events, 256, is_working ? -1 : SILENCE_MS);
  if (count < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
  if (!count) die("the broker has been silent for a minute");
  for (int i = 0; i < count; i++)
    if (events[i].data.ptr) read_connection(events[i].data.ptr);
}

/* --- the run ----------------------------------------------------------------------------------------------------- */

static void watch(int file, void *of) {
  struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = of};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, file, &wanted)) die("epoll: %s", strerror(errno));
}

/* Publish everything, to the partitions in turn; returns when all is confirmed. */
static void publish_all(void) {
  link_t c = open_channel();
  confirms_t confirms;
  message_t m;
  event_t e;
  begin_message(&m, 0);
  begin_confirms(&confirms, o.messages);
  confirm_select(c);
  while (confirms.confirmed < o.messages) {
    while (confirms.sent < o.messages && confirms.sent - confirms.confirmed < o.window) {
      fill_message(&m, 0, confirms.sent, 0);
      publish(c, "", queue_name(confirms.sent++ % o.queues), &m.properties, body_of(&m));
    }
    next_event(c, &e, "waiting for confirms");
    if (!hear(&confirms, &e)) die_of("waiting for confirms", &e);
  }
  close_connection(c);
}

static void ask_join(const member_t *m) {
  amqp_table_entry_t arguments[3];
  text_argument(&arguments[0], "x-group", o.group);
  text_argument(&arguments[1], "x-group-type", "shared");
  text_argument(&arguments[2], "x-stream-offset", "first");
  amqp_basic_consume_t method = {.queue = amqp_cstring_bytes(prefix),
                                 .consumer_tag = amqp_cstring_bytes("0"), /* by it, `note` finds the only inbox */
                                 .arguments = {.num_entries = 3, .entries = arguments}};
  tell(m->connection->c, m->channel, AMQP_BASIC_CONSUME_METHOD, &method, "basic.consume");
}

static void open_members(void) {
  connections = allocate(o.connections, sizeof *connections);
  members = allocate(o.consumers, sizeof *members);
  for (uint64_t i = 0; i < o.connections; i++) {
    connection_t *on = &connections[i];
    on->c = open_channel();
    open_more(on->c, (amqp_channel_t)(CHANNEL + members_on(on) - 1));
    watch(amqp_get_sockfd(on->c), on);
    for (uint64_t place = 0; place < members_on(on); place++) {
      amqp_channel_t channel = (amqp_channel_t)(CHANNEL + place);
      amqp_basic_qos(on->c, channel, 0, (uint16_t)o.prefetch, 0);
      check("basic.qos", amqp_get_rpc_reply(on->c));
      *member_on(on, channel) = (member_t){on, channel, 0, 0, 0, allocate(o.prefetch, sizeof(uint64_t))};
    }
  }
}

static uint64_t joined(void) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < o.connections; i++) count += connections[i].joined;
  return count;
}

static void join_all(void) {
  for (uint64_t asked = 0; asked < o.consumers || joined() < o.consumers;) {
    if (asked < o.consumers && asked - joined() < UNANSWERED)
      ask_join(&members[asked++]);
    else
      read_for_a_while();
  }
}

/* An answer comes behind all that was delivered before: a message that comes twice is noticed here at the latest. */
static void close_all(void) {
  event_t e;
  amqp_basic_qos_t method = {.prefetch_count = (uint16_t)o.prefetch};
  for (uint64_t i = 0; i < o.connections; i++) {
    tell(connections[i].c, CHANNEL, AMQP_BASIC_QOS_METHOD, &method, "basic.qos");
    for (next_event(connections[i].c, &e, "basic.qos"); e.id != AMQP_BASIC_QOS_OK_METHOD;
         next_event(connections[i].c, &e, "basic.qos")) {
      if (e.id != AMQP_BASIC_DELIVER_METHOD) die_of("basic.qos", &e);
      note(inbox, &e);
    }
    close_connection(connections[i].c);
  }
}

static double own_cpu_seconds(void) {
  struct rusage own;
  getrusage(RUSAGE_SELF, &own);
  return (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
         (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-6;
}

/* What counts is the middle eight tenths: members begin and end one by one. */
void mode_members(void) {
  uint64_t tenth = o.messages / 10, last = o.messages - tenth - 1, counted = last - tenth;
  if (o.messages < 10) die("messages=%" PRIu64 " have no tenths", o.messages);
  if (o.connections > o.consumers) o.connections = o.consumers;
  name_queues();
  inbox = new_inboxes(1, &o.messages, 0);
  works = allocate(o.consumers, sizeof *works);
  handled_at = allocate(o.messages, sizeof *handled_at);
  poller = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  if (poller < 0 || timer < 0) die("epoll, timerfd: %s", strerror(errno));
  watch(timer, NULL);
  publish_all();
  open_members();
  join_all();
  begin_all();
  usage_t before = {0, 0, 0}, after;
  double own = 0;
  while (handled <= last) {
    uint64_t earlier = handled;
    end_works();
    if (earlier <= tenth && handled > tenth) before = usage(), own = own_cpu_seconds();
    if (handled <= last) read_for_a_while();
  }
  after = usage(), own = own_cpu_seconds() - own;
  for (end_works(); handled < o.messages; end_works()) read_for_a_while();
  close_all();
  double seconds = handled_at[last] - handled_at[tenth];
  rate_figure("of_theory", counted, 0, seconds * (double)o.consumers / work_seconds());
  rate_figure("handled_msgs_per_s", counted, 0, seconds);
  figure("seconds", seconds);
  usage_figures(before, after, counted);
  figure("client_cpu_us", own * 1e6 / (double)counted);
}
