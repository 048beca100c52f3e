// One task: its timeline, live; what one event holds; answers, messages, interrupt, cancel.

import { useEffect, useMemo, useRef, useState } from "./hooks.mjs";
import { uniqueId } from "./api.js";
import { OpenCalls } from "./approvals.js";
import { Actors, aroundReply, describe, details, pretty, PROSE, retriesIn, SHORT } from "./events.js";
import { EventLog } from "./log.js";
import {
  age, amount, dateOf, Dialog, duration, html, money, Passage, Problem, Say, sendKey, State,
  useKeys, useRead, useRepeated, visible, Work,
} from "./parts.js";
import { whose } from "./tasks.js";
import { MODES } from "./timeline.js";

const QUIET_POLL = 4_000;
const REFRESH = 400;
const ASIDE_POLL = 60_000;
const ASIDE = new Set(["mail_set_aside", "mail_retried", "mail_discarded"]);

/** A task that is looked at: its record, its log, and the stream while it runs. */
class Watched {
  constructor(api, list, id, owner, onChange) {
    Object.assign(this, { api, list, id, owner, onChange });
    this.control = new AbortController();
    this.signal = this.control.signal;
    this.record = null;
    this.error = null;
    this.link = ""; // "live", "cut", or "" without a stream
    this.following = false;
    this.aside = 0; // how often mail was heard to be set aside, or to be so no more
    this.actors = new Actors();
    this.log = new EventLog(api, id, {
      onEvent: (event) => this.actors.learn(event),
      owner,
      signal: this.signal,
      onChange,
      onError: (error) => this.fail(error),
    });
  }

  fail(error) {
    if (this.signal.aborted) return;
    this.error = error;
    this.onChange();
  }

  close() {
    this.control.abort();
  }

  async load() {
    try {
      const record = await this.api.task(this.id, 0, 1, this);
      if (record.events[0]) this.log.add(record.events[0]);
      this.log.total = Math.max(this.log.total, record.event_count);
      this.take(record);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Read the record without events; a run that somebody else began is followed. */
  async refresh() {
    if (!this.record) return this.load();
    try {
      this.take(await this.api.task(this.id, this.log.total, 1, this));
    } catch (error) {
      this.fail(error);
    }
  }

  refreshSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      if (!this.signal.aborted) this.refresh();
    }, REFRESH);
  }

  take(record) {
    this.record = { ...record, events: [] };
    this.error = null;
    this.list.learn(this.record, this.owner);
    Object.keys(record.usage?.agents ?? {}).forEach((name) => this.actors.add(name, 1));
    if (!this.following) {
      this.log.total = Math.max(this.log.total, record.event_count);
      if (record.is_running) this.follow();
    }
    this.onChange();
  }

  async follow() {
    this.following = true;
    try {
      await this.api.follow(this.id, {
        after: this.log.total,
        owner: this.owner,
        signal: this.signal,
        onEvent: (event) => this.hear(event),
        onState: (link) => {
          if (this.link === "cut" && link === "live") this.refreshSoon();
          this.link = link;
          this.onChange();
        },
      });
    } catch (error) {
      this.fail(error);
    }
    this.following = false;
    this.link = "";
    this.refreshSoon();
  }

  hear(event) {
    this.log.add(event);
    this.log.trim();
    if (ASIDE.has(event.event)) this.aside++;
    this.refreshSoon();
    this.onChange();
  }
}

function useWatched(api, list, id, owner) {
  const [, redraw] = useState(0);
  const watched = useMemo(() => {
    let asked = false; // many events may come between two frames
    return new Watched(api, list, id, owner, () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        redraw((count) => count + 1);
      });
    });
  }, [api, list, id, owner]);
  useEffect(() => {
    watched.load();
    return () => watched.close();
  }, [watched]);
  useRepeated(() => watched.following || watched.refresh(), QUIET_POLL);
  return watched;
}

export function Task({ api, list, caller, id, owner }) {
  const watched = useWatched(api, list, id, owner);
  const { record, log } = watched;
  const [chosen, setChosen] = useState(0);
  const [stick, setStick] = useState(true);
  const [dialog, setDialog] = useState(null);
  const [mode, setMode] = useState("Timeline");
  const at = useRef(1); // the first event in sight, whichever the view
  const [side, setSide] = useState(false); // on a phone: the side instead of the timeline
  const choose = (number, { open = true } = {}) => {
    setChosen(number);
    setStick(number === log.total);
    if (open) setSide(number > 0);
  };
  const step = (by) =>
    choose(Math.max(1, Math.min(log.total, (chosen || log.total + (by < 0)) + by)));
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    v: () => {
      const names = Object.keys(MODES);
      setMode(names[(names.indexOf(mode) + 1) % names.length]);
    },
    m: () => document.querySelector(".composer textarea")?.focus(),
    a: () => {
      choose(0, { open: false });
      setSide(true);
      requestAnimationFrame(() => document.querySelector(".open-call .actions button, .answer-form textarea, .answer-form .main")?.focus());
    },
    Escape: () => {
      if (document.activeElement?.matches("textarea, input")) document.activeElement.blur();
      else if (chosen || side) choose(0);
      else location.hash = "#/tasks";
    },
  });
  if (!record) {
    return html`<main class="page">
      <p><a href="#/tasks">← Tasks</a></p>
      <h1><${Say} text=${id} /></h1>
      ${watched.error ? html`<${Problem} error=${watched.error} />` : html`<p class="empty">Loading …</p>`}
    </main>`;
  }
  const title = record.title || id;
  const calls = record.breakpoints ?? [];
  const mine = !owner && caller.role !== "agent"; // participants write letters instead
  const { View } = MODES[mode];
  return html`
    <main class=${`task ${side ? "side-first" : ""}`}>
      <div class="head">
        <a href="#/tasks" aria-label="All tasks" class="back">←</a>
        <h1 title=${visible(title)}><${Say} text=${title} /></h1>
        <${State} status=${record.status} />
        <${Link} link=${watched.link} />
        ${record.is_running && html`<span class="link cut" role="status"><${Say} text=${retriesIn(log)} /></span>`}
        <span class="spring"></span>
        <div class="modes chips" role="group" aria-label="View">
          ${Object.keys(MODES).map((name) => html`
            <button class="chip" aria-pressed=${mode === name} onClick=${() => setMode(name)}>${name}</button>
          `)}
        </div>
        ${record.is_running && mine && html`<button onClick=${() => setDialog("interrupt")}>Interrupt</button>`}
        ${["running", "paused"].includes(record.status) &&
        html`<button class="danger" onClick=${() => setDialog("cancel")}>Cancel</button>`}
      </div>
      <${Problem} error=${watched.error} />
      <div class="tabs" role="group" aria-label="Part">
        <button aria-pressed=${!side} onClick=${() => setSide(false)}>${mode}</button>
        <button aria-pressed=${side} onClick=${() => setSide(true)}>
          ${chosen ? `Event ${chosen}` : "Overview"}${calls.length > 0 && !chosen && html` <b>${calls.length}</b>`}
        </button>
      </div>
      <${View} key=${mode} log=${log} actors=${watched.actors} at=${at} chosen=${chosen} onChoose=${choose} stick=${stick}
        onStick=${setStick} start=${record.start_time} />
      <section class="side" aria-label=${chosen ? "Event" : "Overview"}>
        ${chosen > 0 && html`<${EventPage} key=${chosen} log=${log} number=${chosen} onChoose=${choose} onClose=${() => choose(0)} />`}
        <div hidden=${chosen > 0}><${Overview} api=${api} watched=${watched} /></div>
      </section>
      ${mine && html`<${Composer} api=${api} watched=${watched} />`}
    </main>
    ${dialog === "interrupt" && html`<${Interrupt} api=${api} watched=${watched} onClose=${() => setDialog(null)} />`}
    ${dialog === "cancel" && html`<${Cancel} api=${api} watched=${watched} onClose=${() => setDialog(null)} />`}
  `;
}

const LINKS = { live: "live", cut: "connection lost, trying again …", "": "" };

function Link({ link }) {
  return html`<span class=${`link ${link}`} role="status">${LINKS[link] ?? ""}</span>`;
}

function EventPage({ log, number, onChoose, onClose }) {
  const event = log.get(number);
  const [raw, setRaw] = useState(false);
  return html`
    <div class="side-head">
      <h2>Event ${amount(number)}</h2>
      <button class="plain" aria-label="Close the event" title="Close (Esc)" onClick=${onClose}>✕</button>
    </div>
    ${event
      ? html`
          <p class="hint"><code>${event.kind}</code> · ${dateOf(event.data.timestamp)}</p>
          <dl class="details">
            ${details(event).map(([label, value]) => html`
              <div class=${SHORT.has(label) ? "short" : ""}>
                <dt>${label}</dt>
                <dd>${SHORT.has(label) && value.length < 400
                  ? html`<${Say} text=${value} />`
                  : html`<${Passage} text=${value} label=${label} prose=${PROSE.has(label)} />`}</dd>
              </div>
            `)}
          </dl>
          ${event.kind === "model_usage" && html`<${Reply} log=${log} number=${number} onChoose=${onChoose} />`}
          <details onToggle=${(toggled) => setRaw(toggled.target.open)}>
            <summary>As JSON</summary>
            ${raw && html`<${Passage} text=${JSON.stringify(event.data, null, 2)} label="JSON" />`}
          </details>
        `
      : html`<p class="empty">Loading …</p>`}
  `;
}

/** What a model was shown in one call and what it answered: the events, each a click away. */
function Reply({ log, number, onChoose }) {
  const { shown, answered } = aroundReply(log, number);
  const list = (title, numbers, none) => html`
    <h3>${title}</h3>
    ${numbers.length === 0 && html`<p class="hint">${none}</p>`}
    <ul class="related">${numbers.map((place) => {
      const said = describe(log.get(place));
      return html`<li key=${place}><button class="plain" onClick=${() => onChoose(place)}>
        <b><${Say} text=${said.actor} most=${60} /></b> <${Say} text=${said.did} most=${80} /><span class="text"><${Say} text=${said.text} /></span>
      </button></li>`;
    })}</ul>
  `;
  return html`
    ${list("New to the model", shown, "Nothing since its call before.")}
    ${list("Its answer", answered, "A text, or nothing that is in the log.")}
  `;
}

function Overview({ api, watched }) {
  const { record, log, id } = watched;
  const { total = {}, agents = {} } = record.usage ?? {};
  const end = log.end;
  const answered = record.status !== "running" && record.status !== "paused" && end;
  return html`
    <${OpenCalls} api=${api} watched=${watched} />
    <${SetAside} api=${api} watched=${watched} />
    ${answered &&
    html`<div class="answer">
      <h2>${end.kind === "task_error" ? "How it ended" : "Answer"}</h2>
      ${record.ended_by && html`<p class="problem">The step limit (<code>task_message_limit</code>) ended the run.</p>`}
      <${Passage} text=${pretty(end.data.response ?? "")} label="Answer" prose />
    </div>`}
    <h2>Task</h2>
    <dl class="facts-list">
      ${watched.owner && html`<dt>Owner</dt><dd><${Say} text=${whose(record, watched.owner)} /></dd>`}
      <dt>Id</dt><dd><code><${Say} text=${id} /></code></dd>
      <dt>Started</dt><dd>${dateOf(record.start_time)} (${age(record.start_time)})</dd>
      <dt>Events</dt><dd>${amount(log.total)}</dd>
      <dt>Model calls</dt><dd>${amount(total.calls ?? 0)}</dd>
      <dt>Tokens</dt>
      <dd>${amount(total.total_tokens ?? 0)}${total.total_tokens > 0 &&
        ` (${amount(total.prompt_tokens)} in, ${amount(total.completion_tokens)} out)`}</dd>
      ${total.cost !== undefined && html`<dt>Cost</dt><dd>${money(total.cost)}</dd>`}
      ${record.task_message_count > 0 && html`<dt>Undelivered</dt><dd>${amount(record.task_message_count)} messages</dd>`}
      ${record.waiting_for?.length > 0 &&
      html`<dt>Waits for</dt><dd><${Say} text=${record.waiting_for.join(", ")} /></dd>`}
    </dl>
    ${Object.keys(agents).length > 0 &&
    html`<h2>Agents</h2>
      <table>
        <thead><tr><th>Agent</th><th>Calls</th><th>Tokens</th><th>Cost</th></tr></thead>
        <tbody>
          ${Object.entries(agents).map(([name, used]) => html`<tr>
            <td><${Say} text=${name} most=${80} /></td>
            <td>${amount(used.calls)}</td>
            <td>${amount(used.total_tokens)}</td>
            <td>${used.cost === undefined ? "" : money(used.cost)}</td>
          </tr>`)}
        </tbody>
      </table>`}
  `;
}

/** Mail that was set aside because it saw too many crashes: looked at, tried again, discarded. */
function SetAside({ api, watched }) {
  const { record, id, owner } = watched;
  const again = [api, id, owner, record.status, watched.aside];
  const [found, , refresh] = useRead(() => api.setAside(id, owner), again, ASIDE_POLL);
  const done = async () => {
    await refresh();
    await watched.refresh();
  };
  const mail = found?.mail ?? [];
  return html`
    ${mail.map((one) => html`<${AsideMail} key=${one.id} api=${api} watched=${watched} mail=${one} onDone=${done} />`)}
    ${found?.next_after && html`<p class="hint">There is more; it is shown when some of this is dealt with.</p>`}
  `;
}

function AsideMail({ api, watched, mail, onDone }) {
  const { id, owner, record } = watched;
  const [error, setError] = useState(null);
  const key = useRef(uniqueId());
  const run = (act) => async () => {
    await act();
    await onDone();
  };
  const rest = mail.body_length - [...mail.body].length;
  return html`
    <div class="approval set-aside">
      <h2>Mail for <${Say} text=${mail.agent} most=${80} /> is set aside</h2>
      <p class="hint">${mail.msg_type} of <${Say} text=${mail.sender.address} most=${80} /> ·${" "}
        <span title=${dateOf(mail.timestamp)}>${age(mail.timestamp)}</span></p>
      <p class="problem"><${Say} text=${mail.reason} most=${1_000} /></p>
      ${mail.subject && html`<p><b><${Say} text=${mail.subject} /></b></p>`}
      ${mail.body && html`<${Passage} text=${mail.body} label=${`Text of mail ${mail.id}`} prose />`}
      ${rest > 0 && html`<p class="hint">${amount(rest)} more characters are in the events.</p>`}
      <${Problem} error=${error} />
      <p class="actions">
        <${Work} kind="main" disabled=${record.status === "paused"} onError=${setError}
          run=${run(() => api.retryAside(id, mail.id, owner, key.current))}>Try again<//>
        <${Work} kind="danger" onError=${setError} run=${run(() => api.discardAside(id, mail.id, owner))}>Discard<//>
      </p>
    </div>
  `;
}

const HINTS = {
  running: "Add a message to the run",
  paused: "Answer the open calls first",
};

function Composer({ api, watched }) {
  const { record, id } = watched;
  const [body, setBody] = useState("");
  const [error, setError] = useState(null);
  const key = useRef(uniqueId());
  const paused = record.status === "paused";
  const send = async () => {
    await api.post({ task_id: id, body }, key.current);
    setBody("");
    setError(null);
    key.current = uniqueId();
    await watched.refresh();
  };
  const able = body.trim() && !paused;
  const change = (event) => {
    key.current = uniqueId();
    setBody(event.target.value);
  };
  return html`
    <div class="composer">
      <${Problem} error=${error} />
      <textarea rows=${Math.min(6, body.split("\n").length)} value=${body} disabled=${paused}
        aria-label="Message to the task" placeholder=${HINTS[record.status] ?? "Continue the task"}
        onInput=${change} onKeyDown=${sendKey(() => able && send().catch(setError))} />
      <${Work} kind="main" run=${send} onError=${setError} disabled=${!able}>Send<//>
    </div>
  `;
}

function Interrupt({ api, watched, onClose }) {
  const [body, setBody] = useState("");
  const [agent, setAgent] = useState("");
  const [error, setError] = useState(null);
  const key = useRef(uniqueId());
  const send = async () => {
    const message = { task_id: watched.id, msg_type: "interrupt", body };
    if (agent) message.entrypoint = agent;
    await api.post(message, key.current);
    onClose();
    watched.refreshSoon();
  };
  return html`
    <${Dialog} title="Interrupt an agent" onClose=${onClose}>
      <p class="hint">Its running model call is cancelled, and your message is the next that it reads.</p>
      <label>Agent
        <select value=${agent} onChange=${(event) => setAgent(event.target.value)}>
          <option value="">the swarm's entrypoint</option>
          ${watched.actors.agents().map((name) => html`<option value=${name}>${visible(name)}</option>`)}
        </select>
      </label>
      <label>Message
        <textarea rows="3" autofocus value=${body} onInput=${(event) => setBody(event.target.value)}
          onKeyDown=${sendKey(() => body.trim() && send().catch(setError))} />
      </label>
      <${Problem} error=${error} />
      <footer><${Work} kind="main" run=${send} onError=${setError} disabled=${!body.trim()}>Interrupt<//></footer>
    <//>
  `;
}

function Cancel({ api, watched, onClose }) {
  const [error, setError] = useState(null);
  const run = async () => {
    watched.take(await api.cancel(watched.id, watched.owner));
    onClose();
  };
  return html`
    <${Dialog} title="Cancel this task?" onClose=${onClose}>
      <p>Running model calls are cancelled and undelivered messages discarded. A further message can
        continue the task later.</p>
      <${Problem} error=${error} />
      <footer>
        <button onClick=${onClose}>Keep it</button>
        <${Work} kind="danger main" run=${run} onError=${setError}>Cancel the task<//>
      </footer>
    <//>
  `;
}
