// The list of tasks, and the dialog that starts one.

import { useEffect, useRef, useState } from "./hooks.mjs";
import { uniqueId } from "./api.js";
import { brief, letterOf } from "./events.js";
import {
  age, amount, dateOf, Dialog, html, money, Problem, Say, sendKey, State, useKeys, useRepeated, Work,
} from "./parts.js";

const PAGE = 50;
const EVERY = 4_000;
const MOST_TITLES = 5_000;
const TITLES_AT_ONCE = 4;
const STATES = ["running", "paused", "completed", "failed", "cancelled"];

export const linkTo = (id) => `#/tasks/${encodeURIComponent(id)}`;

/** The tasks that were read, kept while other views are open. */
export class TaskList {
  constructor(api) {
    this.api = api;
    this.records = new Map();
    this.titles = new Map();
    this.cursor = null;
    this.loaded = false;
    this.asked = new Set();
    this.working = 0;
    this.onChange = () => {};
  }

  /** Read the newest tasks again; those that were read before stay. */
  async refresh() {
    const page = await this.api.tasks(null, PAGE);
    const fresh = new Map(Object.entries(page.tasks));
    const known = this.loaded && [...fresh.keys()].some((id) => this.records.has(id));
    if (!known) this.cursor = page.next_cursor;
    const older = known ? this.records : new Map();
    this.records = new Map([...fresh, ...[...older].filter(([id]) => !fresh.has(id))]);
    this.loaded = true;
    this.onChange();
    this.readTitles();
  }

  async more() {
    const page = await this.api.tasks(this.cursor, PAGE);
    for (const [id, record] of Object.entries(page.tasks)) this.records.set(id, record);
    this.cursor = page.next_cursor;
    this.onChange();
    this.readTitles();
  }

  titleOf(record) {
    return record.title || this.titles.get(record.task_id);
  }

  /** Take the first message as the title of a task that has none of its own. */
  learn(id, event) {
    if (event?.kind !== "new_message") return;
    const { subject, body } = letterOf(event.data.extra_data?.full_message);
    if (this.titles.size >= MOST_TITLES) this.titles.clear();
    this.titles.set(id, brief([subject, body].filter(Boolean).join(": "), 160));
  }

  readTitles() {
    for (const [id, record] of this.records) {
      if (this.working >= TITLES_AT_ONCE) return;
      if (this.titleOf(record) || this.asked.has(id)) continue;
      this.asked.add(id);
      this.working += 1;
      this.readTitle(id);
    }
  }

  async readTitle(id) {
    try {
      const [first] = (await this.api.task(id, 0, 1)).events;
      if (first) this.learn(id, { kind: first.event, data: JSON.parse(first.data) });
    } catch {
      // the list says why; the task is shown with its id
    }
    this.working -= 1;
    this.onChange();
    this.readTitles();
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
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return [...list.records.values()].filter((record) => {
    if (state && record.status !== state) return false;
    const agents = Object.keys(record.usage?.agents ?? {}).join(" ");
    const text = `${list.titleOf(record) ?? ""} ${record.task_id} ${agents}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

export function Tasks({ list, onNew }) {
  useList(list);
  const [state, setState] = useState("");
  const [search, setSearch] = useState("");
  const [error, setError] = useState(null);
  const [chosen, setChosen] = useState(-1);
  const field = useRef();
  const refresh = () => list.refresh().then(() => setError(null), setError);
  useEffect(() => void refresh(), [list]);
  useRepeated(refresh, EVERY);
  const shown = filtered(list, state, search);
  const move = (step) => {
    const next = Math.max(0, Math.min(shown.length - 1, chosen + step));
    setChosen(next);
    document.querySelectorAll(".tasks a")[next]?.focus();
  };
  useKeys({
    "/": () => field.current.focus(),
    n: onNew,
    j: () => move(1),
    k: () => move(-1),
    Escape: () => field.current.blur(),
  });
  return html`
    <main class="page">
      <div class="title">
        <h1>Tasks</h1>
        <button class="main" onClick=${onNew}>New task</button>
      </div>
      <div class="tools">
        <input ref=${field} type="search" aria-label="Search in the tasks below" value=${search}
          placeholder="Search title, id or agent" onInput=${(event) => setSearch(event.target.value)} />
        <${States} list=${list} state=${state} onState=${setState} />
      </div>
      <${Problem} error=${error} />
      ${!list.loaded && !error && html`<p class="empty">Loading …</p>`}
      ${list.loaded && shown.length === 0 &&
      html`<p class="empty">
        ${list.records.size ? "No task here matches." : "No tasks yet. Start one: press n."}
      </p>`}
      <ul class="tasks">
        ${shown.map((record) => html`<${Row} key=${record.task_id} record=${record} title=${list.titleOf(record)} />`)}
      </ul>
      ${list.cursor &&
      html`<p class="more">
        <${Work} run=${() => list.more()} onError=${setError}>Load older tasks<//>
        <span>${amount(list.records.size)} loaded; search and filters look at these</span>
      </p>`}
    </main>
  `;
}

function States({ list, state, onState }) {
  const counts = new Map();
  for (const { status } of list.records.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
  const chip = (value, name, count) => html`
    <button class="chip" aria-pressed=${state === value} onClick=${() => onState(value)}>
      ${name} <small>${count}</small>
    </button>
  `;
  return html`
    <div class="chips" role="group" aria-label="State">
      ${chip("", "all", list.records.size)}
      ${STATES.filter((name) => counts.has(name) || name === state).map((name) =>
        chip(name, name, counts.get(name) ?? 0),
      )}
    </div>
  `;
}

function Row({ record, title }) {
  const { total } = record.usage ?? {};
  const figures = [
    `${amount(record.event_count)} event${record.event_count === 1 ? "" : "s"}`,
    total?.total_tokens > 0 && `${amount(total.total_tokens)} tokens`,
    total?.cost !== undefined && money(total.cost),
    record.breakpoints?.length > 0 && `${record.breakpoints.length} to answer`,
  ].filter(Boolean);
  return html`
    <li>
      <a href=${linkTo(record.task_id)}>
        <${State} status=${record.status} />
        <strong>${title ? html`<${Say} text=${title} />` : html`<${Say} text=${record.task_id} />`}</strong>
        <span class="facts">
          <code><${Say} text=${record.task_id} most=${36} /></code>
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
