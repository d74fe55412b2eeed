/* Connections, methods and frames of amqpload. */
#include "amqpload.h"

#include <sys/time.h>

enum {
  FRAME_MAX = 131072,
  SILENCE_SECONDS = 60 /* from a broker that owes something: it will not come */
};

void check(const char *what, amqp_rpc_reply_t reply) {
  if (reply.reply_type == AMQP_RESPONSE_NORMAL) return;
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
    event_t e = {.id = reply.reply.id, .method = reply.reply.decoded};
    die_of(what, &e);
  }
  die("%s: %s", what, amqp_error_string2(reply.library_error));
}

static void check_status(const char *what, int status) {
  if (status) die("%s: %s", what, amqp_error_string2(status));
}

void die_of(const char *what, const event_t *e) {
  if (e->id == AMQP_CHANNEL_CLOSE_METHOD) {
    const amqp_channel_close_t *close = e->method;
    die("%s: channel closed, %d %.*s", what, close->reply_code, (int)close->reply_text.len,
        (const char *)close->reply_text.bytes);
  }
  if (e->id == AMQP_CONNECTION_CLOSE_METHOD) {
    const amqp_connection_close_t *close = e->method;
    die("%s: connection closed, %d %.*s", what, close->reply_code, (int)close->reply_text.len,
        (const char *)close->reply_text.bytes);
  }
  die("%s: the broker sent %s instead", what, amqp_method_name(e->id));
}

link_t open_channel(void) {
  link_t c = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(c);
  int status = amqp_socket_open(socket, host, port);
  if (status) die("connect to %s port %d: %s", host, port, amqp_error_string2(status));
  check("login", amqp_login(c, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"));
  amqp_channel_open(c, CHANNEL);
  check("channel.open", amqp_get_rpc_reply(c));
  return c;
}

void open_more(link_t c, amqp_channel_t last) {
  for (amqp_channel_t channel = CHANNEL + 1; channel <= last; channel++) {
    amqp_channel_open(c, channel);
    check("channel.open", amqp_get_rpc_reply(c));
  }
}

void close_connection(link_t c) {
  check("channel.close", amqp_channel_close(c, CHANNEL, AMQP_REPLY_SUCCESS));
  check("connection.close", amqp_connection_close(c, AMQP_REPLY_SUCCESS));
  amqp_destroy_connection(c);
}

void tell(link_t c, amqp_channel_t channel, amqp_method_number_t id, void *method, const char *what) {
  check_status(what, amqp_send_method(c, channel, id, method));
}

void publish(link_t c, const char *exchange, const char *key, const amqp_basic_properties_t *p, amqp_bytes_t body) {
  check_status("publish", amqp_basic_publish(c, CHANNEL, amqp_cstring_bytes(exchange), amqp_cstring_bytes(key), 0, 0,
                                             p, body));
}

void ack(link_t c, uint64_t tag, int is_multiple) {
  check_status("ack", amqp_basic_ack(c, CHANNEL, tag, is_multiple));
}

void qos(link_t c, uint64_t prefetch, int is_global) {
  amqp_basic_qos(c, CHANNEL, 0, (uint16_t)prefetch, is_global);
  check("basic.qos", amqp_get_rpc_reply(c));
}

void confirm_select(link_t c) {
  amqp_confirm_select(c, CHANNEL);
  check("confirm.select", amqp_get_rpc_reply(c));
}

void ask_consume(link_t c, const char *queue, const char *tag, int no_ack) {
  amqp_basic_consume_t method = {
      .queue = amqp_cstring_bytes(queue), .consumer_tag = amqp_cstring_bytes(tag), .no_ack = no_ack};
  tell(c, CHANNEL, AMQP_BASIC_CONSUME_METHOD, &method, "basic.consume");
}

void text_argument(amqp_table_entry_t *argument, const char *name, const char *text) {
  argument->key = amqp_cstring_bytes(name);
  argument->value.kind = AMQP_FIELD_KIND_UTF8;
  argument->value.value.bytes = amqp_cstring_bytes(text);
}

/* --- what comes -------------------------------------------------------------------------------------------------- */

static void next_frame(link_t c, amqp_frame_t *f, const char *what) {
  struct timeval patience = {SILENCE_SECONDS, 0};
  check_status(what, amqp_simple_wait_frame_noblock(c, f, &patience));
}

/* The rest of a message whose basic.deliver has come: nothing else comes on its channel meanwhile. */
static void take_message(link_t c, event_t *e) {
  amqp_frame_t f;
  uint64_t bytes = 0;
  e->tag = ((const amqp_basic_deliver_t *)e->method)->delivery_tag;
  next_frame(c, &f, "waiting for a message's header");
  if (f.frame_type != AMQP_FRAME_HEADER) die("no header came behind basic.deliver");
  e->bytes = f.payload.properties.body_size;
  e->properties = f.payload.properties.decoded;
  while (bytes < e->bytes) {
    next_frame(c, &f, "waiting for a message's body");
    size_t length = f.payload.body_fragment.len;
    if (f.frame_type != AMQP_FRAME_BODY || bytes + length > e->bytes)
      die("no body, or too long a one, came behind a header");
    if (bytes < HEAD_BYTES) {
      size_t room = HEAD_BYTES - bytes;
      memcpy(e->head + bytes, f.payload.body_fragment.bytes, length < room ? length : room);
    }
    bytes += length;
  }
}

static void take(link_t c, const amqp_frame_t *f, event_t *e, const char *what) {
  if (f->frame_type != AMQP_FRAME_METHOD) die("%s: a frame came that belongs to no method", what);
  e->id = f->payload.method.id;
  e->method = f->payload.method.decoded;
  e->channel = f->channel;
  if (e->id == AMQP_BASIC_DELIVER_METHOD) take_message(c, e);
}

void next_event(link_t c, event_t *e, const char *what) {
  amqp_frame_t f;
  amqp_maybe_release_buffers(c);
  next_frame(c, &f, what);
  take(c, &f, e, what);
}

int event_if_any(link_t c, event_t *e) {
  amqp_frame_t f;
  struct timeval none = {0, 0};
  amqp_maybe_release_buffers(c);
  int status = amqp_simple_wait_frame_noblock(c, &f, &none);
  if (status == AMQP_STATUS_TIMEOUT) return 0;
  check_status("reading", status);
  take(c, &f, e, "reading");
  return 1;
}

void expect(link_t c, amqp_method_number_t id, event_t *e, const char *what) {
  next_event(c, e, what);
  if (e->id != id) die_of(what, e);
}
