// The list of tasks, one's own or everybody's, and the dialog that starts one.

import { useEffect, useRef, useState } from "./hooks.mjs";
import { uniqueId } from "./api.js";
import {
  age, amount, dateOf, Dialog, html, money, Problem, Say, sendKey, State, useKeys, useRepeated, Work,
} from "./parts.js";

const PAGE = 50;
const EVERY = 4_000;
const TYPING = 300;
const STATES = ["running", "paused", "completed", "failed", "cancelled"];

/** Return the address of a task; that of another caller's task names its owner. */
export const linkTo = (id, owner) =>
  `#/tasks/${encodeURIComponent(id)}${owner ? `/${encodeURIComponent(owner)}` : ""}`;

/** Return whose task it is, and which swarm it came from if it is another's. */
export const whose = (record, owner) => (record.via ? `${record.task_owner} via ${record.via}` : owner);

const keyOf = (record) => `${record.owner ?? ""} ${record.task_id}`;

/** The tasks that were read, kept while other views are open. */
export class TaskList {
  constructor(api, all) {
    this.api = api;
    this.onChange = () => {};
    this.look({ all });
  }

  /** Begin anew with other tasks: one's own, or all callers' with a search of the server's. */
  look({ all, q = "", status = "" }) {
    Object.assign(this, { all, q, status, records: new Map(), cursor: null, loaded: false });
    this.looks = (this.looks ?? 0) + 1;
    this.onChange();
  }

  async read(cursor) {
    if (!this.all) {
      const page = await this.api.tasks(cursor, PAGE);
      return { tasks: Object.values(page.tasks), next_cursor: page.next_cursor };
    }
    return this.api.allTasks({ limit: PAGE, cursor, q: this.q, status: this.status });
  }

  /** Read the newest tasks again; those that were read before stay. */
  async refresh() {
    const looks = this.looks;
    const page = await this.read(null);
    if (looks !== this.looks) return; // something else is looked at by now
    const fresh = new Map(page.tasks.map((record) => [keyOf(record), record]));
    const known = this.loaded && [...fresh.keys()].some((key) => this.records.has(key));
    if (!known) this.cursor = page.next_cursor;
    const older = known ? [...this.records].filter(([key, { status }]) =>
      !fresh.has(key) && (!this.status || status === this.status)) : [];
    this.records = new Map([...fresh, ...older]);
    this.loaded = true;
    this.onChange();
  }

  async more() {
    const looks = this.looks;
    const page = await this.read(this.cursor);
    if (looks !== this.looks) return;
    for (const record of page.tasks) this.records.set(keyOf(record), record);
    this.cursor = page.next_cursor;
    this.onChange();
  }

  /** Take a newer record of a task that was looked at by itself. */
  learn(record, owner) {
    const known = this.records.get(keyOf({ ...record, owner: this.all ? owner : undefined }));
    if (known) Object.assign(known, record);
  }
}

function useList(list) {
  const [, redraw] = useState(0);
  useEffect(() => {
    list.onChange = () => redraw((count) => count + 1);
    return () => (list.onChange = () => {});
  }, [list]);
}

/** Return the tasks that have the state and all words of the search in title, id or agents. */
function filtered(list, state, search) {
  if (list.all) return [...list.records.values()]; // the server has searched
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return [...list.records.values()].filter((record) => {
    if (state && record.status !== state) return false;
    const agents = Object.keys(record.usage?.agents ?? {}).join(" ");
    const text = `${record.title ?? ""} ${record.task_id} ${agents}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

export function Tasks({ list, caller, onNew }) {
  useList(list);
  const [state, setState] = useState(list.status);
  const [search, setSearch] = useState(list.q);
  const [error, setError] = useState(null);
  const [chosen, setChosen] = useState(-1);
  const field = useRef();
  const refresh = () => list.refresh().then(() => setError(null), setError);
  useEffect(() => void refresh(), [list]);
  useRepeated(refresh, EVERY);
  const ask = (all, q, status) => {
    list.look({ all, q: all ? q : "", status: all ? status : "" });
    return refresh();
  };
  useEffect(() => {
    if (!list.all || (list.q === search && list.status === state)) return undefined;
    const timer = setTimeout(() => ask(true, search, state), TYPING);
    return () => clearTimeout(timer);
  }, [search, state]);
  const shown = filtered(list, state, search);
  const move = (step) => {
    const next = Math.max(0, Math.min(shown.length - 1, chosen + step));
    setChosen(next);
    document.querySelectorAll(".tasks a")[next]?.focus();
  };
  useKeys({
    "/": () => field.current.focus(),
    j: () => move(1),
    k: () => move(-1),
    Escape: () => field.current.blur(),
  });
  const narrowed = state || search;
  return html`
    <main class="page">
      <div class="title">
        <h1>Tasks</h1>
        ${caller.role === "admin" &&
        html`<div class="chips" role="group" aria-label="Whose">
          <button class="chip" aria-pressed=${!list.all} onClick=${() => ask(false, "", "")}>mine</button>
          <button class="chip" aria-pressed=${list.all} onClick=${() => ask(true, search, state)}>all callers</button>
        </div>`}
        <span class="spring"></span>
        ${onNew && html`<button class="main" onClick=${onNew}>New task</button>`}
      </div>
      <div class="tools">
        <input ref=${field} type="search" aria-label=${list.all ? "Search in all tasks" : "Search in the tasks below"}
          value=${search} placeholder=${list.all ? "Search title, id or owner" : "Search title, id or agent"}
          onInput=${(event) => setSearch(event.target.value)} />
        <${States} list=${list} state=${state} onState=${setState} />
      </div>
      <${Problem} error=${error} />
      ${!list.loaded && !error && html`<p class="empty">Loading …</p>`}
      ${list.loaded && shown.length === 0 && !(list.all && list.cursor) &&
      html`<p class="empty">
        ${list.records.size || narrowed ? "No task here matches."
          : onNew ? "No tasks yet. Start one with New task, or press n." : "No tasks yet. Your messages to agents begin them."}
      </p>`}
      <ul class="tasks">
        ${shown.map((record) => html`<${Row} key=${keyOf(record)} record=${record} />`)}
      </ul>
      ${list.cursor &&
      html`<p class="more">
        <${Work} run=${() => list.more()} onError=${setError}>Load older tasks<//>
        <span>${amount(list.records.size)} loaded${list.all ? "" : "; search and filters look at these"}</span>
      </p>`}
    </main>
  `;
}

function States({ list, state, onState }) {
  const counts = new Map();
  for (const { status } of list.records.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
  const chip = (value, name, count) => html`
    <button class="chip" aria-pressed=${state === value} onClick=${() => onState(value)}>
      ${name}${!list.all && html` <small>${count}</small>`}
    </button>
  `;
  return html`
    <div class="chips" role="group" aria-label="State">
      ${chip("", "all", list.records.size)}
      ${STATES.filter((name) => list.all || counts.has(name) || name === state).map((name) =>
        chip(name, name, counts.get(name) ?? 0),
      )}
    </div>
  `;
}

function Row({ record }) {
  const { total } = record.usage ?? {};
  const figures = [
    `${amount(record.event_count)} event${record.event_count === 1 ? "" : "s"}`,
    total?.total_tokens > 0 && `${amount(total.total_tokens)} tokens`,
    total?.cost !== undefined && money(total.cost),
    record.breakpoints?.length > 0 && `${record.breakpoints.length} to answer`,
  ].filter(Boolean);
  return html`
    <li>
      <a href=${linkTo(record.task_id, record.owner)}>
        <${State} status=${record.status} />
        <strong><${Say} text=${record.title || record.task_id} /></strong>
        <span class="facts">
          ${record.owner
            ? html`<span><${Say} text=${whose(record, record.owner)} most=${90} /></span>`
            : html`<code><${Say} text=${record.task_id} most=${36} /></code>`}
          <span>${figures.join(" · ")}</span>
          <time title=${dateOf(record.start_time)}>${age(record.start_time)}</time>
        </span>
      </a>
    </li>
  `;
}

export function NewTask({ api, onClose }) {
  const [body, setBody] = useState("");
  const [subject, setSubject] = useState("");
  const [entrypoint, setEntrypoint] = useState("");
  const [error, setError] = useState(null);
  const key = useRef(uniqueId()); // the same for each attempt: a message is posted once
  const send = async () => {
    const message = { body };
    if (subject.trim()) message.subject = subject;
    if (entrypoint.trim()) message.entrypoint = entrypoint.trim();
    const { task_id } = await api.post(message, key.current);
    onClose();
    location.hash = linkTo(task_id);
  };
  const sendNow = () => body.trim() && send().catch(setError);
  const change = (set) => (event) => {
    key.current = uniqueId(); // another text is another message
    set(event.target.value);
  };
  return html`
    <${Dialog} title="New task" onClose=${onClose}>
      <label>Message
        <textarea rows="5" autofocus value=${body} onInput=${change(setBody)} onKeyDown=${sendKey(sendNow)} />
      </label>
      <details>
        <summary>Subject and agent</summary>
        <label>Subject<input value=${subject} maxlength="1024" onInput=${change(setSubject)} /></label>
        <label>Agent that gets it
          <input value=${entrypoint} maxlength="256" placeholder="the swarm's entrypoint" onInput=${change(setEntrypoint)} />
        </label>
      </details>
      <${Problem} error=${error} />
      <footer>
        <kbd>Ctrl</kbd> <kbd>Enter</kbd>
        <${Work} kind="main" run=${send} onError=${setError} disabled=${!body.trim()}>Start<//>
      </footer>
    <//>
  `;
}
