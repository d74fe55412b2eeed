/* Mode stream: one stream, a producer, and readers of all of it. */
#include "amqpload.h"

static pthread_barrier_t everybody;
static double published_from, confirmed_at;

typedef struct {
  inbox_t *inbox;
  double from, first_at, at;
} reader_t;

static int is_tail(void) { return !strcmp(o.order, "both"); }

/* Publishes everything; returns when all is confirmed. */
static void *produce(void *unused) {
  (void)unused;
  link_t c = open_channel();
  confirms_t confirms;
  message_t m;
  event_t e;
  begin_message(&m, 0);
  begin_confirms(&confirms, o.messages);
  confirm_select(c);
  if (is_tail()) pthread_barrier_wait(&everybody);
  published_from = now();
  while (confirms.confirmed < o.messages) {
    while (confirms.sent < o.messages && confirms.sent - confirms.confirmed < o.window) {
      fill_message(&m, 0, confirms.sent++, 0);
      publish(c, "", queue_name(0), &m.properties, body_of(&m));
    }
    next_event(c, &e, "waiting for confirms");
    if (!hear(&confirms, &e)) die_of("waiting for confirms", &e);
  }
  confirmed_at = now();
  close_connection(c);
  return NULL;
}

static void ask_read(link_t c) {
  amqp_table_entry_t arguments[2];
  text_argument(&arguments[0], "x-stream-offset", "first");
  text_argument(&arguments[1], "x-group", o.group);
  amqp_basic_consume_t method = {.queue = amqp_cstring_bytes(queue_name(0)),
                                 .consumer_tag = amqp_cstring_bytes("0"),
                                 .arguments = {.num_entries = *o.group ? 2 : 1, .entries = arguments}};
  tell(c, CHANNEL, AMQP_BASIC_CONSUME_METHOD, &method, "basic.consume");
}

/* Reads everything from the first message on, and acknowledges it. */
static void *read_all(void *reader_) {
  reader_t *r = reader_;
  link_t c = open_channel();
  event_t e;
  uint64_t unacked = 0;
  qos(c, o.prefetch, 0);
  if (!is_tail()) pthread_barrier_wait(&everybody);
  r->from = now();
  ask_read(c);
  expect(c, AMQP_BASIC_CONSUME_OK_METHOD, &e, "basic.consume");
  if (is_tail()) pthread_barrier_wait(&everybody);
  while (r->inbox->got < o.messages) {
    next_event(c, &e, "waiting for messages");
    if (e.id != AMQP_BASIC_DELIVER_METHOD) die_of("waiting for messages", &e);
    note(r->inbox, &e);
    if (r->inbox->got == 1) r->first_at = now();
    if (++unacked >= o.ack_every || r->inbox->got == o.messages) {
      ack(c, e.tag, 1);
      unacked = 0;
    }
  }
  r->at = now();
  close_connection(c);
  return NULL;
}

static void delete_stream(link_t c) {
  amqp_queue_delete(c, CHANNEL, amqp_cstring_bytes(queue_name(0)), 0, 0);
  check("queue.delete", amqp_get_rpc_reply(c));
}

void mode_stream(void) {
  pthread_t producer;
  link_t c = open_channel();
  uint64_t count = o.consumers;
  if (strcmp(o.order, "both") && strcmp(o.order, "seq") && strcmp(o.order, "publish"))
    die("order=%s? There are both, seq and publish", o.order);
  if (o.ack_every > o.prefetch) o.ack_every = o.prefetch;
  o.queues = 1;
  declare_queues(c);
  reader_t *readers = allocate(count, sizeof *readers);
  pthread_t *threads = allocate(count, sizeof *threads);
  uint64_t *expected = allocate(count, sizeof *expected);
  for (uint64_t i = 0; i < count; i++) expected[i] = o.messages;
  inbox_t *inboxes = new_inboxes(count, expected, 1);
  pthread_barrier_init(&everybody, NULL, (unsigned)count + 1);
  usage_t before = usage();
  if (!is_tail()) produce(NULL);
  usage_t published = usage();
  if (strcmp(o.order, "publish")) {
    for (uint64_t i = 0; i < count; i++) {
      readers[i].inbox = &inboxes[i];
      run(&threads[i], read_all, &readers[i]);
    }
    if (is_tail())
      run(&producer, produce, NULL);
    else
      pthread_barrier_wait(&everybody);
    for (uint64_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    if (is_tail()) pthread_join(producer, NULL);
  }
  usage_t after = usage();
  double seconds = confirmed_at - published_from;
  rate_figure("publish_msgs_per_s", o.messages, published_from, confirmed_at);
  if (strcmp(o.order, "publish")) {
    double from = readers[0].from, end = readers[0].at;
    for (uint64_t i = 1; i < count; i++) {
      if (readers[i].from < from) from = readers[i].from;
      if (readers[i].at > end) end = readers[i].at;
    }
    if (is_tail()) {
      end = end > confirmed_at ? end : confirmed_at;
      seconds = end - published_from;
      rate_figure("end_to_end_msgs_per_s", o.messages, published_from, end);
      usage_figures(before, after, o.messages);
    } else {
      rate_figure("read_msgs_per_s", o.messages * count, from, end);
      figure("first_ms", (readers[0].first_at - readers[0].from) * 1e3);
      seconds += end - from;
      usage_figures(published, after, o.messages * count);
    }
  } else {
    usage_figures(before, after, o.messages);
  }
  figure("seconds", seconds);
  delete_stream(c);
  close_connection(c);
}
