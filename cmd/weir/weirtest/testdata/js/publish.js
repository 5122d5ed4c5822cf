// Publishes as the two generations of NATS' JavaScript client do, to a bucket that holds one job, and says what came of it.
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { connect as connectBefore } from "nats";

const servers = process.env.NATS_URL;
const subject = process.argv[2];
for (const [name, client] of [["nats-io 3", await connect({ servers })], ["nats 2", await connectBefore({ servers })]]) {
  const js = name === "nats 2" ? client.jetstream() : jetstream(client);
  for (const id of ["one", "two"]) {
    try {
      const ack = await js.publish(subject, "{}", { msgID: id });
      console.log(`${name}: ${id} is stored as ${ack.seq} of ${ack.stream}`);
    } catch (err) {
      console.log(`${name}: ${id} is refused: ${err.message}`);
    }
  }
  const answer = await client.request(subject, "{}", { timeout: 15_000 });
  console.log(`${name}: a request is answered ${answer.json().error.code}, and in its header ${answer.headers.get("Nats-Service-Error-Code")}`);
  await client.close();
}
