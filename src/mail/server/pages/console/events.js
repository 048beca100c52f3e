// What an event says to a person: who, did what, with which text and figures.

import { amount, duration, money } from "./parts.js";

const DEFAULT_SUBJECT = "New Message";

/** Return an address as people write it; agents of other swarms with their swarm. */
function nameOf(address, swarm, own) {
  if (!address) return "?";
  const name = address.address === "all" ? "everybody" : String(address.address);
  return swarm && own && swarm !== own ? `${name}@${swarm}` : name;
}

/** Return the parts of a message that are shown: from, to, subject, body, type. */
export function letterOf(full) {
  const message = full?.message ?? {};
  const own = message.sender_swarm;
  const many = message.recipients ?? (message.recipient ? [message.recipient] : []);
  const swarms = message.recipient_swarms ?? [message.recipient_swarm];
  const names = many.map((one) => nameOf(one, swarms.length === 1 ? swarms[0] : null, own));
  return {
    from: nameOf(message.sender),
    fromType: message.sender?.address_type ?? "agent",
    names,
    to: names.join(", "),
    subject: message.subject === DEFAULT_SUBJECT ? "" : String(message.subject ?? ""),
    body: String(message.body ?? ""),
    type: full?.msg_type ?? "",
  };
}

/** Return the first words of a value, for a row; never the whole of a long text. */
export function brief(value, most = 240) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.slice(0, most * 2).replace(/[ \t\n]+/g, " ").replace(/^ | $/g, "").slice(0, most);
}

/** Return a call's arguments for a row: names and values without the signs of JSON. */
export function briefCall(values) {
  if (typeof values !== "object" || values === null || Array.isArray(values)) return brief(values);
  const parts = Object.entries(values).map(([name, value]) => `${name}: ${brief(value, 120)}`);
  return brief(parts.join(" · "));
}

export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value; // text that only looks like JSON
  }
}

function usageFacts(extra) {
  const { usage = {}, model } = extra;
  return [
    model,
    usage.total_tokens > 0 && `${amount(usage.total_tokens)} tokens`,
    usage.cost !== undefined && money(usage.cost),
  ].filter(Boolean);
}

const retryText = (data) => String(data.description).replace(/^agent .*?: /, "");

const KINDS = {
  new_message: (extra) => {
    const letter = letterOf(extra.full_message);
    const notice = letter.fromType === "system" || letter.subject.startsWith("::");
    return {
      actor: letter.from,
      did: `→ ${letter.to}`,
      text: [letter.subject, letter.body].filter(Boolean).join(" · "),
      tone: notice ? "quiet" : letter.fromType === "agent" ? "letter" : "person",
    };
  },
  tool_call: (extra) => ({
    did: `calls ${extra.tool_name}`,
    text: briefCall(extra.tool_args ?? {}),
    facts: extra.reasoning ? ["reasoning"] : [],
    tone: "tool",
  }),
  builtin_tool_call: (extra) => ({
    did: `used the provider's ${extra.tool_type}`,
    text: briefCall(extra.tool_args ?? {}),
    tone: "tool",
  }),
  action_call: (extra) => ({ did: `starts ${extra.tool_name}` }),
  action_complete: (extra) => ({
    did: `${extra.tool_name} returned`,
    text: brief(extra.result ?? ""),
    tone: "tool",
  }),
  action_error: (extra) => ({
    did: `${extra.tool_name} failed`,
    text: brief(extra.result ?? ""),
    tone: "bad",
  }),
  model_usage: (extra) => ({
    did: "model replied",
    text: usageFacts(extra).join(" · "),
    tone: "model",
  }),
  model_retry: (extra, data) => ({ did: "waits for its model", text: retryText(data), tone: "wait" }),
  breakpoint_tool_call: () => ({ did: "waits for an answer of a person", tone: "wait" }),
  breakpoint_action_complete: (extra) => ({
    did: `got an answer for ${extra.tool_name}`,
    text: brief(extra.result ?? ""),
    tone: "person",
  }),
  approval_requested: (extra) => ({
    did: `needs an approval for ${extra.action_request?.action ?? "a call"}`,
    text: briefCall(extra.action_request?.args ?? {}),
    tone: "wait",
  }),
  approval_answered: (extra) => ({
    actor: extra.answered_by,
    did: `${{ accept: "accepted", edit: "edited", ignore: "ignored", response: "answered" }[extra.type] ?? "decided about"} ${extra.tool_name}`,
    text: extra.text ?? (extra.changed ? Object.keys(extra.changed).map((name) => `changed ${name}`).join(", ") : ""),
    tone: "person",
  }),
  approval_expired: (extra) => ({
    did: `got no answer for ${extra.tool_name} in time`,
    text: brief(extra.type ?? ""),
    tone: "wait",
  }),
  await_message: (extra) => ({
    did: "waits for mail",
    text: brief(extra.reason ?? ""),
    tone: "quiet",
  }),
  task_complete_call: () => ({ did: "completes the task", tone: "quiet" }),
  agent_error: (extra, data) => ({ did: "failed", text: brief(data.description), tone: "bad" }),
  mail_set_aside: (extra) => ({ did: "got mail that is set aside", text: brief(extra.reason ?? ""), tone: "bad" }),
  mail_retried: (extra) => ({ actor: extra.by, did: `had mail of ${extra.caller} tried again`, text: "", tone: "person" }),
  mail_discarded: (extra) => ({ actor: extra.by, did: `discarded mail of ${extra.caller}`, text: "", tone: "person" }),
  turn_interrupted: (extra) => ({
    did: `was interrupted by ${extra.by}`,
    text: brief(extra.partial_text ?? ""),
    tone: "wait",
  }),
};

const ENDS = {
  completed: ["answer", "end"],
  paused: ["paused: waits for answers", "wait"],
  failed: ["task failed", "bad"],
  cancelled: ["task cancelled", "bad"],
};

/** Return what a row shows of an event: actor, did, text, facts, tone. */
export function describe({ kind, data }) {
  const extra = data.extra_data ?? {};
  if (kind === "task_complete" || kind === "task_error") {
    const [did, tone] = ENDS[data.status] ?? [data.status, "quiet"];
    const calls = (data.breakpoints ?? []).map((call) => call.name).join(", ");
    const text = data.status === "paused" ? calls : brief(data.response ?? "");
    return { actor: "", did, text, facts: data.ended_by ? ["step limit"] : [], tone };
  }
  const said = (KINDS[kind] ?? (() => ({ did: kind.replaceAll("_", " ") })))(extra, data);
  const facts = [...(said.facts ?? [])];
  // A reply's time stands at its model_usage and at each of its calls: show it once.
  if (extra.duration_ms !== undefined && kind !== "tool_call") facts.push(duration(extra.duration_ms));
  return {
    actor: said.actor ?? String(extra.caller ?? ""),
    did: said.did,
    text: brief(said.text ?? data.description ?? ""),
    facts,
    tone: said.tone ?? "quiet",
  };
}

/** Labels whose text is prose, and labels whose text is a few words. */
export const PROSE = new Set(["Body", "Reasoning", "Said before", "Text", "Description"]);
export const SHORT = new Set([
  "From", "To", "Type", "Subject", "Status", "Agent", "Tool", "Model", "By", "Call", "Took", "Answer", "Answered by",
]);

/** Return the titled texts of an event's page: each a label and a value, empty ones left out. */
export function details({ kind, data }) {
  const extra = data.extra_data ?? {};
  if (kind === "task_complete" || kind === "task_error") {
    return [["Status", data.status], ["Text", pretty(data.response ?? "")]];
  }
  if (kind === "new_message") {
    const letter = letterOf(extra.full_message);
    return [
      ["From", letter.from],
      ["To", letter.to],
      ["Type", letter.type],
      ["Subject", letter.subject],
      ["Body", letter.body],
    ].filter(([, value]) => value);
  }
  const known = [
    ["Agent", extra.caller],
    ["Tool", extra.tool_name ?? extra.tool_type],
    ["Reasoning", extra.reasoning],
    ["Said before", extra.preamble],
    ["Arguments", extra.tool_args],
    ["Call", extra.action_request?.action],
    ["Arguments", extra.action_request?.args],
    ["Answered by", extra.answered_by],
    ["Answer", extra.type],
    ["Changed", extra.changed],
    ["Text", extra.answered_by === undefined ? undefined : extra.text],
    ["Result", extra.result],
    ["Model", extra.model],
    ["Usage", extra.usage],
    ["By", extra.by],
    ["Text so far", extra.partial_text],
    ["Reason", extra.reason],
    ["Calls", extra.call_ids],
    ["Call", extra.tool_call_id],
    ["Took", extra.duration_ms === undefined ? undefined : duration(extra.duration_ms)],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const shown = known.map(([label, value]) => [label, flat(value)]);
  return shown.some(([label]) => label !== "Agent")
    ? shown
    : [...shown, ["Description", String(data.description ?? "")]];
}

export const flat = (value) => pretty(typeof value === "number" ? String(value) : value);

/** Return who takes part in an event: {from, to} of a message (to all without `to`), or {at}. */
export function partsOf({ kind, data }) {
  const extra = data.extra_data ?? {};
  if (kind === "new_message") {
    const { from, names } = letterOf(extra.full_message);
    return { from, to: names.includes("everybody") ? undefined : names };
  }
  return extra.caller === undefined ? {} : { at: String(extra.caller) };
}

/** Return what agents wait for whose newest event is a failed call of their model. */
export function retriesIn(log) {
  const newest = new Map();
  for (let place = Math.max(1, log.total - FAR); place <= log.total; place++) {
    const event = log.get(place);
    if (event) newest.set(partsOf(event).at ?? partsOf(event).from, event);
  }
  const waits = [...newest].filter(([, event]) => event.kind === "model_retry");
  return waits.map(([agent, { data }]) => `${agent}: ${retryText(data)}`).join(" · ");
}

const FAR = 400; // events to look through for what belongs to a model call

const RESULTS = new Set(["action_complete", "action_error", "breakpoint_action_complete"]);

/**
 * Return what was new to a model in one of its calls, and what it answered with: numbers of events.
 *
 * New are the messages to its agent and the results of its tools since the agent's call before. Of
 * the log only what is in memory is looked at.
 */
export function aroundReply(log, number) {
  const agent = String(log.get(number)?.data.extra_data?.caller ?? "");
  const isReply = (event) => event.kind === "model_usage" && String(event.data.extra_data?.caller) === agent;
  const [shown, answered] = [[], []];
  for (let place = number - 1; place > Math.max(0, number - FAR); place--) {
    const event = log.get(place);
    if (!event || isReply(event)) break;
    const { to, at, from } = partsOf(event);
    const forIt = event.kind === "new_message" && from !== agent && (to === undefined || to.includes(agent));
    if (forIt || (at === agent && RESULTS.has(event.kind))) shown.unshift(place);
  }
  for (let place = number + 1; place < number + FAR; place++) {
    const event = log.get(place);
    if (!event || isReply(event)) break;
    const { from, at } = partsOf(event);
    const speaks = from === agent || (at === agent && /^(tool_call|builtin_tool_call|agent_error|task_complete_call)$/.test(event.kind));
    if (speaks) answered.push(place);
  }
  return { shown, answered };
}

/** Return when an event began and ended, in milliseconds: events are stored when they end. */
export function spanOf({ kind, data }) {
  const end = Date.parse(data.timestamp);
  // A reply's time stands at its calls, too; they begin when it has come.
  const took = kind === "tool_call" ? 0 : (data.extra_data?.duration_ms ?? 0);
  return { begin: end - took, end };
}

const PEOPLE = new Set(["user", "admin"]);

/** Who takes part in a task, in the order of a diagram: people first, the system last. */
export class Actors {
  constructor() {
    this.ranks = new Map();
  }

  learn(event) {
    const { from, to = [], at } = partsOf(event);
    const type = event.kind === "new_message" ? letterOf(event.data.extra_data?.full_message).fromType : "agent";
    if (from !== undefined) this.add(from, PEOPLE.has(type) ? 0 : type === "system" ? 2 : 1);
    for (const name of [...to, at]) if (name !== undefined) this.add(name, 1);
  }

  add(name, rank) {
    if (!this.ranks.has(name)) this.ranks.set(name, rank);
  }

  list() {
    const order = [...this.ranks];
    return [0, 1, 2].flatMap((rank) => order.filter(([, its]) => its === rank).map(([name]) => name));
  }

  /** The agents, which can be interrupted. */
  agents() {
    return [...this.ranks].filter(([, rank]) => rank === 1).map(([name]) => name).sort();
  }
}
