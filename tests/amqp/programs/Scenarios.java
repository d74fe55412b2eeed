import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.StringRpcServer;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What programs on RabbitMQ's Java client do: {@code java Scenarios URL} carries all of it out and writes a line for each
 * scenario, its name and "ok" or what went wrong.
 */
public class Scenarios {
    private static final int SECONDS = 60;

    private interface Scenario {
        void run(Connection connection) throws Exception;
    }

    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("confirms", Scenarios::confirms);
        SCENARIOS.put("acknowledgements", Scenarios::acknowledgements);
        SCENARIOS.put("properties", Scenarios::properties);
        SCENARIOS.put("returns", Scenarios::returns);
        SCENARIOS.put("refusals", Scenarios::refusals);
        SCENARIOS.put("exchanges", Scenarios::exchanges);
        SCENARIOS.put("rpc", Scenarios::rpc);
        SCENARIOS.put("transactions", Scenarios::transactions);
        SCENARIOS.put("channel errors", Scenarios::channelErrors);
        SCENARIOS.put("connection errors", Scenarios::connectionErrors);
        SCENARIOS.put("cancellation", Scenarios::cancellation);
        SCENARIOS.put("streams", Scenarios::streams);
        SCENARIOS.put("stream errors", Scenarios::streamErrors);
        SCENARIOS.put("super streams", Scenarios::superStreams);
        SCENARIOS.put("groups", Scenarios::groups);
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setAutomaticRecoveryEnabled(false);
        for (Map.Entry<String, Scenario> scenario : SCENARIOS.entrySet()) {
            Connection connection = factory.newConnection();
            try {
                scenario.getValue().run(connection);
                System.out.println(scenario.getKey() + ": ok");
            } catch (Exception | AssertionError failure) {
                System.out.println(scenario.getKey() + ": " + failure);
                failure.printStackTrace();
            }
            if (connection.isOpen()) connection.close();
        }
    }

    // --- publishing -------------------------------------------------------------------------------------------------

    private static void confirms(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.confirmSelect();
        for (int number = 0; number < 500; number++)
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, bytes(number));
        channel.waitForConfirmsOrDie(SECONDS * 1000L);
        same(501L, channel.getNextPublishSeqNo());
        same(500L, channel.messageCount(queue));
    }

    private static void properties(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        Map<String, Object> headers = new HashMap<>();
        headers.put("byte", (byte) -1);
        headers.put("short", (short) -300);
        headers.put("int", 70_000);
        headers.put("long", 1L << 40);
        headers.put("float", 0.5f);
        headers.put("double", 1e300);
        headers.put("boolean", true);
        headers.put("nothing", null);
        headers.put("date", new Date(1_700_000_000_000L));
        headers.put("table", new HashMap<>(Map.of("deeper", 1)));
        headers.put("list", new ArrayList<>(List.of(1, true)));
        headers.put("decimal", new java.math.BigDecimal("3.14"));
        AMQP.BasicProperties sent = new AMQP.BasicProperties("text/plain", "utf-8", headers, 2, 5, "c", "r", "60000", "m",
            new Date(1_700_000_000_000L), "t", "guest", "a", null);
        byte[] body = new byte[1_000_000];
        Arrays.fill(body, (byte) 7);
        channel.confirmSelect();
        channel.basicPublish("", queue, sent, body);
        channel.waitForConfirmsOrDie(SECONDS * 1000L);
        GetResponse got = channel.basicGet(queue, true);
        same(Arrays.hashCode(body), Arrays.hashCode(got.getBody()));
        same(headers, got.getProps().getHeaders());
        same(sent.builder().headers(null).build().toString(), got.getProps().builder().headers(null).build().toString());
        same(0, got.getMessageCount());
        same(null, channel.basicGet(queue, true));
    }

    private static void returns(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        channel.addReturnListener(returned -> came.add(
            returned.getReplyCode() + " " + returned.getReplyText() + " " + new String(returned.getBody())));
        channel.confirmSelect();
        channel.basicPublish("amq.direct", "nowhere", true, MessageProperties.TEXT_PLAIN, "back".getBytes());
        channel.waitForConfirmsOrDie(SECONDS * 1000L);
        same("312 NO_ROUTE back", came.poll(SECONDS, TimeUnit.SECONDS));
    }

    private static void refusals(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        Map<String, Object> full = Map.of("x-max-length", 1, "x-overflow", "reject-publish");
        String queue = channel.queueDeclare("", false, true, true, full).getQueue();
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        channel.addConfirmListener((tag, multiple) -> came.add("ack"), (tag, multiple) -> came.add("nack"));
        channel.confirmSelect();
        channel.basicPublish("", queue, null, bytes(1));
        same("ack", came.poll(SECONDS, TimeUnit.SECONDS));
        channel.basicPublish("", queue, null, bytes(2));
        same("nack", came.poll(SECONDS, TimeUnit.SECONDS));
        same(false, channel.waitForConfirms(SECONDS * 1000L));
    }

    private static void exchanges(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.exchangeDeclare("java.topic", BuiltinExchangeType.TOPIC, false, true, null);
        channel.exchangeDeclare("java.headers", BuiltinExchangeType.HEADERS, false, true, true, null);
        channel.exchangeBind("java.headers", "java.topic", "a.#");
        channel.queueBind(queue, "java.headers", "", Map.of("x-match", "all", "colour", "green"));
        AMQP.BasicProperties green = new AMQP.BasicProperties.Builder().headers(Map.of("colour", "green")).build();
        channel.basicPublish("java.topic", "b", green, "no".getBytes());
        channel.basicPublish("java.topic", "a.b", null, "no".getBytes());
        channel.basicPublish("java.topic", "a.b", green, "yes".getBytes());
        same("yes", text(await(channel, queue)));
        channel.exchangeUnbind("java.headers", "java.topic", "a.#");
        channel.exchangeDelete("java.headers");
    }

    private static void transactions(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        Channel other = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.txSelect();
        channel.basicPublish("", queue, null, "never".getBytes());
        channel.txRollback();
        channel.basicPublish("", queue, null, "committed".getBytes());
        same(null, other.basicGet(queue, true));
        channel.txCommit();
        same("committed", text(await(other, queue)));
    }

    // --- consuming --------------------------------------------------------------------------------------------------

    private static void acknowledgements(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        for (int number = 0; number < 100; number++) channel.basicPublish("", queue, null, bytes(number));
        channel.basicQos(10);
        List<Integer> came = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(101);
        String tag = channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                throws IOException {
                int number = Integer.parseInt(new String(body));
                if (number == 50 && !envelope.isRedeliver()) {
                    channel.basicNack(envelope.getDeliveryTag(), false, true);
                } else {
                    came.add(number);
                    channel.basicAck(envelope.getDeliveryTag(), false);
                }
                all.countDown();
            }
        });
        same(true, all.await(SECONDS, TimeUnit.SECONDS));
        same(0L, channel.messageCount(queue));
        same(1L, channel.consumerCount(queue));
        channel.basicCancel(tag);
        came.sort(null);
        for (int number = 0; number < 100; number++) same(number, came.get(number));
    }

    private static void rpc(Connection connection) throws Exception {
        Channel serving = connection.createChannel();
        String queue = serving.queueDeclare().getQueue();
        StringRpcServer server = new StringRpcServer(serving, queue) {
            @Override
            public String handleStringCall(String request, AMQP.BasicProperties properties) {
                return "re: " + request;
            }
        };
        Thread thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (IOException | ShutdownSignalException over) {
                // the connection has closed
            }
        });
        thread.setDaemon(true);
        thread.start();
        RpcClient client = new RpcClient(connection.createChannel(), "", queue, SECONDS * 1000); // by direct reply-to
        for (int number = 0; number < 20; number++) same("re: " + number, client.stringCall(String.valueOf(number)));
        server.terminateMainloop();
        client.close();
    }

    private static void cancellation(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        CountDownLatch cancelled = new CountDownLatch(1);
        channel.basicConsume(queue, (tag, delivery) -> { }, tag -> cancelled.countDown());
        connection.createChannel().queueDelete(queue);
        same(true, cancelled.await(SECONDS, TimeUnit.SECONDS));
    }

    // --- streams ----------------------------------------------------------------------------------------------------

    private static void streams(Connection connection) throws Exception {
        Channel channel = stream(connection, "java.stream");
        for (Object from : new Object[] {"first", 0, -5L, new Date(0), "1h"})
            same(offsets(0, 100, 1), read(connection, "java.stream", 100, Map.of("x-stream-offset", from)));
        same(offsets(90, 100, 1), read(connection, "java.stream", 10, Map.of("x-stream-offset", 90L)));
        same(offsets(1, 100, 2),
            read(connection, "java.stream", 50, Map.of("x-stream-offset", "first", "x-stream-filter", List.of("odd"))));
        BlockingQueue<Long> coming = new LinkedBlockingQueue<>();
        Channel reading = connection.createChannel();
        reading.basicQos(1);
        reading.basicConsume("java.stream", false, (tag, message) -> {
            coming.add((Long) message.getProperties().getHeaders().get("x-stream-offset"));
            reading.basicAck(message.getEnvelope().getDeliveryTag(), false);
        }, tag -> { });
        channel.basicPublish("", "java.stream", null, bytes(100));
        same(100L, coming.poll(SECONDS, TimeUnit.SECONDS));
        same(List.of(100L), read(connection, "java.stream", 1, Map.of("x-stream-offset", "last")));
        same(101L, channel.messageCount("java.stream"));
        channel.queueDelete("java.stream");
    }

    private static void streamErrors(Connection connection) throws Exception {
        stream(connection, "java.stream.errors");
        same("406 PRECONDITION_FAILED - consumer prefetch count is not set for stream queue 'java.stream.errors' in vhost '/'",
            refusal(connection, channel -> channel.basicConsume("java.stream.errors", (tag, message) -> { }, tag -> { })));
        same(406, Integer.parseInt(refusal(connection, channel -> {
            channel.basicQos(1);
            channel.basicConsume("java.stream.errors", false, Map.of("x-stream-offset", "begin"), (tag, message) -> { },
                tag -> { });
        }).substring(0, 3)));
        same("406 PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'java.e' in vhost '/' of queue type "
            + "rabbit_stream_queue", refusal(connection, channel -> channel.queueDeclare("java.e", true, false, false,
                Map.of("x-queue-type", "stream", "x-max-priority", 5))));
        connection.createChannel().queueDelete("java.stream.errors");
    }

    /** As {@code rabbitmq-streams add_super_stream} makes one. */
    private static void superStreams(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        channel.exchangeDeclare("java.super", "direct", true, false, Map.of("x-super-stream", true));
        for (int partition = 0; partition < 3; partition++) {
            stream(connection, "java.super-" + partition);
            channel.queueBind("java.super-" + partition, "java.super", "" + partition,
                Map.of("x-stream-partition-order", partition));
        }
        channel.confirmSelect();
        for (int number = 0; number < 30; number++)
            channel.basicPublish("java.super", "" + number % 3, null, bytes(number));
        channel.waitForConfirmsOrDie(SECONDS * 1000L);
        for (int partition = 0; partition < 3; partition++) {
            Map<String, Object> from = Map.of("x-stream-offset", 100);
            same(offsets(100, 110, 1), read(connection, "java.super-" + partition, 10, from));
            channel.queueDelete("java.super-" + partition);
        }
        channel.exchangeDelete("java.super");
    }

    private static void groups(Connection connection) throws Exception {
        Channel channel = stream(connection, "java.grouped");
        Map<String, Object> member = Map.of("x-group", "workers", "x-stream-offset", "first");
        same(offsets(0, 40, 1), read(connection, "java.grouped", 40, member));
        same(offsets(40, 100, 1), read(connection, "java.grouped", 60, member));
        channel.queueDelete("java.grouped");
    }

    /** A stream with a hundred messages, every other one tagged "odd". */
    private static Channel stream(Connection connection, String name) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare(name, true, false, false, Map.of("x-queue-type", "stream", "x-max-age", "7D"));
        channel.confirmSelect();
        for (int number = 0; number < 100; number++) {
            Map<String, Object> tag = Map.of("x-stream-filter-value", number % 2 == 0 ? "even" : "odd");
            channel.basicPublish("", name, new AMQP.BasicProperties.Builder().headers(tag).build(), bytes(number));
        }
        channel.waitForConfirmsOrDie(SECONDS * 1000L);
        return channel;
    }

    /** The offsets of the first messages that a reader gets. */
    private static List<Long> read(Connection connection, String name, int count, Map<String, Object> arguments)
        throws Exception {
        Channel channel = connection.createChannel();
        BlockingQueue<Long> came = new LinkedBlockingQueue<>();
        AtomicInteger wanted = new AtomicInteger(count);
        channel.basicQos(10);
        channel.basicConsume(name, false, arguments, (tag, message) -> {
            if (wanted.getAndDecrement() <= 0) return;
            channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
            came.add((Long) message.getProperties().getHeaders().get("x-stream-offset"));
        }, tag -> { });
        List<Long> found = new ArrayList<>();
        while (found.size() < count) found.add(came.poll(SECONDS, TimeUnit.SECONDS));
        channel.close();
        return found;
    }

    private static List<Long> offsets(long start, long end, long step) {
        List<Long> all = new ArrayList<>();
        for (long offset = start; offset < end; offset += step) all.add(offset);
        return all;
    }

    private interface Attempt {
        void on(Channel channel) throws Exception;
    }

    /** What the broker closes a channel with. */
    private static String refusal(Connection connection, Attempt attempt) throws Exception {
        try {
            attempt.on(connection.createChannel());
        } catch (IOException refused) {
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) refused.getCause()).getReason();
            return close.getReplyCode() + " " + close.getReplyText();
        }
        throw new AssertionError("it is not refused");
    }

    // --- errors -----------------------------------------------------------------------------------------------------

    private static void channelErrors(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.queueDeclarePassive("java.none");
            throw new AssertionError("there is no such queue");
        } catch (IOException refused) {
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) refused.getCause()).getReason();
            same("404 NOT_FOUND - no queue 'java.none' in vhost '/' 50 10",
                close.getReplyCode() + " " + close.getReplyText() + " " + close.getClassId() + " " + close.getMethodId());
        }
        same(false, channel.isOpen());
        connection.createChannel().queueDeclare();
    }

    private static void connectionErrors(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.exchangeDeclare("java.odd", "no-such-type");
            throw new AssertionError("there is no such type");
        } catch (IOException refused) {
            same(503, ((AMQP.Connection.Close) ((ShutdownSignalException) refused.getCause()).getReason()).getReplyCode());
        }
        same(false, connection.isOpen());
    }

    // --- what they share --------------------------------------------------------------------------------------------

    /** A message that may be still on its way. */
    private static GetResponse await(Channel channel, String queue) throws IOException, TimeoutException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (System.nanoTime() < end) {
            GetResponse got = channel.basicGet(queue, true);
            if (got != null) return got;
        }
        throw new TimeoutException("nothing came");
    }

    private static byte[] bytes(int number) {
        return String.valueOf(number).getBytes();
    }

    private static String text(GetResponse got) {
        return new String(got.getBody());
    }

    private static void same(Object wanted, Object got) {
        if (wanted == null ? got != null : !wanted.equals(got))
            throw new AssertionError("wanted " + wanted + ", got " + got);
    }
}
