/* Mode nothing: `flow` with one queue, against a server that keeps nothing: what the client takes itself.
 *
 * The server is a process of its own, which understands as much of AMQP 0-9-1 as this needs. It confirms what it has
 * read and passes it on to the newest consumer, both at once, whatever queues are named. Between two reads it rests
 * REST_US: if it did not, each publish would wake it up, and fewer would get through than with a broker that is busy.
 * From 50 to 3,000 it makes no difference.
 */
#include "amqpload.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  REST_US = 200,
  READ_BYTES = 1 << 18,
  AROUND = 8, /* bytes of a frame that are not its payload: seven before it, one behind */
  PEERS_MAX = 8
};

typedef struct {
  uint8_t *bytes;
  size_t length, room;
} buffer_t;

typedef struct {
  int socket, is_greeted, is_confirming;
  uint64_t published, confirmed;
  buffer_t in, out;
} peer_t;

static peer_t *peers[PEERS_MAX], *consumer;
static uint64_t delivered;

/* --- writing ----------------------------------------------------------------------------------------------------- */

static uint8_t *room_for(buffer_t *b, size_t count) {
  if (b->length + count > b->room) {
    b->room = 2 * (b->length + count);
    b->bytes = realloc(b->bytes, b->room);
    if (!b->bytes) die("no memory for %zu bytes", b->room);
  }
  return b->bytes + b->length;
}

static void put(buffer_t *b, const void *bytes, size_t count) {
  memcpy(room_for(b, count), bytes, count);
  b->length += count;
}

static void put_number(buffer_t *b, uint64_t number, int bytes) {
  for (int i = bytes - 1; i >= 0; i--) put(b, &(uint8_t){(uint8_t)(number >> (8 * i))}, 1);
}

static void put_frame(buffer_t *b, const uint8_t *channel, const void *payload, size_t length) {
  put_number(b, AMQP_FRAME_METHOD, 1);
  put(b, channel, 2);
  put_number(b, length, 4);
  put(b, payload, length);
  put_number(b, AMQP_FRAME_END, 1);
}

/* A method without arguments that came before it on the wire: its id, and what is said behind. */
static void answer(peer_t *p, const uint8_t *channel, amqp_method_number_t id, const char *said, size_t length) {
  static buffer_t b;
  b.length = 0;
  put_number(&b, id, 4);
  put(&b, said, length);
  put_frame(&p->out, channel, b.bytes, b.length);
}

#define ANSWER(p, channel, id, said) answer(p, channel, id, said, sizeof said - 1)

#define TUNED "\0\1\0\2\0\0\0\0" /* one channel, frames of 128 KB, no heartbeats */

static const uint8_t CONNECTION[2] = {0, 0}, FIRST_CHANNEL[2] = {0, CHANNEL};

static void write_out(peer_t *p) {
  size_t written = 0;
  while (written < p->out.length) {
    ssize_t count = send(p->socket, p->out.bytes + written, p->out.length - written, MSG_NOSIGNAL);
    if (count > 0)
      written += (size_t)count;
    else if (errno != EINTR)
      break; /* it is gone; reading tells */
  }
  p->out.length = 0;
}

/* --- what comes -------------------------------------------------------------------------------------------------- */

static void deliver(void) {
  static buffer_t b;
  b.length = 0;
  put_number(&b, AMQP_BASIC_DELIVER_METHOD, 4);
  put(&b, "\0010", 2); /* the tag of flow's only consumer */
  put_number(&b, ++delivered, 8);
  put(&b, "\0\0\0", 3); /* not redelivered; by the default exchange; the key is not looked at */
  put_frame(&consumer->out, FIRST_CHANNEL, b.bytes, b.length);
}

static void take_method(peer_t *p, const uint8_t *frame) {
  const uint8_t *channel = frame + 1, *said = frame + 7;
  uint32_t id = (uint32_t)said[0] << 24 | (uint32_t)said[1] << 16 | (uint32_t)said[2] << 8 | said[3];
  switch (id) {
    case AMQP_BASIC_PUBLISH_METHOD: p->published++; break;
    case AMQP_BASIC_ACK_METHOD:
    case AMQP_CONNECTION_TUNE_OK_METHOD: break;
    case AMQP_CONNECTION_START_OK_METHOD: ANSWER(p, CONNECTION, AMQP_CONNECTION_TUNE_METHOD, TUNED); break;
    case AMQP_CONNECTION_OPEN_METHOD: ANSWER(p, CONNECTION, AMQP_CONNECTION_OPEN_OK_METHOD, "\0"); break;
    case AMQP_CONNECTION_CLOSE_METHOD: ANSWER(p, CONNECTION, AMQP_CONNECTION_CLOSE_OK_METHOD, ""); break;
    case AMQP_CHANNEL_OPEN_METHOD: ANSWER(p, channel, AMQP_CHANNEL_OPEN_OK_METHOD, "\0\0\0\0"); break;
    case AMQP_CHANNEL_CLOSE_METHOD: ANSWER(p, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, ""); break;
    case AMQP_QUEUE_DECLARE_METHOD: ANSWER(p, channel, AMQP_QUEUE_DECLARE_OK_METHOD, "\1q\0\0\0\0\0\0\0\0"); break;
    case AMQP_QUEUE_DELETE_METHOD: ANSWER(p, channel, AMQP_QUEUE_DELETE_OK_METHOD, "\0\0\0\0"); break;
    case AMQP_BASIC_QOS_METHOD: ANSWER(p, channel, AMQP_BASIC_QOS_OK_METHOD, ""); break;
    case AMQP_BASIC_CONSUME_METHOD:
      consumer = p;
      ANSWER(p, channel, AMQP_BASIC_CONSUME_OK_METHOD, "\0010");
      break;
    case AMQP_CONFIRM_SELECT_METHOD:
      p->is_confirming = 1;
      ANSWER(p, channel, AMQP_CONFIRM_SELECT_OK_METHOD, "");
      break;
    default: die("nothing answers %s", amqp_method_name(id));
  }
}

static void take_frame(peer_t *p, const uint8_t *frame, size_t length) {
  if (frame[0] == AMQP_FRAME_METHOD) {
    take_method(p, frame);
  } else if (consumer && (frame[0] == AMQP_FRAME_HEADER || frame[0] == AMQP_FRAME_BODY)) {
    if (frame[0] == AMQP_FRAME_HEADER) deliver();
    put(&consumer->out, frame, length);
  }
}

static void confirm(peer_t *p) {
  char said[9];
  if (!p->is_confirming || p->published == p->confirmed) return;
  p->confirmed = p->published;
  for (int i = 0; i < 8; i++) said[i] = (char)(p->confirmed >> (56 - 8 * i));
  said[8] = 1; /* and all before it */
  answer(p, FIRST_CHANNEL, AMQP_BASIC_ACK_METHOD, said, sizeof said);
}

static void take_in(peer_t *p) {
  size_t at = 0;
  if (!p->is_greeted && p->in.length >= 8) {
    p->is_greeted = 1, at = 8;
    ANSWER(p, CONNECTION, AMQP_CONNECTION_START_METHOD, "\0\x09\0\0\0\0\0\0\0\5PLAIN\0\0\0\5en_US");
  }
  while (p->in.length - at >= AROUND) {
    const uint8_t *frame = p->in.bytes + at;
    size_t length = AROUND + ((size_t)frame[3] << 24 | (size_t)frame[4] << 16 | (size_t)frame[5] << 8 | frame[6]);
    if (p->in.length - at < length) break;
    take_frame(p, frame, length);
    at += length;
  }
  p->in.length -= at;
  memmove(p->in.bytes, p->in.bytes + at, p->in.length);
  confirm(p);
}

/* --- the server -------------------------------------------------------------------------------------------------- */

static void let_go(int place) {
  peer_t *p = peers[place];
  if (consumer == p) consumer = NULL;
  close(p->socket);
  free(p->in.bytes);
  free(p->out.bytes);
  free(p);
  peers[place] = NULL;
}

static void read_peer(int place) {
  peer_t *p = peers[place];
  ssize_t count = recv(p->socket, room_for(&p->in, READ_BYTES), READ_BYTES, 0);
  if (count <= 0) {
    let_go(place);
    return;
  }
  p->in.length += (size_t)count;
  take_in(p);
}

static void let_in(int poller, int listener) {
  int place = 0, made = accept(listener, NULL, NULL);
  if (made < 0) die("accept: %s", strerror(errno));
  while (place < PEERS_MAX && peers[place]) place++;
  if (place == PEERS_MAX) die("nothing has %d clients at most", PEERS_MAX);
  setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  peers[place] = allocate(1, sizeof(peer_t));
  peers[place]->socket = made;
  epoll_ctl(poller, EPOLL_CTL_ADD, made, &(struct epoll_event){.events = EPOLLIN, .data.fd = place});
}

static void serve_nothing(int listener) {
  struct epoll_event events[PEERS_MAX + 1];
  int poller = epoll_create1(0);
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.fd = -1});
  for (;;) {
    usleep(REST_US);
    int count = epoll_wait(poller, events, PEERS_MAX + 1, -1);
    for (int i = 0; i < count; i++) {
      if (events[i].data.fd < 0)
        let_in(poller, listener);
      else
        read_peer(events[i].data.fd);
    }
    for (int place = 0; place < PEERS_MAX; place++)
      if (peers[place] && peers[place]->out.length) write_out(peers[place]);
  }
}

void mode_nothing(void) {
  char pid[32];
  struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof place;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (o.queues > 1) die("queues=%" PRIu64 ", and nothing has one", o.queues);
  if (bind(listener, (void *)&place, size) || listen(listener, PEERS_MAX) ||
      getsockname(listener, (void *)&place, &size))
    die("listen: %s", strerror(errno));
  pid_t server = fork();
  if (server < 0) die("fork: %s", strerror(errno));
  if (!server) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve_nothing(listener);
  }
  snprintf(pid, sizeof pid, "%d", server);
  host = "127.0.0.1", port = ntohs(place.sin_port), o.pids = pid;
  mode_flow();
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
}
