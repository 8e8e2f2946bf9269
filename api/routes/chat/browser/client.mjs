// A chat client: entries of each conversation exactly once and in order, whatever the line does.
//
//   const chat = new ChatClient({ url: "ws://host/v1/chat/socket", token });
//   chat.follow("conversation", { after: 0, entry: (one) => … });
//   const seq = await chat.send("conversation", "hello");
//
// It remembers two things: the number of the last entry of each conversation that it follows, and
// what it has sent and not had an answer to. After a cut it takes up the former and sends the
// latter again, in order, under the same ids; the server knows them.

export const PROTOCOL = "headrace.chat";
const RETRY_MS_FIRST = 50;
const RETRY_MS_MAX = 5_000;
const RECEIPT_MS = 500;

/** The server said no; `code` is for programs. */
export class Refused extends Error {
  constructor({ status, code, detail }) {
    super(`${code}: ${detail}`);
    this.status = status;
    this.code = code;
  }
}

export class ChatClient {
  /** `on` has handlers: joined, left, typing, state, all optional. */
  constructor({ url, token, on = {}, Socket = globalThis.WebSocket, retryMsMax = RETRY_MS_MAX }) {
    Object.assign(this, { url, token, on, Socket, retryMsMax });
    this.places = new Map(); // conversation → { seq, read, told, handlers, marks }
    this.outbox = new Map(); // ref → { frame, resolve, reject }, in the order of sending
    this.connections = 0;
    this.ended = false;
    this.retryMs = RETRY_MS_FIRST;
    this.#connect();
  }

  /**
   * Tell `handlers.entry` all entries behind `after`, then all that come. `position`: the
   * Headrace-Position of the request that made the conversation, if it was just made.
   */
  follow(conversationId, { after = 0, position = "", ...handlers }) {
    const told = { delivered: 0, read: 0 };
    const place = { seq: after, read: 0, told, position, handlers, marks: new Map() };
    this.places.set(conversationId, place);
    this.#open(conversationId, place);
  }

  leave(conversationId) {
    this.places.delete(conversationId);
    this.#push({ type: "close", conversationId });
  }

  /** Say something; resolves with the number of its entry once it is recorded. */
  send(conversationId, body, { replyTo = 0, clientMsgId = crypto.randomUUID() } = {}) {
    return this.#ask(clientMsgId, { type: "send", conversationId, clientMsgId, body, replyTo });
  }

  edit(conversationId, of, body) {
    const ref = crypto.randomUUID();
    return this.#ask(ref, { type: "edit", conversationId, ref, of, body });
  }

  delete(conversationId, of) {
    const ref = crypto.randomUUID();
    return this.#ask(ref, { type: "delete", conversationId, ref, of });
  }

  typing(conversationId) {
    this.#push({ type: "typing", conversationId });
  }

  /** Everything that was told has been read, too. */
  read(conversationId) {
    const place = this.places.get(conversationId);
    if (!place) return;
    place.read = place.seq;
    this.#receiptSoon(conversationId, place);
  }

  close() {
    this.ended = true;
    clearInterval(this.beat);
    clearTimeout(this.again);
    for (const place of this.places.values()) clearTimeout(place.timer);
    this.socket.close();
  }

  #ask(ref, frame) {
    return new Promise((resolve, reject) => {
      this.outbox.set(ref, { frame, resolve, reject });
      this.#push(frame);
    });
  }

  #open(conversationId, { seq: after, position }) {
    this.#push({ type: "open", conversationId, after, position });
  }

  #push(frame) {
    if (this.socket.readyState === 1 && this.welcomed) this.socket.send(JSON.stringify(frame));
  }

  #connect() {
    this.welcomed = false;
    const socket = new this.Socket(this.url, [PROTOCOL, `bearer.${this.token}`]);
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return; // a socket that was given up
      for (const line of data.split("\n")) this.#take(JSON.parse(line));
    };
    socket.onclose = () => socket === this.socket && this.#lost();
    socket.onerror = () => {}; // onclose follows
  }

  #lost() {
    clearInterval(this.beat);
    if (this.ended) return;
    this.on.state?.("away");
    this.again = setTimeout(() => this.#connect(), this.retryMs * (0.5 + Math.random()));
    this.retryMs = Math.min(2 * this.retryMs, this.retryMsMax);
  }

  #take(frame) {
    const place = this.places.get(frame.conversationId);
    switch (frame.type) {
      case "welcome":
        return this.#welcome(frame);
      case "entry":
        return place && this.#entry(frame, place);
      case "live":
        for (const mark of frame.marks) this.#mark(place, mark);
        return place?.handlers.live?.(frame.seq);
      case "receipt":
        return this.#mark(place, frame);
      case "ack":
        return this.#answered(frame.ref, (one) => one.resolve(frame.seq));
      case "refused":
        if (frame.ref) return this.#answered(frame.ref, (one) => one.reject(new Refused(frame)));
        return place?.handlers.refused?.(new Refused(frame));
      case "left":
        this.places.delete(frame.conversationId);
    }
    this.on[frame.type]?.(frame);
  }

  #welcome({ heartbeatMs, userId, log }) {
    if (this.log && log && log !== this.log) this.#forget();
    this.log = log || this.log;
    this.userId = userId;
    this.connections += 1;
    this.retryMs = RETRY_MS_FIRST;
    this.welcomed = true;
    this.beat = setInterval(() => this.#push({ type: "ping" }), heartbeatMs);
    for (const [conversationId, place] of this.places) {
      place.told = { delivered: 0, read: 0 }; // what was said of it may not have arrived
      this.#open(conversationId, place);
    }
    for (const { frame } of this.outbox.values()) this.#push(frame);
    this.on.state?.("here");
  }

  // The log is another one: what was known of conversations is of a time that is gone.
  #forget() {
    for (const place of this.places.values()) {
      place.seq = place.read = 0;
      place.marks.clear();
      place.handlers.reset?.();
    }
  }

  #entry(frame, place) {
    if (frame.seq <= place.seq) return; // from before the place was taken up again
    if (frame.seq > place.seq + 1) return this.#again(); // never, if the server is right
    place.seq = frame.seq;
    place.handlers.entry?.(frame);
    this.#receiptSoon(frame.conversationId, place);
  }

  #receiptSoon(conversationId, place) {
    place.timer ??= setTimeout(() => {
      place.timer = undefined;
      const { seq: delivered, read, told } = place;
      if (delivered <= told.delivered && read <= told.read) return;
      place.told = { delivered, read };
      this.#push({ type: "receipt", conversationId, delivered, read });
    }, RECEIPT_MS * (1 + Math.random()));
  }

  #mark(place, { userId, delivered, read }) {
    if (!place) return;
    const known = place.marks.get(userId) ?? { delivered: 0, read: 0 };
    place.marks.set(userId, {
      delivered: Math.max(known.delivered, delivered),
      read: Math.max(known.read, read),
    });
    place.handlers.marks?.(place.marks);
  }

  #answered(ref, settle) {
    const one = this.outbox.get(ref);
    this.outbox.delete(ref);
    if (one) settle(one);
  }

  #again() {
    const socket = this.socket;
    this.socket.onclose = null;
    socket.close();
    this.#lost();
  }
}
