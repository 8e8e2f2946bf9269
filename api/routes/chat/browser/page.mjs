// The page: what the client tells, as elements. Text goes in as text, never as HTML.

import { ChatClient } from "./client.mjs";

const TYPING_MS = 3_000;
const at = (id) => document.getElementById(id);
const node = (name, text = "", kind = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
};

let chat, token, current, typed = 0, quiet;

async function call(path, options = {}) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const answer = await fetch(path, { ...options, headers });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail);
  return { body, position: answer.headers.get("Headrace-Position") ?? "" };
}

async function enter() {
  token = at("token").value.trim();
  try {
    const { body: own } = await call("/v1/conversations");
    const url = new URL("/v1/chat/socket", location.href.replace(/^http/, "ws")).href;
    chat = new ChatClient({
      url,
      token,
      on: {
        state: (state) => {
          at("me").textContent = chat?.userId ?? "";
          at("state").textContent = state;
        },
        joined: ({ conversationId, title }) => list(conversationId, title),
        left: ({ conversationId }) => at(`c-${conversationId}`)?.remove(),
        typing: ({ conversationId, userId }) => conversationId === current && writes(userId),
      },
    });
    for (const one of own) list(one.conversation_id, one.title || one.members.join(", "));
    at("sign-in").hidden = true;
    at("room").hidden = false;
  } catch (error) {
    at("problem").textContent = error.message;
  }
}

function list(id, title) {
  if (at(`c-${id}`)) return;
  const item = node("li");
  const button = node("button", title || id);
  item.id = `c-${id}`;
  button.onclick = () => open(id, title);
  item.append(button);
  at("conversations").append(item);
}

function open(id, title, position) {
  if (current) chat.leave(current);
  current = id;
  at("title").textContent = title || id;
  at("entries").replaceChildren();
  for (const item of at("conversations").children) {
    item.setAttribute("aria-current", String(item.id === `c-${id}`));
  }
  const reset = () => at("entries").replaceChildren();
  chat.follow(id, { after: 0, entry: show, live: () => chat.read(id), reset, position });
}

function show(entry) {
  const item = node("li");
  item.id = `e-${entry.seq}`;
  const message = at(`e-${entry.of}`)?.querySelector(".body");
  if (entry.change === "sent") {
    item.append(node("span", entry.by, "from"), node("span", entry.body, "body"));
    item.title = new Date(entry.recordedAt).toLocaleString();
  } else if (entry.change === "edited") {
    if (message) message.textContent = entry.body;
  } else if (entry.change === "deleted") {
    message?.classList.add("deleted");
    if (message) message.textContent = "deleted";
  } else {
    item.append(node("span", `${entry.by}: ${entry.members.length} are here`, "note"));
  }
  if (item.hasChildNodes()) {
    at("entries").append(item);
    item.scrollIntoView();
  }
  if (document.visibilityState === "visible") chat.read(entry.conversationId);
}

function note(text) {
  at("typing").textContent = text;
  clearTimeout(quiet);
  quiet = setTimeout(() => (at("typing").textContent = ""), TYPING_MS);
}

const writes = (user) => note(`${user} is writing`);
const complain = (error) => note(error.message);

at("enter").onclick = enter;
async function start() {
  const members = at("others").value.split(",").map((name) => name.trim()).filter(Boolean);
  const asked = JSON.stringify({ members, title: members.join(", ") });
  const made = await call("/v1/conversations", { method: "POST", body: asked });
  const { conversationId, title } = made.body;
  list(conversationId, title);
  open(conversationId, title, made.position);
}

at("start").onclick = () => start().catch(complain);
at("body").onkeydown = (event) => {
  if (event.key === "Enter" && event.target.value.trim() && current) {
    const text = event.target.value;
    event.target.value = "";
    chat.send(current, text).catch(complain);
  } else if (current && Date.now() - typed > TYPING_MS / 2) {
    typed = Date.now();
    chat.typing(current);
  }
};
