/* Mode flow: one producer, one consumer, many queues; and mode each: connections that do both. */
#include "amqpload.h"

#include <time.h>

static const struct timespec SETTLING = {0, 600 * 1000 * 1000}; /* by then brokers have done what they put off */

static pthread_barrier_t everybody;
static inbox_t *inboxes;
static uint64_t deliveries; /* of all queues together */

typedef struct {
  double published_from, confirmed_at, consumed_from, consumed_at;
  uint64_t consumed; /* deliveries that `consumed_from` to `consumed_at` are counted over */
  usage_t at_first, published, at_last;
} times_t;
static times_t times;

static int is_order(const char *order) { return !strcmp(o.order, order); }
static int is_fanout(void) { return !strcmp(o.exchange, "fanout"); }

/* Publish, and hear of all confirms, up to so many messages. */
static void publish_up_to(link_t c, confirms_t *confirms, message_t *m, uint64_t upto) {
  event_t e;
  while (confirms->confirmed < upto) {
    while (confirms->sent < upto && confirms->sent - confirms->confirmed < o.window) {
      uint64_t n = confirms->sent++;
      fill_message(m, is_fanout() ? 0 : n % o.queues, is_fanout() ? n : n / o.queues, 0);
      publish(c, exchange_name(), routing_key(n), &m->properties, body_of(m));
    }
    next_event(c, &e, "waiting for confirms");
    if (!hear(confirms, &e)) die_of("waiting for confirms", &e);
  }
}

static void *produce(void *unused) {
  (void)unused;
  link_t c = open_channel();
  confirms_t confirms;
  message_t m;
  begin_message(&m, 0);
  begin_confirms(&confirms, o.messages);
  confirm_select(c);
  if (is_order("both")) pthread_barrier_wait(&everybody); /* everything is subscribed */
  if (o.warmup) {
    publish_up_to(c, &confirms, &m, o.warmup);
    pthread_barrier_wait(&everybody); /* and consumed */
    nanosleep(&SETTLING, NULL);
  }
  times.at_first = usage_with_disk();
  times.published_from = now();
  publish_up_to(c, &confirms, &m, o.messages);
  times.confirmed_at = now();
  times.published = usage();
  close_connection(c);
  return NULL;
}

/* Consume from all queues. Nothing is acked before all consumers are there: deliveries wait meanwhile. */
static void *consume(void *unused) {
  (void)unused;
  link_t c = open_channel();
  event_t e;
  char tag[64];
  uint64_t wanted = o.queues * o.consumers, asked = 0, answered = 0, got = 0, got_before = 0, unacked = 0, last = 0;
  uint64_t warm = is_fanout() ? o.warmup * o.queues : o.warmup;
  int is_alone = is_order("seq");
  qos(c, o.prefetch, o.global != 0);
  while (answered < wanted || got < deliveries) {
    if (asked < wanted && asked - answered < UNANSWERED) {
      snprintf(tag, sizeof tag, "%" PRIu64 ".%" PRIu64, asked % o.queues, asked / o.queues);
      ask_consume(c, queue_name(asked % o.queues), tag, 0);
      asked++;
      continue;
    }
    next_event(c, &e, "waiting for messages");
    if (e.id == AMQP_BASIC_CONSUME_OK_METHOD) {
      if (++answered < wanted) continue;
      times.consumed_from = now();
      if (is_alone) times.published = usage();
      got_before = got;
      if (!is_alone) pthread_barrier_wait(&everybody);
    } else if (e.id == AMQP_BASIC_DELIVER_METHOD) {
      note(inboxes, &e);
      got++, unacked++, last = e.tag;
    } else {
      die_of("waiting for messages", &e);
    }
    if (answered == wanted && unacked && (unacked >= o.ack_every || got == warm || got == deliveries)) {
      ack(c, last, unacked > 1);
      unacked = 0;
      if (got == warm) {
        pthread_barrier_wait(&everybody);
        got_before = got;
      }
    }
  }
  times.consumed_at = now();
  times.consumed = got - got_before;
  times.at_last = usage_with_disk(); /* what a consumer's end costs is not a message's price */
  close_connection(c);
  return NULL;
}

static uint64_t *shares(uint64_t among) {
  uint64_t *expected = allocate(among, sizeof *expected);
  deliveries = 0;
  for (uint64_t i = 0; i < among; i++) {
    expected[i] = is_fanout() ? o.messages : o.messages / among + (i < o.messages % among);
    deliveries += expected[i];
  }
  return expected;
}

void mode_flow(void) {
  pthread_t producer, consumer;
  link_t c = open_channel();
  if (!is_order("both") && !is_order("seq") && !is_order("publish"))
    die("order=%s? There are both, seq and publish", o.order);
  if (o.warmup && !is_order("both")) die("warmup=%" PRIu64 " is for order=both alone", o.warmup);
  uint64_t messages = o.messages;
  o.messages += o.warmup;
  if (o.ack_every > o.prefetch) o.ack_every = o.prefetch;
  declare_queues(c);
  bind_queues(c);
  uint64_t *expected = shares(o.queues);
  inboxes = new_inboxes(o.queues, expected, o.consumers == 1 && !o.priorities);
  if (is_order("both")) {
    pthread_barrier_init(&everybody, NULL, 2);
    run(&consumer, consume, NULL);
    run(&producer, produce, NULL);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
    times.consumed_from = times.published_from;
  } else {
    produce(NULL);
    times.at_last = times.published;
    if (is_order("seq")) consume(NULL);
  }
  rate_figure("publish_msgs_per_s", messages, times.published_from, times.confirmed_at);
  if (!is_order("publish")) rate_figure("consume_msgs_per_s", times.consumed, times.consumed_from, times.consumed_at);
  if (is_order("both")) {
    double end = times.consumed_at > times.confirmed_at ? times.consumed_at : times.confirmed_at;
    rate_figure("end_to_end_msgs_per_s", messages, times.published_from, end);
    figure("seconds", end - times.published_from);
    usage_figures(times.at_first, times.at_last, messages);
  } else if (is_order("seq")) {
    figure("seconds", times.confirmed_at - times.published_from + times.consumed_at - times.consumed_from);
    usage_figures(times.published, times.at_last, times.consumed ? times.consumed : 1);
  } else {
    figure("seconds", times.confirmed_at - times.published_from);
    usage_figures(times.at_first, times.at_last, messages);
  }
  delete_all(c, is_order("publish") ? expected[0] : 0);
  close_connection(c);
}

/* --- each -------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t queue, messages;
  double from, confirmed_at, consumed_at;
} worker_t;

/* Publish and consume on one connection, by one thread. */
static void *exchange(void *worker_) {
  worker_t *w = worker_;
  link_t c = open_channel();
  confirms_t confirms;
  message_t m;
  event_t e;
  char tag[32];
  inbox_t *inbox = &inboxes[w->queue];
  begin_message(&m, 1);
  begin_confirms(&confirms, w->messages);
  confirm_select(c);
  qos(c, o.prefetch, 0);
  snprintf(tag, sizeof tag, "%" PRIu64, w->queue);
  ask_consume(c, queue_name(w->queue), tag, 0);
  expect(c, AMQP_BASIC_CONSUME_OK_METHOD, &e, "basic.consume");
  pthread_barrier_wait(&everybody);
  w->from = now();
  while (confirms.confirmed < w->messages || inbox->got < w->messages) {
    while (confirms.sent < w->messages && confirms.sent - confirms.confirmed < o.window) {
      fill_message(&m, w->queue, confirms.sent++, 0);
      publish(c, "", queue_name(w->queue), &m.properties, body_of(&m));
    }
    next_event(c, &e, "waiting for confirms and messages");
    if (e.id == AMQP_BASIC_DELIVER_METHOD) {
      check_distinct(&e, w->queue, inbox->got);
      note(inboxes, &e);
      if (inbox->got % o.ack_every == 0 || inbox->got == w->messages) ack(c, e.tag, 1);
      if (inbox->got == w->messages) w->consumed_at = now();
    } else if (!hear(&confirms, &e)) {
      die_of("waiting for confirms and messages", &e);
    } else if (confirms.confirmed == w->messages) {
      w->confirmed_at = now();
    }
  }
  close_connection(c);
  return NULL;
}

void mode_each(void) {
  link_t c = open_channel();
  uint64_t count = o.connections;
  if (o.messages < count) die("messages=%" PRIu64 " are too few for %" PRIu64 " connections", o.messages, count);
  if (o.ack_every > o.prefetch) o.ack_every = o.prefetch;
  declare_queues(c);
  uint64_t *expected = shares(count);
  inboxes = new_inboxes(count, expected, 1);
  worker_t *workers = allocate(count, sizeof *workers);
  pthread_t *threads = allocate(count, sizeof *threads);
  pthread_barrier_init(&everybody, NULL, (unsigned)count + 1);
  for (uint64_t i = 0; i < count; i++) {
    workers[i].queue = i, workers[i].messages = expected[i];
    run(&threads[i], exchange, &workers[i]);
  }
  usage_t before = usage();
  pthread_barrier_wait(&everybody);
  for (uint64_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  worker_t all = workers[0];
  for (uint64_t i = 1; i < count; i++) {
    if (workers[i].from < all.from) all.from = workers[i].from;
    if (workers[i].confirmed_at > all.confirmed_at) all.confirmed_at = workers[i].confirmed_at;
    if (workers[i].consumed_at > all.consumed_at) all.consumed_at = workers[i].consumed_at;
  }
  double end = all.confirmed_at > all.consumed_at ? all.confirmed_at : all.consumed_at;
  rate_figure("publish_msgs_per_s", o.messages, all.from, all.confirmed_at);
  rate_figure("consume_msgs_per_s", o.messages, all.from, all.consumed_at);
  rate_figure("end_to_end_msgs_per_s", o.messages, all.from, end);
  figure("seconds", end - all.from);
  usage_figures(before, usage(), o.messages);
  delete_all(c, 0);
  close_connection(c);
}
