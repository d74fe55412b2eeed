/* What is in a message, and the checks of what comes and of what is confirmed. */
#include "amqpload.h"

static int write_id(char *id, uint64_t queue, uint64_t number) {
  return snprintf(id, NAME_BYTES, "%s-%012" PRIu64, queue_name(queue), number);
}

static int write_source(char *source, uint64_t queue, uint64_t number) {
  return snprintf(source, NAME_BYTES, "sensor %" PRIu64 " of %" PRIu64, number * 2654435761u, queue);
}

void begin_message(message_t *m, int is_distinct) {
  memset(m, 0, sizeof *m);
  m->body = allocate(o.bytes, 1);
  memset(m->body, 'x', o.bytes);
  m->properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
  m->properties.delivery_mode = o.persistent ? 2 : 1;
  if (o.priorities) m->properties._flags |= AMQP_BASIC_PRIORITY_FLAG;
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

void fill_message(message_t *m, uint64_t queue, uint64_t number, double at) {
  head_t head = {number, queue, at};
  memcpy(m->body, &head, sizeof head);
  if (o.priorities) m->properties.priority = (uint8_t)(number % o.priorities);
  if (!m->properties.headers.num_entries) return;
  m->properties.message_id.bytes = m->id;
  m->properties.message_id.len = (size_t)write_id(m->id, queue, number);
  m->headers[0].value.value.i64 = (int64_t)number;
  m->headers[1].value.value.bytes.bytes = m->source;
  m->headers[1].value.value.bytes.len = (size_t)write_source(m->source, queue, number);
  m->headers[2].value.value.f64 = (double)number / 8;
}

amqp_bytes_t body_of(const message_t *m) {
  amqp_bytes_t body = {o.bytes, m->body};
  return body;
}

/* --- deliveries -------------------------------------------------------------------------------------------------- */

inbox_t *new_inboxes(uint64_t count, const uint64_t *expected, int is_ordered) {
  inbox_t *inboxes = allocate(count, sizeof *inboxes);
  for (uint64_t i = 0; i < count; i++) {
    inboxes[i].expected = expected[i];
    inboxes[i].seen = is_ordered ? NULL : allocate(expected[i], 1);
  }
  return inboxes;
}

/* It comes from the queue that the consumer tag says: a message's head alone could be another queue's copy. */
static uint64_t queue_of(const event_t *e) {
  const amqp_basic_deliver_t *deliver = e->method;
  char tag[32];
  size_t length = deliver->consumer_tag.len < sizeof tag - 1 ? deliver->consumer_tag.len : sizeof tag - 1;
  memcpy(tag, deliver->consumer_tag.bytes, length);
  tag[length] = 0;
  return strtoull(tag, NULL, 10);
}

head_t note(inbox_t *inboxes, const event_t *e) {
  head_t head;
  uint64_t queue = queue_of(e);
  inbox_t *inbox = &inboxes[queue];
  const char *name = queue_name(queue);
  memcpy(&head, e->head, sizeof head);
  if (((const amqp_basic_deliver_t *)e->method)->redelivered)
    die("message %" PRIu64 " of %s is marked redelivered", inbox->got, name);
  if (e->bytes != o.bytes)
    die("message %" PRIu64 " of %s has %" PRIu64 " bytes instead of %" PRIu64, inbox->got, name, e->bytes, o.bytes);
  int is_copy = !strcmp(o.exchange, "fanout"); /* all queues get what was numbered for the first */
  if (head.queue != (is_copy ? 0 : queue) || head.number >= inbox->expected)
    die("%s: message %" PRIu64 " of queue %" PRIu64 " came, which is not its own", name, head.number, head.queue);
  if (!inbox->seen) {
    if (head.number != inbox->got)
      die("%s: message %" PRIu64 " came where %" PRIu64 " was due", name, head.number, inbox->got);
  } else if (inbox->seen[head.number]++) {
    die("%s: message %" PRIu64 " came twice", name, head.number);
  }
  inbox->got++;
  return head;
}

static int is_same(amqp_bytes_t bytes, const char *text, int length) {
  return bytes.len == (size_t)length && !memcmp(bytes.bytes, text, bytes.len);
}

void check_distinct(const event_t *e, uint64_t queue, uint64_t number) {
  const amqp_basic_properties_t *p = e->properties;
  char id[NAME_BYTES], source[NAME_BYTES];
  int right = 0;
  for (int i = 0; i < p->headers.num_entries; i++) {
    const amqp_field_value_t *value = &p->headers.entries[i].value;
    if (is_same(p->headers.entries[i].key, "number", 6))
      right += value->kind == AMQP_FIELD_KIND_I64 && value->value.i64 == (int64_t)number;
    else if (is_same(p->headers.entries[i].key, "source", 6))
      right += value->kind == AMQP_FIELD_KIND_UTF8 &&
               is_same(value->value.bytes, source, write_source(source, queue, number));
    else if (is_same(p->headers.entries[i].key, "measured", 8))
      right += value->kind == AMQP_FIELD_KIND_F64 && value->value.f64 == (double)number / 8;
  }
  if (right != 3 || !is_same(p->message_id, id, write_id(id, queue, number)))
    die("message %" PRIu64 " of %s came with another's message id or headers", number, queue_name(queue));
}

/* --- confirms ---------------------------------------------------------------------------------------------------- */

void begin_confirms(confirms_t *confirms, uint64_t messages) {
  memset(confirms, 0, sizeof *confirms);
  confirms->is_confirmed = allocate(messages, 1);
}

static void confirm_one(confirms_t *confirms, uint64_t tag) {
  if (confirms->is_confirmed[tag - 1]) die("message %" PRIu64 " was confirmed twice", tag);
  confirms->is_confirmed[tag - 1] = 1;
  confirms->confirmed++;
}

static void confirm(confirms_t *confirms, uint64_t tag, int is_multiple) {
  uint64_t before = confirms->confirmed;
  if (!tag || tag > confirms->sent) die("tag %" PRIu64 " was confirmed, of %" PRIu64 " published", tag, confirms->sent);
  if (!is_multiple) {
    confirm_one(confirms, tag);
    return;
  }
  for (; confirms->all_up_to < tag; confirms->all_up_to++)
    if (!confirms->is_confirmed[confirms->all_up_to]) confirm_one(confirms, confirms->all_up_to + 1);
  if (confirms->confirmed == before) die("tag %" PRIu64 " and all before were confirmed already", tag);
}

int hear(confirms_t *confirms, const event_t *e) {
  switch (e->id) {
    case AMQP_BASIC_ACK_METHOD: {
      const amqp_basic_ack_t *ack = e->method;
      confirm(confirms, ack->delivery_tag, ack->multiple);
      return 1;
    }
    case AMQP_BASIC_NACK_METHOD:
      die("message %" PRIu64 " was refused", ((const amqp_basic_nack_t *)e->method)->delivery_tag);
    case AMQP_BASIC_RETURN_METHOD:
      die("a message was returned");
    default:
      return 0;
  }
}
