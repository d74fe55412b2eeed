/* amqpload: load for any AMQP 0-9-1 broker, by librabbitmq; prints its rates as one line of JSON.
 *
 *   cc -O2 -o amqpload amqpload.c -lrabbitmq -lpthread
 *   ./amqpload HOST PORT QUEUE MESSAGES BODY_BYTES CONFIRM_WINDOW both|seq|each CONNECTIONS
 *
 * both: a producer and a consumer, each with a connection, at the same time.
 * seq:  the same, but the consumer begins when everything is published.
 * each: CONNECTIONS connections share the messages; each publishes to a queue of its own and consumes from it, and
 *       every message has a message id and three headers that no other message has.
 *
 * Messages are persistent, queues durable (and deleted at the end). A producer keeps at most CONFIRM_WINDOW messages
 * unconfirmed; a consumer has a prefetch and acks many at once. A rate is counted to the last confirm, or the last
 * message in the consumer's hands; a producer's from its first message on, a consumer's from the first it gets, end to
 * end from the start of both.
 *
 * Every message is checked: it must be the next of its queue, whole, never redelivered, confirmed once; none may be
 * left in its queue. Anything else ends the program with a sentence and exit code 1. guest/guest, vhost "/".
 */
#if defined(__has_include) && __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#endif
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum {
  CHANNEL = 1,
  FRAME_MAX = 131072,
  PREFETCH = 1000,
  ACK_EVERY = 100,
  EACH_PREFETCH = 200, /* of one connection of many: what is on its way both ways must fit into a socket's buffers, */
  EACH_ACK_EVERY = 50, /* since one thread writes and reads */
  ID_BYTES_MAX = 300,
  SILENCE_SECONDS = 60 /* from a broker that owes something: it will not come */
};

/* One queue, with its producer and its consumer. */
typedef struct {
  char name[256];
  int number;
  uint64_t messages;
  uint8_t *is_confirmed; /* one for each message */
  uint64_t confirmed, all_up_to, refused, returned;
  double published_from, confirmed_at, consumed_from, consumed_at;
} load_t;

static const char *host;
static int port, is_distinct;
static size_t body_bytes;
static uint64_t window;
static pthread_barrier_t everybody;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *layout, ...) {
  va_list more;
  va_start(more, layout);
  fputs("amqpload: ", stderr);
  vfprintf(stderr, layout, more);
  fputc('\n', stderr);
  va_end(more);
  exit(1);
}

/* --- connections ----------------------------------------------------------------------------------------------- */

/* The broker's reason, where it closes the channel or the connection. */
static void die_of_close(const char *what, const amqp_method_t *method) {
  if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
    const amqp_channel_close_t *close = method->decoded;
    die("%s: channel closed, %d %.*s", what, close->reply_code, (int)close->reply_text.len,
        (const char *)close->reply_text.bytes);
  }
  if (method->id == AMQP_CONNECTION_CLOSE_METHOD) {
    const amqp_connection_close_t *close = method->decoded;
    die("%s: connection closed, %d %.*s", what, close->reply_code, (int)close->reply_text.len,
        (const char *)close->reply_text.bytes);
  }
  die("%s: the broker sent %s instead", what, amqp_method_name(method->id));
}

static void check(const char *what, amqp_rpc_reply_t reply) {
  if (reply.reply_type == AMQP_RESPONSE_NORMAL) return;
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) die_of_close(what, &reply.reply);
  die("%s: %s", what, amqp_error_string2(reply.library_error));
}

static amqp_connection_state_t open_channel(void) {
  amqp_connection_state_t c = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(c);
  int status = amqp_socket_open(socket, host, port);
  if (status) die("connect to %s port %d: %s", host, port, amqp_error_string2(status));
  check("login", amqp_login(c, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"));
  amqp_channel_open(c, CHANNEL);
  check("channel.open", amqp_get_rpc_reply(c));
  return c;
}

static void close_connection(amqp_connection_state_t c) {
  /* The broker answers when everything before it is carried out: the last ack, too. */
  check("channel.close", amqp_channel_close(c, CHANNEL, AMQP_REPLY_SUCCESS));
  check("connection.close", amqp_connection_close(c, AMQP_REPLY_SUCCESS));
  amqp_destroy_connection(c);
}

static void next_frame(amqp_connection_state_t c, amqp_frame_t *frame, const char *what) {
  struct timeval patience = {SILENCE_SECONDS, 0};
  int status = amqp_simple_wait_frame_noblock(c, frame, &patience);
  if (status) die("%s: %s", what, amqp_error_string2(status));
}

/* --- a message ------------------------------------------------------------------------------------------------- */

/* What one message is made of; its number is the first 8 bytes of its body, the queue's the next 2. */
typedef struct {
  char *body;
  char id[ID_BYTES_MAX];
  char source[ID_BYTES_MAX];
  amqp_table_entry_t headers[3];
  amqp_basic_properties_t properties;
} message_t;

enum { BODY_BYTES_MIN = 10 };

static void make_body(char *body, const load_t *load, uint64_t number) {
  uint16_t queue = (uint16_t)load->number;
  memcpy(body, &number, sizeof number);
  memcpy(body + sizeof number, &queue, sizeof queue);
}

static int write_id(char *id, const load_t *load, uint64_t number) {
  return snprintf(id, ID_BYTES_MAX, "%s-%012" PRIu64, load->name, number);
}

static int write_source(char *source, const load_t *load, uint64_t number) {
  return snprintf(source, ID_BYTES_MAX, "sensor %" PRIu64 " of %d", number * 2654435761u, load->number);
}

static void begin_message(message_t *m) {
  memset(m, 0, sizeof *m);
  m->body = malloc(body_bytes);
  memset(m->body, 'x', body_bytes);
  m->properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
  m->properties.delivery_mode = 2;
  if (!is_distinct) return;
  m->properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG;
  m->headers[0].key = amqp_cstring_bytes("number");
  m->headers[0].value.kind = AMQP_FIELD_KIND_I64;
  m->headers[1].key = amqp_cstring_bytes("source");
  m->headers[1].value.kind = AMQP_FIELD_KIND_UTF8;
  m->headers[2].key = amqp_cstring_bytes("measured");
  m->headers[2].value.kind = AMQP_FIELD_KIND_F64;
  m->properties.headers.num_entries = 3;
  m->properties.headers.entries = m->headers;
}

static void fill_message(message_t *m, const load_t *load, uint64_t number) {
  make_body(m->body, load, number);
  if (!is_distinct) return;
  m->properties.message_id.bytes = m->id;
  m->properties.message_id.len = (size_t)write_id(m->id, load, number);
  m->headers[0].value.value.i64 = (int64_t)number;
  m->headers[1].value.value.bytes.bytes = m->source;
  m->headers[1].value.value.bytes.len = (size_t)write_source(m->source, load, number);
  m->headers[2].value.value.f64 = (double)number / 8;
}

static int is_same(amqp_bytes_t bytes, const char *text, int length) {
  return bytes.len == (size_t)length && !memcmp(bytes.bytes, text, bytes.len);
}

static void check_body(const load_t *load, uint64_t number, const char *body, size_t bytes) {
  char wanted[BODY_BYTES_MIN];
  uint64_t found;
  make_body(wanted, load, number);
  if (bytes != body_bytes)
    die("message %" PRIu64 " of %s has %zu bytes instead of %zu", number, load->name, bytes, body_bytes);
  memcpy(&found, body, sizeof found);
  if (memcmp(body, wanted, sizeof wanted))
    die("%s: message %" PRIu64 " came where %" PRIu64 " was due", load->name, found, number);
}

static void check_properties(const load_t *load, uint64_t number, const amqp_basic_properties_t *p) {
  char id[ID_BYTES_MAX], source[ID_BYTES_MAX];
  int right = 0;
  for (int i = 0; i < p->headers.num_entries; i++) {
    const amqp_field_value_t *value = &p->headers.entries[i].value;
    if (is_same(p->headers.entries[i].key, "number", 6))
      right += value->kind == AMQP_FIELD_KIND_I64 && value->value.i64 == (int64_t)number;
    else if (is_same(p->headers.entries[i].key, "source", 6))
      right += value->kind == AMQP_FIELD_KIND_UTF8 &&
               is_same(value->value.bytes, source, write_source(source, load, number));
    else if (is_same(p->headers.entries[i].key, "measured", 8))
      right += value->kind == AMQP_FIELD_KIND_F64 && value->value.f64 == (double)number / 8;
  }
  if (right != 3 || !is_same(p->message_id, id, write_id(id, load, number)))
    die("message %" PRIu64 " of %s came with another's message id or headers", number, load->name);
}

/* --- publishing ------------------------------------------------------------------------------------------------ */

static void publish(amqp_connection_state_t c, const load_t *load, message_t *m, uint64_t number) {
  amqp_bytes_t body = {body_bytes, m->body};
  fill_message(m, load, number);
  int status =
      amqp_basic_publish(c, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(load->name), 0, 0, &m->properties, body);
  if (status) die("publish: %s", amqp_error_string2(status));
}

static void confirm_one(load_t *load, uint64_t tag) {
  if (load->is_confirmed[tag - 1]) die("%s: message %" PRIu64 " was confirmed twice", load->name, tag);
  load->is_confirmed[tag - 1] = 1;
  load->confirmed++;
}

/* Tags come in any order, and `multiple` means all up to it that are not confirmed yet. */
static void confirm(load_t *load, uint64_t tag, int is_multiple, uint64_t sent) {
  uint64_t before = load->confirmed;
  if (!tag || tag > sent) die("%s: tag %" PRIu64 " was confirmed, of %" PRIu64 " published", load->name, tag, sent);
  if (!is_multiple) {
    confirm_one(load, tag);
    return;
  }
  for (; load->all_up_to < tag; load->all_up_to++)
    if (!load->is_confirmed[load->all_up_to]) confirm_one(load, load->all_up_to + 1);
  if (load->confirmed == before) die("%s: tag %" PRIu64 " and all before were confirmed already", load->name, tag);
}

/* What a publisher hears. Returns 0 for what is none of its business. */
static int hear(load_t *load, const amqp_frame_t *f, uint64_t sent) {
  if (f->frame_type != AMQP_FRAME_METHOD) return 0;
  switch (f->payload.method.id) {
    case AMQP_BASIC_ACK_METHOD: {
      const amqp_basic_ack_t *ack = f->payload.method.decoded;
      confirm(load, ack->delivery_tag, ack->multiple, sent);
      return 1;
    }
    case AMQP_BASIC_NACK_METHOD: {
      const amqp_basic_nack_t *nack = f->payload.method.decoded;
      uint64_t before = load->confirmed;
      confirm(load, nack->delivery_tag, nack->multiple, sent);
      load->refused += load->confirmed - before;
      return 1;
    }
    case AMQP_BASIC_RETURN_METHOD:
      load->returned++;
      return 1;
    case AMQP_BASIC_DELIVER_METHOD:
      return 0;
    default:
      die_of_close("waiting for confirms", &f->payload.method);
      return 0;
  }
}

static void *produce(void *load_) {
  load_t *load = load_;
  amqp_connection_state_t c = open_channel();
  message_t m;
  uint64_t sent = 0;
  begin_message(&m);
  amqp_confirm_select(c, CHANNEL);
  check("confirm.select", amqp_get_rpc_reply(c));
  load->published_from = now();
  while (load->confirmed < load->messages) {
    amqp_frame_t f;
    while (sent < load->messages && sent - load->confirmed < window) publish(c, load, &m, sent++);
    next_frame(c, &f, "waiting for confirms");
    hear(load, &f, sent);
    amqp_maybe_release_buffers(c);
  }
  load->confirmed_at = now();
  close_connection(c);
  free(m.body);
  return NULL;
}

/* --- consuming ------------------------------------------------------------------------------------------------- */

static void subscribe(amqp_connection_state_t c, const load_t *load, int prefetch) {
  amqp_basic_qos(c, CHANNEL, 0, (uint16_t)prefetch, 0);
  check("basic.qos", amqp_get_rpc_reply(c));
  amqp_basic_consume(c, CHANNEL, amqp_cstring_bytes(load->name), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
  check("basic.consume", amqp_get_rpc_reply(c));
}

static void ack(amqp_connection_state_t c, uint64_t tag) {
  int status = amqp_basic_ack(c, CHANNEL, tag, 1);
  if (status) die("ack: %s", amqp_error_string2(status));
}

static void *consume(void *load_) {
  load_t *load = load_;
  amqp_connection_state_t c = open_channel();
  subscribe(c, load, PREFETCH);
  for (uint64_t got = 0; got < load->messages;) {
    struct timeval patience = {SILENCE_SECONDS, 0};
    amqp_envelope_t e;
    check("waiting for messages", amqp_consume_message(c, &e, &patience, 0));
    if (!got) load->consumed_from = now();
    if (e.redelivered) die("message %" PRIu64 " of %s is marked redelivered", got, load->name);
    check_body(load, got, e.message.body.bytes, e.message.body.len);
    if (++got % ACK_EVERY == 0 || got == load->messages) ack(c, e.delivery_tag);
    amqp_destroy_envelope(&e);
    amqp_maybe_release_buffers(c);
  }
  load->consumed_at = now();
  close_connection(c);
  return NULL;
}

/* The rest of a message whose basic.deliver has come: nothing else comes on its channel meanwhile. */
static void take_message(amqp_connection_state_t c, const load_t *load, char *body, uint64_t number) {
  amqp_frame_t f;
  size_t bytes = 0;
  next_frame(c, &f, "waiting for a message's header");
  if (f.frame_type != AMQP_FRAME_HEADER) die("%s: no header came behind basic.deliver", load->name);
  if (f.payload.properties.body_size != body_bytes)
    die("message %" PRIu64 " of %s announces %" PRIu64 " bytes", number, load->name, f.payload.properties.body_size);
  check_properties(load, number, f.payload.properties.decoded);
  while (bytes < body_bytes) {
    next_frame(c, &f, "waiting for a message's body");
    if (f.frame_type != AMQP_FRAME_BODY || bytes + f.payload.body_fragment.len > body_bytes)
      die("%s: no body, or too long a one, came behind a header", load->name);
    memcpy(body + bytes, f.payload.body_fragment.bytes, f.payload.body_fragment.len);
    bytes += f.payload.body_fragment.len;
  }
  check_body(load, number, body, bytes);
}

/* Publish and consume on one connection, by one thread. */
static void *exchange(void *load_) {
  load_t *load = load_;
  amqp_connection_state_t c = open_channel();
  char *body = malloc(body_bytes);
  message_t m;
  uint64_t sent = 0, got = 0;
  begin_message(&m);
  amqp_confirm_select(c, CHANNEL);
  check("confirm.select", amqp_get_rpc_reply(c));
  subscribe(c, load, EACH_PREFETCH);
  pthread_barrier_wait(&everybody);
  load->published_from = load->consumed_from = now();
  while (load->confirmed < load->messages || got < load->messages) {
    amqp_frame_t f;
    while (sent < load->messages && sent - load->confirmed < window) publish(c, load, &m, sent++);
    next_frame(c, &f, "waiting for confirms and messages");
    if (!hear(load, &f, sent) && f.frame_type == AMQP_FRAME_METHOD) {
      const amqp_basic_deliver_t *deliver = f.payload.method.decoded;
      uint64_t tag = deliver->delivery_tag;
      if (deliver->redelivered) die("message %" PRIu64 " of %s is marked redelivered", got, load->name);
      take_message(c, load, body, got);
      if (++got % EACH_ACK_EVERY == 0 || got == load->messages) ack(c, tag);
      if (got == load->messages) load->consumed_at = now();
    } else if (load->confirmed == load->messages && !load->confirmed_at) {
      load->confirmed_at = now();
    }
    amqp_maybe_release_buffers(c);
  }
  close_connection(c);
  free(m.body);
  free(body);
  return NULL;
}

/* --- a run ----------------------------------------------------------------------------------------------------- */

static void run(pthread_t *thread, void *(*work)(void *), load_t *load) {
  if (pthread_create(thread, NULL, work, load)) die("no thread for %s", load->name);
}

static void run_both(load_t *load) {
  pthread_t producer, consumer;
  run(&consumer, consume, load);
  run(&producer, produce, load);
  pthread_join(producer, NULL);
  pthread_join(consumer, NULL);
}

static void run_each(load_t *loads, int count) {
  pthread_t *threads = calloc((size_t)count, sizeof *threads);
  pthread_barrier_init(&everybody, NULL, (unsigned)count);
  for (int i = 0; i < count; i++) run(&threads[i], exchange, &loads[i]);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  free(threads);
}

static void declare(amqp_connection_state_t c, load_t *load) {
  const amqp_queue_declare_ok_t *ok =
      amqp_queue_declare(c, CHANNEL, amqp_cstring_bytes(load->name), 0, 1, 0, 0, amqp_empty_table);
  check("queue.declare", amqp_get_rpc_reply(c));
  if (ok->message_count) die("%u messages are in %s already", ok->message_count, load->name);
}

static void delete(amqp_connection_state_t c, const load_t *load) {
  const amqp_queue_delete_ok_t *ok = amqp_queue_delete(c, CHANNEL, amqp_cstring_bytes(load->name), 0, 0);
  check("queue.delete", amqp_get_rpc_reply(c));
  if (ok->message_count) die("%u messages were left in %s", ok->message_count, load->name);
  if (load->refused || load->returned)
    die("%s: %" PRIu64 " messages were refused, %" PRIu64 " returned", load->name, load->refused, load->returned);
}

static double min(double a, double b) { return a < b ? a : b; }
static double max(double a, double b) { return a > b ? a : b; }

static void print_rates(const load_t *loads, int count, uint64_t messages, double started_at) {
  load_t all = loads[0];
  for (int i = 1; i < count; i++) {
    all.published_from = min(all.published_from, loads[i].published_from);
    all.confirmed_at = max(all.confirmed_at, loads[i].confirmed_at);
    all.consumed_from = min(all.consumed_from, loads[i].consumed_from);
    all.consumed_at = max(all.consumed_at, loads[i].consumed_at);
  }
  printf("{\"messages\":%" PRIu64 ",\"publish_msgs_per_s\":%.1f,\"consume_msgs_per_s\":%.1f,"
         "\"end_to_end_msgs_per_s\":%.1f}\n",
         messages, messages / max(all.confirmed_at - all.published_from, 1e-9),
         messages / max(all.consumed_at - all.consumed_from, 1e-9),
         messages / max(max(all.confirmed_at, all.consumed_at) - started_at, 1e-9));
}

int main(int argc, char **argv) {
  if (argc != 9) {
    fputs("usage: amqpload HOST PORT QUEUE MESSAGES BODY_BYTES CONFIRM_WINDOW both|seq|each CONNECTIONS\n", stderr);
    return 2;
  }
  const char *queue = argv[3], *mode = argv[7];
  uint64_t messages = strtoull(argv[4], NULL, 10);
  int count = strcmp(mode, "each") ? 1 : atoi(argv[8]);
  host = argv[1], port = atoi(argv[2]), body_bytes = strtoull(argv[5], NULL, 10), window = strtoull(argv[6], NULL, 10);
  is_distinct = !strcmp(mode, "each");
  if (body_bytes < BODY_BYTES_MIN || count < 1 || messages < (uint64_t)count || !window)
    die("at least %d bytes, one message for each connection, and a window of 1", BODY_BYTES_MIN);
  load_t *loads = calloc((size_t)count, sizeof *loads);
  amqp_connection_state_t c = open_channel();
  for (int i = 0; i < count; i++) {
    snprintf(loads[i].name, sizeof loads[i].name, "%s-%d", queue, i);
    loads[i].number = i;
    loads[i].messages = messages / (uint64_t)count + ((uint64_t)i < messages % (uint64_t)count);
    loads[i].is_confirmed = calloc(loads[i].messages, 1);
    declare(c, &loads[i]);
  }
  double started_at = now();
  if (!strcmp(mode, "both")) {
    run_both(loads);
  } else if (!strcmp(mode, "seq")) {
    produce(loads);
    consume(loads);
  } else if (!strcmp(mode, "each")) {
    run_each(loads, count);
    started_at = loads[0].published_from; /* connecting is not what is measured */
    for (int i = 1; i < count; i++) started_at = min(started_at, loads[i].published_from);
  } else {
    die("mode %s? There are both, seq and each", mode);
  }
  for (int i = 0; i < count; i++) delete(c, &loads[i]);
  print_rates(loads, count, messages, started_at);
  close_connection(c);
  return 0;
}
