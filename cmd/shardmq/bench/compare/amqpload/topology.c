/* The queues, the exchange and the bindings of a run, many requests under way at a time, on several channels. */
#include "amqpload.h"

static char (*names)[NAME_BYTES];
static char (*keys)[NAME_BYTES]; /* of the bindings, where there are some */
static char exchange[NAME_BYTES];

char *queue_name(uint64_t queue) { return names[queue]; }
const char *exchange_name(void) { return exchange; }

static int is_fanout(void) { return !strcmp(o.exchange, "fanout"); }

const char *routing_key(uint64_t number) {
  if (!*o.exchange) return names[number % o.queues];
  return is_fanout() ? "" : keys[number % o.bindings];
}

typedef void (*ask_t)(link_t, amqp_channel_t, uint64_t);

/* Ask `count` times, and take the answers, with few unanswered: else both sides might wait for the other to read. */
static void ask_all(link_t c, uint64_t count, ask_t ask, amqp_method_number_t answer, void (*take)(const event_t *),
                    const char *what) {
  event_t e;
  for (uint64_t asked = 0, answered = 0; answered < count;) {
    if (asked < count && asked - answered < UNANSWERED) {
      ask(c, (amqp_channel_t)(CHANNEL + asked % CHANNELS), asked);
      asked++;
      continue;
    }
    expect(c, answer, &e, what);
    if (take) take(&e);
    answered++;
  }
}

static void ask_declare(link_t c, amqp_channel_t channel, uint64_t queue) {
  amqp_queue_declare_t method = {.queue = amqp_cstring_bytes(names[queue]), .durable = (amqp_boolean_t)o.persistent};
  amqp_table_entry_t priorities = {.key = amqp_cstring_bytes("x-max-priority")};
  amqp_table_entry_t type = {.key = amqp_cstring_bytes("x-queue-type")};
  if (*o.type) {
    type.value.kind = AMQP_FIELD_KIND_UTF8;
    type.value.value.bytes = amqp_cstring_bytes(o.type);
    method.arguments.num_entries = 1;
    method.arguments.entries = &type;
  }
  if (o.priorities) {
    priorities.value.kind = AMQP_FIELD_KIND_I32;
    priorities.value.value.i32 = (int32_t)o.priorities - 1;
    method.arguments.num_entries = 1;
    method.arguments.entries = &priorities;
  }
  tell(c, channel, AMQP_QUEUE_DECLARE_METHOD, &method, "queue.declare");
}

static void take_declared(const event_t *e) {
  const amqp_queue_declare_ok_t *ok = e->method;
  if (ok->message_count)
    die("%u messages are in %.*s already", ok->message_count, (int)ok->queue.len, (const char *)ok->queue.bytes);
}

static uint64_t queue_count(void) { return o.queues > o.connections ? o.queues : o.connections; }

void name_queues(void) {
  uint64_t count = queue_count();
  names = allocate(count, sizeof *names);
  for (uint64_t i = 0; i < count; i++) snprintf(names[i], NAME_BYTES, "%s-%" PRIu64, prefix, i);
}

void declare_queues(link_t c) {
  open_more(c, CHANNELS);
  name_queues();
  ask_all(c, queue_count(), ask_declare, AMQP_QUEUE_DECLARE_OK_METHOD, take_declared, "queue.declare");
}

static void ask_bind(link_t c, amqp_channel_t channel, uint64_t binding) {
  amqp_queue_bind_t method = {.queue = amqp_cstring_bytes(names[binding % o.queues]),
                              .exchange = amqp_cstring_bytes(exchange),
                              .routing_key = amqp_cstring_bytes(is_fanout() ? "" : keys[binding])};
  tell(c, channel, AMQP_QUEUE_BIND_METHOD, &method, "queue.bind");
}

void bind_queues(link_t c) {
  if (!*o.exchange) return;
  if (!o.bindings) o.bindings = o.queues;
  if (o.bindings % o.queues) die("bindings=%" PRIu64 " are not shared evenly by %" PRIu64 " queues", o.bindings, o.queues);
  snprintf(exchange, sizeof exchange, "%s-exchange", prefix);
  amqp_exchange_declare(c, CHANNEL, amqp_cstring_bytes(exchange), amqp_cstring_bytes(o.exchange), 0, o.persistent, 0,
                        0, amqp_empty_table);
  check("exchange.declare", amqp_get_rpc_reply(c));
  keys = allocate(o.bindings, sizeof *keys);
  for (uint64_t i = 0; i < o.bindings; i++) snprintf(keys[i], NAME_BYTES, "load.%" PRIu64 ".measured", i);
  ask_all(c, o.bindings, ask_bind, AMQP_QUEUE_BIND_OK_METHOD, NULL, "queue.bind");
}

static uint64_t left_in_each;

static void ask_delete(link_t c, amqp_channel_t channel, uint64_t queue) {
  amqp_queue_delete_t method = {.queue = amqp_cstring_bytes(names[queue])};
  tell(c, channel, AMQP_QUEUE_DELETE_METHOD, &method, "queue.delete");
}

static void take_deleted(const event_t *e) {
  const amqp_queue_delete_ok_t *ok = e->method;
  if (!*o.type && ok->message_count != left_in_each) /* of a stream nothing is taken */
    die("%u messages were left in a queue of %s instead of %" PRIu64, ok->message_count, prefix, left_in_each);
}

void delete_all(link_t c, uint64_t left) {
  left_in_each = left;
  if (*o.exchange) {
    amqp_exchange_delete(c, CHANNEL, amqp_cstring_bytes(exchange), 0);
    check("exchange.delete", amqp_get_rpc_reply(c));
  }
  ask_all(c, queue_count(), ask_delete, AMQP_QUEUE_DELETE_OK_METHOD, take_deleted, "queue.delete");
}
