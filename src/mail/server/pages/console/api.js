// The HTTP API: requests with the tab's token, and event streams that survive a cut.

const BASE = new URL("..", import.meta.url); // the server may be mounted below a path
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const SILENCE = 45_000; // the server sends a ping after 15 seconds without an event

/** The server's answer to a request that it refused; `status` is 0 if there was no answer. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Return an id that no other request has; crypto.randomUUID is missing on plain http. */
export function uniqueId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Make the functions that talk to the server; `onExpired` is called once a token is refused. */
export function createApi(token, onExpired = () => {}) {
  async function open(path, { method = "GET", body, raw, headers = {}, signal } = {}) {
    let answer;
    try {
      answer = await fetch(new URL(path, BASE), {
        method,
        headers: { Accept: "application/json", Authorization: `Bearer ${token}`, ...headers },
        body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        signal,
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Refused(0, "the server does not answer");
    }
    if (answer.ok) return answer;
    const refused = new Refused(answer.status, await detailOf(answer));
    if (refused.status === 401) onExpired();
    throw refused;
  }

  const get = async (path, query = {}, signal = undefined) =>
    (await open(path + asQuery(query), { signal })).json();
  const send = async (method, path, body = undefined, headers = {}) =>
    (await open(path, { method, body, headers })).json();
  const once = (key) => ({ "Idempotency-Key": key });

  return {
    get,
    send,
    once,
    whoami: () => get("whoami"),
    root: () => get(""),
    status: () => get("status"),
    graph: () => get("swarm/graph"),
    tasks: (cursor, limit) => get("tasks", { limit, cursor, events: false }),
    /** The tasks of all callers, for administrators; the server searches. */
    allTasks: (query) => get("admin/tasks", query),
    /** One record with at most `limit` events after number `after`; by query, for odd ids. */
    task: (id, after, limit, { owner, signal } = {}) =>
      get("task", { task_id: id, after, limit, owner }, signal),
    cancel: (id, owner) =>
      send("POST", `tasks/${encodeURIComponent(id)}/cancel${asQuery({ owner })}`),
    /** Post without waiting for the run; the key makes a repeated attempt harmless. */
    post: (message, key) =>
      send("POST", "message", message, { Prefer: "respond-async", ...once(key) }),
    /** Mail of a task that was set aside, and what becomes of it. */
    setAside: (id, owner, after) => get(`tasks/${encodeURIComponent(id)}/set-aside`, { owner, after }),
    retryAside: (id, number, owner, key) =>
      send("POST", `tasks/${encodeURIComponent(id)}/set-aside/${number}/retry${asQuery({ owner })}`, undefined, once(key)),
    discardAside: (id, number, owner) =>
      open(`tasks/${encodeURIComponent(id)}/set-aside/${number}${asQuery({ owner })}`, { method: "DELETE" }),
    /** Hear of approvals that are opened and closed: those that are open now, or after a change. */
    followApprovals: (options) => follow(open, "approvals/events", options),
    follow: (id, options) =>
      follow(open, `tasks/${encodeURIComponent(id)}/events${asQuery({ owner: options.owner })}`, options),
    open,
  };
}

/** Return a query of the values that are there. */
function asQuery(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function detailOf(answer) {
  try {
    const said = await answer.json();
    if (typeof said.detail === "string") return said.detail;
  } catch {
    // not JSON: a proxy's page
  }
  return `the server answered with status ${answer.status}`;
}

/**
 * Call `onEvent` with each event of a stream after number `after`, if that is given, to its end.
 *
 * A cut is not an end: the stream is opened again after the last event that came, with growing
 * waits. `onState` hears "live", "cut" and, at the end, "ended".
 */
async function follow(open, path, { after, onEvent, onState, signal }) {
  let last = after;
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    const watch = watchdog(signal);
    try {
      const headers = { Accept: "text/event-stream" };
      if (last !== undefined) headers["Last-Event-ID"] = String(last);
      const answer = await open(path, { headers, signal: watch.signal });
      onState("live");
      let drained = false;
      for await (const frame of frames(answer.body, watch.touch)) {
        wait = FIRST_WAIT;
        if (frame.event === "server_drain") drained = true;
        if (frame.id === undefined || Number(frame.id) <= last) continue;
        last = Number(frame.id);
        onEvent({ id: last, event: frame.event, data: frame.data });
      }
      if (!drained) return onState("ended");
    } catch (error) {
      if (signal.aborted) return;
      const lasting = error instanceof Refused && error.status >= 400 && error.status < 500;
      if (lasting && error.status !== 429 && error.status !== 408) throw error;
    } finally {
      watch.stop();
    }
    onState("cut");
    await pause(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}

/** Abort what takes its signal when nothing has come for too long: a dead line looks quiet. */
function watchdog(signal) {
  const control = new AbortController();
  const abort = () => control.abort();
  let timer = setTimeout(abort, SILENCE);
  signal.addEventListener("abort", abort);
  return {
    signal: control.signal,
    touch() {
      clearTimeout(timer);
      timer = setTimeout(abort, SILENCE);
    },
    stop() {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      control.abort();
    },
  };
}

/** Wait, but not longer than until the network is back. */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}

async function* frames(body, touch) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces = []; // joined once a frame is whole: one of 1 MB comes in many pieces
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      touch();
      const tail = (pieces.at(-1) ?? "").slice(-3);
      if (!(tail + value).includes("\r\n\r\n")) {
        pieces.push(value);
        continue;
      }
      const blocks = (pieces.join("") + value).split("\r\n\r\n");
      pieces = [blocks.pop()];
      for (const block of blocks) {
        const frame = parse(block);
        if (frame) yield frame;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  const fields = {};
  for (const line of block.split("\r\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return fields.event && { id: fields.id, event: fields.event, data: fields.data ?? "{}" };
}
