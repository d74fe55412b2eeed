// Which views there are, what each is called in its address, and who sees it in the list.

import { Connection, Connections } from "./connections.js";
import { DeadLetters, DeadLettersOf } from "./dead_letters.js";
import { Definitions } from "./definitions.js";
import { Exchange, Exchanges } from "./exchanges.js";
import { Overview } from "./overview.js";
import { Policies } from "./policies.js";
import { Processes } from "./processes.js";
import { Queue } from "./queue.js";
import { Queues } from "./queues.js";
import { Shovel, Shovels } from "./shovels.js";
import { Topic, Topics } from "./topics.js";
import { Topology } from "./topology.js";
import { Trace } from "./trace.js";
import { Transactions } from "./transactions.js";
import { Users } from "./users.js";
import { VirtualHosts } from "./virtual_hosts.js";

export const NAVIGATION = [
  { view: "overview", title: "Overview" },
  { view: "queues", title: "Queues" },
  { view: "dead-letters", title: "Dead letters" },
  { view: "topics", title: "Topics and groups" },
  { view: "trace", title: "Message trace" },
  { view: "exchanges", title: "Exchanges" },
  { view: "topology", title: "Topology" },
  { view: "connections", title: "Connections" },
  { view: "transactions", title: "Transactions" },
  { view: "shovels", title: "Shovels" },
  { view: "policies", title: "Policies", tags: ["policymaker", "administrator"] },
  { view: "users", title: "Users", tags: ["administrator"] },
  { view: "vhosts", title: "Virtual hosts" },
  { view: "processes", title: "Processes", tags: ["monitoring", "administrator"] },
  { view: "definitions", title: "Definitions", tags: ["administrator"] },
];

const one = (Many, One) => (properties) => (properties.parts.length ? One(properties) : Many(properties));

export const VIEWS = {
  overview: Overview,
  queues: one(Queues, Queue),
  "dead-letters": one(DeadLetters, DeadLettersOf),
  topics: one(Topics, Topic),
  exchanges: one(Exchanges, Exchange),
  topology: Topology,
  trace: Trace,
  connections: one(Connections, Connection),
  transactions: Transactions,
  shovels: one(Shovels, Shovel),
  policies: Policies,
  users: Users,
  vhosts: VirtualHosts,
  processes: Processes,
  definitions: Definitions,
};
