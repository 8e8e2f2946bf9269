// People who chat through the client of the page, as it is served: `node people.mjs ORDERS`.
//
// Each follows all rooms from their begin and says so many things, some of which are edited or
// deleted. A line "{room: last}" on the standard input is where each room ends; what everybody
// was told by then goes to the standard output, with how often they had to connect.

import { createInterface } from "node:readline";

const orders = JSON.parse(process.argv[2]);
const source = await (await fetch(orders.page + "client.mjs")).text();
const { ChatClient } = await import("data:text/javascript," + encodeURIComponent(source));

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let answers = 0;

class Person {
  constructor({ name, token }) {
    this.name = name;
    this.told = Object.fromEntries(orders.rooms.map((room) => [room, []]));
    this.acks = {};
    this.chat = new ChatClient({ url: orders.url, token, retryMsMax: 100 });
    for (const room of orders.rooms) {
      this.chat.follow(room, { after: 0, entry: (entry) => this.told[room].push(entry) });
    }
  }

  async talk() {
    const said = [];
    for (let n = 0; n < orders.messages; n++) {
      const room = orders.rooms[n % orders.rooms.length];
      said.push(this.say(room, `${this.name}-${n}`, n));
      if (n % 8 === 7) await Promise.all(said.splice(0));
    }
    await Promise.all(said);
  }

  async say(room, body, n) {
    const seq = await this.chat.send(room, body, { clientMsgId: body });
    this.acks[body] = seq;
    answers += 1;
    if (n % 5 === 0) await this.chat.edit(room, seq, body + " (edited)");
    if (n % 7 === 0) await this.chat.delete(room, seq);
  }
}

const people = orders.people.map((one) => new Person(one));
const talking = Promise.all(people.map((one) => one.talk()));
const progress = setInterval(() => console.log(JSON.stringify({ answers })), 200);
await talking;
clearInterval(progress);
console.log(JSON.stringify({ answers, done: true }));

for await (const line of createInterface({ input: process.stdin })) {
  const ends = JSON.parse(line);
  const behind = () =>
    people.some((one) => orders.rooms.some((room) => one.told[room].length < ends[room]));
  while (behind()) await pause(20);
  break;
}
await pause(100); // what should not come would come now
const found = people.map(({ name, told, acks, chat }) => ({
  name,
  told,
  acks,
  connections: chat.connections,
}));
for (const one of people) one.chat.close();
process.stdout.write(JSON.stringify({ people: found }) + "\n", () => process.exit(0));
