/* What the files of amqpload share. main.c says what the program does. */
#ifndef AMQPLOAD_H
#define AMQPLOAD_H

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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  CHANNEL = 1,
  UNANSWERED = 50, /* requests under way at most: their answers fit into the socket's buffers */
  CHANNELS = 32,   /* that declare: a channel's requests are carried out one after the other */
  NAME_BYTES = 256,
  HEAD_BYTES = 64 /* of a body that are looked at */
};

/* main.c: the options, in the order of its table. */
typedef struct {
  uint64_t messages, bytes, window, queues, consumers, prefetch, ack_every, connections, rate, priorities, bindings;
  uint64_t global, confirms, persistent, warmup, work_ms;
  const char *exchange, *order, *pids, *disk, *type, *group;
} options_t;
extern options_t o;
extern const char *host, *prefix;
extern int port;

double now(void);
void die(const char *layout, ...) __attribute__((format(printf, 1, 2), noreturn));
void *allocate(uint64_t count, size_t bytes);
void run(pthread_t *thread, void *(*work)(void *), void *of);
/* Adds a figure to the line of JSON that is printed at the end. */
void figure(const char *name, double value);
/* `count` things from one time to another, as a figure: a second. */
void rate_figure(const char *name, uint64_t count, double from, double to);
/* p50, p99, p99.9 and the greatest of latencies in seconds, as figures in ms; sorts them. */
void latency_figures(double *latencies, uint64_t count);

/* What the broker's processes have used so far: processor seconds, and bytes written to disk, as the kernel counts them
 * by process and, where asked for, by disk. */
typedef struct {
  double cpu_seconds, disk_bytes, device_bytes;
} usage_t;
usage_t usage(void);
/* The same, with those by disk: what is still in memory is written first, so nothing should be timed meanwhile. */
usage_t usage_with_disk(void);
void usage_figures(usage_t before, usage_t after, uint64_t messages);

/* wire.c: connections, methods, frames. */
typedef amqp_connection_state_t link_t;
link_t open_channel(void);
/* Opens more channels, up to `last`. */
void open_more(link_t c, amqp_channel_t last);
/* Ends when the broker has carried out everything before it: the last ack, too. */
void close_connection(link_t c);
void tell(link_t c, amqp_channel_t channel, amqp_method_number_t id, void *method, const char *what);
void publish(link_t c, const char *exchange, const char *key, const amqp_basic_properties_t *p, amqp_bytes_t body);
void ack(link_t c, uint64_t tag, int is_multiple);
void qos(link_t c, uint64_t prefetch, int is_global);
void ask_consume(link_t c, const char *queue, const char *tag, int no_ack);
void text_argument(amqp_table_entry_t *argument, const char *name, const char *text);
void confirm_select(link_t c);
void check(const char *what, amqp_rpc_reply_t reply);

typedef struct {
  amqp_method_number_t id; /* of the method that came */
  void *method;            /* what it says */
  amqp_channel_t channel;
  /* of basic.deliver alone: */
  uint64_t tag, bytes;
  char head[HEAD_BYTES];
  const amqp_basic_properties_t *properties;
} event_t;
/* The next method, with its message where it is basic.deliver; valid until the next call. */
void next_event(link_t c, event_t *e, const char *what);
/* The same; 0 where nothing has come. */
int event_if_any(link_t c, event_t *e);
/* The next method, which must be this one. */
void expect(link_t c, amqp_method_number_t id, event_t *e, const char *what);
/* Ends the program: the broker closed the channel or the connection, or sent what it should not. */
void die_of(const char *what, const event_t *e) __attribute__((noreturn));

/* topology.c: the queues of a run, many at a time. */
char *queue_name(uint64_t queue);
/* Gives the queues their names; declare_queues does so by itself. */
void name_queues(void);
void declare_queues(link_t c);
/* Binds queues to an exchange of its own, where o.exchange is a type. */
void bind_queues(link_t c);
/* Deletes all that was declared; dies if a queue does not have `left` messages. */
void delete_all(link_t c, uint64_t left);
const char *exchange_name(void);
/* The routing key of message `number`. */
const char *routing_key(uint64_t number);

/* messages.c: what is in a message, and the check that every one came as it should. */
typedef struct {
  uint64_t number; /* in its queue */
  uint64_t queue;
  double at; /* when it was due */
} head_t;
enum { BODY_BYTES_MIN = sizeof(head_t) };
typedef struct {
  char *body;
  char id[NAME_BYTES], source[NAME_BYTES];
  amqp_table_entry_t headers[3];
  amqp_basic_properties_t properties;
} message_t;
void begin_message(message_t *m, int is_distinct);
void fill_message(message_t *m, uint64_t queue, uint64_t number, double at);
amqp_bytes_t body_of(const message_t *m);
/* What is known of one queue: how much was delivered, and which messages. */
typedef struct {
  uint64_t expected, got;
  uint8_t *seen; /* one for each message; NULL where they must come in order */
} inbox_t;
inbox_t *new_inboxes(uint64_t count, const uint64_t *expected, int is_ordered);
/* Checks a delivery and notes it; returns what is in its head. */
head_t note(inbox_t *inboxes, const event_t *e);
void check_distinct(const event_t *e, uint64_t queue, uint64_t number);

/* A publisher's confirms: tags come in any order, and `multiple` means all up to it that are not confirmed yet. */
typedef struct {
  uint8_t *is_confirmed;
  uint64_t sent, confirmed, all_up_to;
} confirms_t;
void begin_confirms(confirms_t *confirms, uint64_t messages);
/* Notes basic.ack; returns 0 for what a publisher has no business with; nacks and returns end the program. */
int hear(confirms_t *confirms, const event_t *e);

/* The modes. */
void mode_flow(void);
void mode_each(void);
void mode_latency(void);
void mode_devices(void);
void mode_round_trips(void);
void mode_commits(void);
void mode_declarations(void);
void mode_stream(void);
void mode_members(void);
void mode_nothing(void);

#endif
