// What programs on amqplib do, each scenario by its name: `node amqplib.js URL SCENARIO` says "ok" or throws.
'use strict';

const assert = require('node:assert');
const { once } = require('node:events');
const amqp = require(process.env.AMQPLIB);

/** A promise of the first `count` messages a queue's consumer gets, each handed to `take`. */
async function consume(channel, queue, count, take, options = {}) {
  const bodies = [];
  let consumer;
  await new Promise((resolve, reject) => {
    const onMessage = (message) => {
      if (message === null) return reject(new Error('cancelled by the broker'));
      bodies.push(message.content.toString());
      take(message);
      if (bodies.length === count) resolve();
    };
    consumer = channel.consume(queue, onMessage, options);
    consumer.catch(reject);
  });
  await channel.cancel((await consumer).consumerTag);
  return bodies;
}

const numbers = (count) => Array.from({ length: count }, (_, number) => String(number));

/** A channel, and a stream with a hundred messages, every other one tagged "odd". */
async function stream(connection, name) {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'stream', 'x-max-age': '7D' } });
  for (const number of numbers(100)) {
    const headers = { 'x-stream-filter-value': Number(number) % 2 ? 'odd' : 'even' };
    channel.sendToQueue(name, Buffer.from(number), { headers });
  }
  await channel.waitForConfirms();
  return channel;
}

const scenarios = {
  async confirmsAndConsumers(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    for (const number of numbers(500)) channel.sendToQueue(queue, Buffer.from(number), { persistent: true });
    await channel.waitForConfirms();
    await channel.prefetch(10);
    assert.deepStrictEqual(await consume(channel, queue, 500, (message) => channel.ack(message)), numbers(500));
    assert.strictEqual((await channel.checkQueue(queue)).messageCount, 0);
  },

  async prefetchBoundsWhatIsOut(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    for (const number of numbers(10)) channel.sendToQueue(queue, Buffer.from(number));
    await channel.waitForConfirms();
    await channel.prefetch(3);
    const held = [];
    await consume(channel, queue, 3, (message) => held.push(message));
    assert.strictEqual((await channel.checkQueue(queue)).messageCount, 7);
    channel.ack(held[1], true);
    channel.nack(held[2]);
    const again = await channel.get(queue);
    assert.strictEqual(again.content.toString(), '2');
    assert.strictEqual(again.fields.redelivered, true);
    assert.strictEqual(again.fields.messageCount, 7);
    channel.reject(again, false);
    assert.strictEqual((await channel.purgeQueue(queue)).messageCount, 7);
    assert.strictEqual(await channel.get(queue), false);
  },

  async everythingArrivesAsItWasSent(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const headers = {
      text: 'grün', small: 1, negative: -70000, big: 2 ** 40, half: 0.5, yes: true, nothing: null,
      bytes: Buffer.from([0, 255]), table: { deep: { er: 1 } }, list: [1, 'two', { three: false }],
    };
    const sent = {
      headers, contentType: 'text/plain', contentEncoding: 'utf-8', deliveryMode: 2, priority: 3, correlationId: 'c',
      replyTo: 'r', expiration: '60000', messageId: 'm', timestamp: 1700000000, type: 't', userId: 'guest', appId: 'a',
    };
    const body = Buffer.alloc(1_000_000, 'abc');
    channel.sendToQueue(queue, body, sent);
    await channel.waitForConfirms();
    const { content, properties } = await channel.get(queue, { noAck: true });
    assert.ok(content.equals(body));
    delete properties.clusterId;
    assert.deepStrictEqual({ ...properties, headers: { ...properties.headers } }, sent);
  },

  async exchangesRouteAndReturn(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.assertExchange('node.topic', 'topic', { durable: false, autoDelete: true });
    await channel.assertExchange('node.fanout', 'fanout', { durable: false, autoDelete: true });
    await channel.bindExchange('node.fanout', 'node.topic', 'a.*');
    await channel.bindQueue(queue, 'node.fanout', '');
    const returned = once(channel, 'return');
    channel.publish('node.topic', 'b.b', Buffer.from('back'), { mandatory: true });
    channel.publish('node.topic', 'a.b', Buffer.from('through'), { mandatory: true });
    await channel.waitForConfirms();
    const [message] = await returned;
    assert.deepStrictEqual([message.fields.replyCode, message.content.toString()], [312, 'back']);
    assert.deepStrictEqual(await consume(channel, queue, 1, (each) => channel.ack(each)), ['through']);
  },

  async refusalsAreErrorsOfTheirPublish(connection) {
    const channel = await connection.createConfirmChannel();
    const full = { exclusive: true, maxLength: 1, overflow: 'reject-publish' };
    const { queue } = await channel.assertQueue('', full);
    const publish = () => new Promise((resolve) => channel.sendToQueue(queue, Buffer.from('x'), {}, resolve));
    assert.strictEqual(await publish(), null);
    assert.ok((await publish()) instanceof Error);
  },

  async mistakesAreErrorEventsOfTheirChannel(connection) {
    const channel = await connection.createChannel();
    const failed = once(channel, 'error');
    await assert.rejects(channel.checkQueue('node.none'), /404 .*NOT_FOUND - no queue 'node.none' in vhost '\/'/);
    const [error] = await failed;
    assert.deepStrictEqual([error.code, error.classId, error.methodId], [404, 50, 10]);
    await (await connection.createChannel()).assertQueue('', { exclusive: true });
  },

  async aConsumerIsToldOfItsQueuesEnd(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const told = new Promise((resolve) => channel.consume(queue, resolve));
    await channel.deleteQueue(queue);
    assert.strictEqual(await told, null);
  },

  async repliesComeDirectly(connection) {
    const server = await connection.createChannel();
    const { queue } = await server.assertQueue('', { exclusive: true });
    await server.consume(queue, (message) => {
      const { replyTo, correlationId } = message.properties;
      server.sendToQueue(replyTo, Buffer.from(`re: ${message.content}`), { correlationId });
    }, { noAck: true });
    const client = await connection.createChannel();
    const reply = new Promise((resolve) => client.consume('amq.rabbitmq.reply-to', resolve, { noAck: true }));
    client.sendToQueue(queue, Buffer.from('hello'), { replyTo: 'amq.rabbitmq.reply-to', correlationId: '7' });
    const { content, properties } = await reply;
    assert.deepStrictEqual([content.toString(), properties.correlationId], ['re: hello', '7']);
  },

  async streamsAreReadFromAnywhere(connection) {
    const channel = await stream(connection, 'node.stream');
    const read = async (count, from, more = {}) => {
      const reading = await connection.createChannel();
      await reading.prefetch(10);
      const offsets = [];
      await consume(reading, 'node.stream', count, (message) => {
        offsets.push(message.properties.headers['x-stream-offset']);
        reading.ack(message);
      }, { arguments: { 'x-stream-offset': from, ...more } });
      await reading.close();
      return offsets;
    };
    const all = numbers(100).map(Number);
    for (const from of ['first', 0, { '!': 'timestamp', value: 0 }, '1h']) {
      assert.deepStrictEqual(await read(100, from), all);
    }
    assert.deepStrictEqual(await read(10, 90), all.slice(90));
    const odd = all.filter((number) => number % 2);
    assert.deepStrictEqual(await read(50, 'first', { 'x-stream-filter': 'odd' }), odd);
    assert.deepStrictEqual(await read(50, 'first', { 'x-stream-filter': ['odd', 'none'] }), odd);
    const following = await connection.createChannel();
    await following.prefetch(1);
    const next = new Promise((resolve) => { following.consume('node.stream', resolve); });
    await following.checkQueue('node.stream'); // answered behind the consumer
    channel.sendToQueue('node.stream', Buffer.from('100'));
    assert.strictEqual((await next).properties.headers['x-stream-offset'], 100);
    assert.deepStrictEqual(await read(1, 'last'), [100]);
    assert.strictEqual((await channel.checkQueue('node.stream')).messageCount, 101);
    await channel.deleteQueue('node.stream');
  },

  async aGroupGoesOnWhereItsMemberLeftOff(connection) {
    const channel = await stream(connection, 'node.grouped');
    const read = async (count) => {
      const reading = await connection.createChannel();
      await reading.prefetch(10);
      const offsets = [];
      await consume(reading, 'node.grouped', count, (message) => {
        if (offsets.push(message.properties.headers['x-stream-offset']) <= count) reading.ack(message);
      }, { arguments: { 'x-group': 'workers', 'x-stream-offset': 'first' } });
      await reading.close();
      return offsets.slice(0, count);
    };
    const all = numbers(100).map(Number);
    assert.deepStrictEqual(await read(40), all.slice(0, 40));
    assert.deepStrictEqual(await read(60), all.slice(40));
    await channel.deleteQueue('node.grouped');
  },

  async whatStreamsRefuseIsAnErrorOfItsChannel(connection) {
    const channel = await stream(connection, 'node.refusing');
    const refused = async (attempt) => {
      const trying = await connection.createChannel();
      const failed = once(trying, 'error');
      await assert.rejects(attempt(trying));
      return (await failed)[0];
    };
    const unlimited = await refused((trying) => trying.consume('node.refusing', () => {}));
    assert.match(unlimited.message, /406 .*consumer prefetch count is not set for stream queue 'node.refusing' in vhost '\/'/);
    const odd = await refused(async (trying) => {
      await trying.prefetch(1);
      await trying.consume('node.refusing', () => {}, { arguments: { 'x-stream-offset': 'begin' } });
    });
    assert.match(odd.message, /406 .*x-stream-offset/);
    await channel.deleteQueue('node.refusing');
  },

  async graveMistakesAreErrorEventsOfTheConnection(connection) {
    const failed = once(connection, 'error');
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    await assert.rejects(channel.assertExchange('node.odd', 'no-such-type'));
    const [error] = await failed;
    assert.strictEqual(error.code, 503);
    return 'closed';
  },
};

async function main(url, scenario) {
  const connection = await amqp.connect(url);
  const end = await scenarios[scenario](connection);
  if (end !== 'closed') await connection.close();
  console.log('ok');
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
