/* Modes round-trips, commits and declarations: one step after the other, each waited for. */
#include "amqpload.h"

static const char DIRECT[] = "amq.rabbitmq.reply-to";

static pthread_barrier_t both;

/* Answers each request to where it says. */
static void *serve(void *unused) {
  (void)unused;
  link_t c = open_channel();
  event_t e;
  message_t m;
  char reply_to[NAME_BYTES];
  begin_message(&m, 0);
  qos(c, o.prefetch, 0);
  ask_consume(c, queue_name(0), "0", 0);
  expect(c, AMQP_BASIC_CONSUME_OK_METHOD, &e, "basic.consume");
  pthread_barrier_wait(&both);
  for (uint64_t n = 0; n < o.messages; n++) {
    head_t head;
    expect(c, AMQP_BASIC_DELIVER_METHOD, &e, "waiting for requests");
    memcpy(&head, e.head, sizeof head);
    if (head.number != n) die("request %" PRIu64 " came where %" PRIu64 " was due", head.number, n);
    amqp_bytes_t to = e.properties->reply_to;
    if (!to.len || to.len >= sizeof reply_to) die("request %" PRIu64 " does not say where its answer goes", n);
    memcpy(reply_to, to.bytes, to.len);
    reply_to[to.len] = 0;
    fill_message(&m, 0, n, 0);
    publish(c, "", reply_to, &m.properties, body_of(&m));
    ack(c, e.tag, 0);
  }
  close_connection(c);
  return NULL;
}

void mode_round_trips(void) {
  pthread_t server;
  link_t c = open_channel(), client = open_channel();
  event_t e;
  message_t m;
  uint64_t sent = 0, got = 0;
  declare_queues(c);
  begin_message(&m, 0);
  m.properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
  m.properties.reply_to = amqp_cstring_bytes(DIRECT);
  ask_consume(client, DIRECT, "answers", 1);
  expect(client, AMQP_BASIC_CONSUME_OK_METHOD, &e, "basic.consume");
  pthread_barrier_init(&both, NULL, 2);
  run(&server, serve, NULL);
  pthread_barrier_wait(&both);
  usage_t before = usage();
  double from = now();
  while (got < o.messages) {
    head_t head;
    for (; sent < o.messages && sent - got < o.window; sent++) {
      fill_message(&m, 0, sent, 0);
      publish(client, "", queue_name(0), &m.properties, body_of(&m));
    }
    expect(client, AMQP_BASIC_DELIVER_METHOD, &e, "waiting for answers");
    memcpy(&head, e.head, sizeof head);
    if (head.number != got) die("answer %" PRIu64 " came where %" PRIu64 " was due", head.number, got);
    got++;
  }
  double to = now();
  rate_figure("round_trips_per_s", got, from, to);
  figure("seconds", to - from);
  usage_figures(before, usage(), got);
  pthread_join(server, NULL);
  close_connection(client);
  delete_all(c, 0);
  close_connection(c);
}

void mode_commits(void) {
  link_t c = open_channel();
  message_t m;
  declare_queues(c);
  begin_message(&m, 0);
  amqp_tx_select(c, CHANNEL);
  check("tx.select", amqp_get_rpc_reply(c));
  usage_t before = usage();
  double from = now();
  for (uint64_t n = 0; n < o.messages; n++) {
    fill_message(&m, 0, n, 0);
    publish(c, "", queue_name(0), &m.properties, body_of(&m));
    amqp_tx_commit(c, CHANNEL);
    check("tx.commit", amqp_get_rpc_reply(c));
    amqp_maybe_release_buffers(c);
  }
  double to = now();
  rate_figure("commits_per_s", o.messages, from, to);
  figure("seconds", to - from);
  usage_figures(before, usage(), o.messages);
  delete_all(c, o.messages);
  close_connection(c);
}

/* --- declarations ------------------------------------------------------------------------------------------------ */

static char name[NAME_BYTES];

static const char *numbered(uint64_t number) {
  snprintf(name, sizeof name, "%s-%" PRIu64, prefix, number);
  return name;
}

static void declare(link_t c, uint64_t n) {
  amqp_queue_declare(c, CHANNEL, amqp_cstring_bytes(numbered(n)), 0, o.persistent, 0, 0, amqp_empty_table);
}

static void bind(link_t c, uint64_t n) {
  amqp_bytes_t queue = amqp_cstring_bytes(numbered(n));
  amqp_queue_bind(c, CHANNEL, queue, amqp_cstring_bytes("amq.direct"), queue, amqp_empty_table);
}

static void consume(link_t c, uint64_t n) {
  amqp_bytes_t queue = amqp_cstring_bytes(numbered(n));
  amqp_basic_consume(c, CHANNEL, queue, queue, 0, 0, 0, amqp_empty_table); /* empty queues: no delivery comes before */
}

static void cancel(link_t c, uint64_t n) { amqp_basic_cancel(c, CHANNEL, amqp_cstring_bytes(numbered(n))); }

static void delete(link_t c, uint64_t n) {
  amqp_queue_delete(c, CHANNEL, amqp_cstring_bytes(numbered(n)), 0, 0);
}

void mode_declarations(void) {
  static const struct {
    const char *method, *per_s, *ms;
    void (*step)(link_t, uint64_t);
  } steps[] = {
      {"queue.declare", "declares_per_s", "declare_ms", declare},
      {"queue.bind", "binds_per_s", "bind_ms", bind},
      {"basic.consume", "consumes_per_s", "consume_ms", consume},
      {"basic.cancel", "cancels_per_s", "cancel_ms", cancel},
      {"queue.delete", "deletes_per_s", "delete_ms", delete},
  };
  link_t c = open_channel();
  usage_t before = usage();
  double begun_at = now();
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    double from = now();
    for (uint64_t n = 0; n < o.messages; n++) {
      steps[i].step(c, n);
      check(steps[i].method, amqp_get_rpc_reply(c));
      amqp_maybe_release_buffers(c);
    }
    double to = now();
    rate_figure(steps[i].per_s, o.messages, from, to);
    figure(steps[i].ms, (to - from) * 1e3 / (double)o.messages);
  }
  figure("seconds", now() - begun_at);
  usage_figures(before, usage(), o.messages);
  close_connection(c);
}
