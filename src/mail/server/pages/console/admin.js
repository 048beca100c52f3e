// For administrators: access tokens, the registry of other swarms, and the mail that waits for them.

import { useRef, useState } from "./hooks.mjs";
import { uniqueId } from "./api.js";
import { age, amount, dateOf, Dialog, duration, FormDialog, html, Problem, Say, useRead, Work } from "./parts.js";
import { linkTo } from "./tasks.js";

function Page({ title, error, found, tools, children }) {
  return html`
    <main class="page wide">
      <div class="title"><h1>${title}</h1><span class="spring"></span>${tools}</div>
      <${Problem} error=${error} />
      ${found ? children : !error && html`<p class="empty">Loading …</p>`}
    </main>
  `;
}

/** Ask before something is done that cannot be undone. */
function Ask({ title, text, doing, run, onClose }) {
  const [error, setError] = useState(null);
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <p>${text}</p>
      <${Problem} error=${error} />
      <footer>
        <button onClick=${onClose}>Keep it</button>
        <${Work} kind="danger main" run=${async () => { await run(); onClose(); }} onError=${setError}>${doing}<//>
      </footer>
    <//>
  `;
}

export function Tokens({ api, caller }) {
  const [more, setMore] = useState([]);
  const [cursor, setCursor] = useState(undefined);
  const [dialog, setDialog] = useState(null);
  const [found, error, refresh, setError] = useRead(() => api.get("tokens"), [api]);
  const next = cursor === undefined ? found?.next_cursor : cursor;
  const loadMore = async () => {
    const page = await api.get("tokens", { cursor: next });
    setMore([...more, ...page.tokens]);
    setCursor(page.next_cursor);
  };
  const change = () => {
    setMore([]);
    setCursor(undefined);
    return refresh();
  };
  const tokens = [...new Map([...(found?.tokens ?? []), ...more].map((one) => [one.hash, one])).values()];
  const revoke = async ({ hash }) => {
    await api.send("DELETE", `tokens/${hash}`);
    await change();
  };
  return html`
    <${Page} title="Tokens" error=${error} found=${found}
      tools=${html`<button class="main" onClick=${() => setDialog({ kind: "new" })}>New token</button>`}>
      <p class="hint">The server has only their hashes. A new token is shown once.</p>
      <div class="scroll-x" tabindex="0" role="region" aria-label="Tokens"><table class="left acting">
        <thead><tr><th>Hash</th><th>Role</th><th>Id</th><th>Label</th><th>State</th><th>Made</th><th>Expires</th><th><span class="unseen">Action</span></th></tr></thead>
        <tbody>${tokens.map((one) => html`<tr key=${one.hash} class=${one.state === "valid" ? "" : "past"}>
          <td><code>${one.hash}</code></td>
          <td>${one.kind ?? one.role}</td>
          <td><${Say} text=${one.id} most=${80} /></td>
          <td><${Say} text=${one.label} most=${80} /></td>
          <td>${one.state}</td>
          <td title=${dateOf(one.created_at)}>${age(one.created_at)}</td>
          <td>${one.expires_at ? dateOf(one.expires_at) : "never"}</td>
          <td>${one.state === "valid" && html`<button class="small danger" aria-label=${`Revoke ${one.hash}`}
            onClick=${() => setDialog({ kind: "revoke", one })}>Revoke</button>`}</td>
        </tr>`)}</tbody>
      </table></div>
      ${next && html`<p class="more"><${Work} run=${loadMore} onError=${setError}>Load older tokens<//></p>`}
    <//>
    ${dialog?.kind === "new" && html`<${NewToken} api=${api} onMade=${change} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "revoke" && html`<${Ask} title="Revoke this token?" doing="Revoke"
      text=${html`Whoever uses the token <code>${dialog.one.hash}</code> of <${Say} text=${dialog.one.id} most=${80} /> is
        refused from then on.${dialog.one.id === caller.id && dialog.one.role === caller.role && " It may be the one that you use now."}`}
      run=${() => revoke(dialog.one)} onClose=${() => setDialog(null)} />`}
  `;
}

function NewToken({ api, onMade, onClose }) {
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const [role, setRole] = useState("user");
  const form = useRef();
  const send = async () => {
    const { id, label, days } = form.current.elements;
    const body = { role: role === "participant" ? "agent" : role, id: id.value.trim(), label: label.value };
    if (days.value) body.days = Number(days.value);
    if (role === "participant") body.participant = true;
    setMade(await api.send("POST", "tokens", body, api.once(uniqueId())));
    onMade();
  };
  const submit = (event) => {
    event.preventDefault();
    send().catch(setError);
  };
  if (made) {
    return html`
      <${Dialog} title="The new token" onClose=${onClose}>
        <p>Copy it now: it is not shown again.</p>
        <label>Token of <${Say} text=${made.id} most=${80} />
          <input class="secret" readonly autofocus value=${made.token} onFocus=${(event) => event.target.select()} />
        </label>
        <footer><button class="main" onClick=${onClose}>Done</button></footer>
      <//>
    `;
  }
  return html`
    <${Dialog} title="New token" onClose=${onClose}>
      <form ref=${form} onSubmit=${submit}>
        <label>Role
          <select value=${role} onChange=${(event) => setRole(event.target.value)}>
            <option value="user">user</option>
            <option value="admin">administrator</option>
            <option value="participant">participant of the swarm</option>
            <option value="agent">another swarm</option>
          </select>
        </label>
        <label>Id<input name="id" required maxlength="256" autofocus autocomplete="off" /></label>
        <label>Label<input name="label" maxlength="200" autocomplete="off" placeholder="a note, for example: laptop" /></label>
        <label>Days until it expires<input name="days" type="number" min="1" max="36499" placeholder="never" /></label>
        <${Problem} error=${error} />
        <footer><button class="main">Create</button></footer>
      </form>
    <//>
  `;
}

export function Registry({ api }) {
  const [dialog, setDialog] = useState(null);
  const [found, error, refresh, setError] = useRead(() => api.get("swarms/registry"), [api]);
  const cancels = useRef();
  const remove = async ({ swarm_name: name }) => {
    const query = cancels.current.checked ? "?cancel_tasks=true" : "";
    await api.send("DELETE", `swarms/${encodeURIComponent(name)}${query}`);
    await refresh();
  };
  const accept = (name) => async () => {
    await api.send("POST", `swarms/${encodeURIComponent(name)}/accept`, undefined, api.once(uniqueId()));
    await refresh();
  };
  return html`
    <${Page} title="Registry" error=${error} found=${found} tools=${html`
      <button onClick=${() => setDialog({ kind: "discover" })}>Discover</button>
      <button class="main" onClick=${() => setDialog({ kind: "register" })}>Register</button>`}>
      ${found?.proposed.length > 0 && html`
        <h2>Proposed</h2>
        <ul class="cards">${found.proposed.map((one) => html`<li key=${one.swarm_name}>
          <strong><${Say} text=${one.swarm_name} most=${120} /></strong>
          <span><${Say} text=${one.base_url} most=${300} /></span>
          <span class="actions">
            <${Work} kind="small main" run=${accept(one.swarm_name)} onError=${setError}>Accept<//>
            <button class="small danger" onClick=${() => setDialog({ kind: "remove", one })}>Refuse</button>
          </span>
        </li>`)}</ul>
        <h2>Registered</h2>`}
      <ul class="cards">${found?.swarms.map((one, place) => html`<li key=${one.swarm_name}>
        <strong><${Say} text=${one.swarm_name} most=${120} /></strong>
        <span class=${`health ${one.is_active ? "up" : "down"}`}>${one.is_active ? "answers" : "does not answer"}${
          typeof one.latency === "number" ? ` in ${duration(one.latency * 1000)}` : ""}</span>
        <span><${Say} text=${one.base_url} most=${300} /></span>
        <span class="hint">${[
          one.public ? "public" : "not public", one.volatile && "until the server stops",
          place > 0 && (one.has_token ? "has a token" : `no token: set ${one.token_variable}`),
          one.public_keys?.length ? "signs its mail" : place > 0 && "unsigned",
          one.last_seen && `seen ${age(one.last_seen)}`,
        ].filter(Boolean).join(" · ")}</span>
        <span class="actions">${place > 0 && html`<button class="small danger" onClick=${() => setDialog({ kind: "remove", one })}>Remove</button>`}</span>
      </li>`)}</ul>
    <//>
    ${dialog?.kind === "remove" && html`<${Ask} title="Remove this swarm?" doing="Remove"
      text=${html`Agents cannot write to <${Say} text=${dialog.one.swarm_name} most=${120} /> any more, and its mail is refused.
        Tasks that it has open here go on, and nobody gets their answers.
        <label class="check"><input type="checkbox" ref=${cancels} /> cancel them</label>`}
      run=${() => remove(dialog.one)} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "register" && html`<${Register} api=${api} onDone=${refresh} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "discover" && html`<${Discover} api=${api} onDone=${refresh} onClose=${() => setDialog(null)} />`}
  `;
}

function Register({ api, onDone, onClose }) {
  const send = async ({ swarm, address, keep }) => {
    const body = { name: swarm.value.trim(), base_url: address.value.trim(), volatile: !keep.checked };
    await api.send("POST", "swarms", body, api.once(uniqueId()));
    onDone();
  };
  return html`
    <${FormDialog} title="Register a swarm" doing="Register" send=${send} onClose=${onClose}>
      <label>Name<input name="swarm" required maxlength="256" autofocus autocomplete="off" /></label>
      <label>Address of its server<input name="address" required type="url" maxlength="2048" placeholder="https://swarm.example" /></label>
      <label class="check"><input name="keep" type="checkbox" checked /> keep it after a restart of this server</label>
      <p class="hint">Its token is read from the environment of this server.</p>
    <//>
  `;
}

function Discover({ api, onDone, onClose }) {
  const [problems, setProblems] = useState([]);
  const send = async ({ addresses }) => {
    const urls = addresses.value.split(/\s+/).filter(Boolean);
    const told = await api.send("POST", "swarms/discover", { discovery_urls: urls }, api.once(uniqueId()));
    onDone();
    setProblems(told.problems);
    if (told.problems.length) throw new Error(`${told.proposed.length} proposed; some servers could not be asked`);
  };
  return html`
    <${FormDialog} title="Ask servers for their swarms" doing="Ask" send=${send} onClose=${onClose}>
      <label>Addresses, one a line<textarea name="addresses" rows="4" required autofocus /></label>
      <ul>${problems.map(({ field, problem }) => html`<li><${Say} text=${`${field}: ${problem}`} most=${500} /></li>`)}</ul>
    <//>
  `;
}

const STATES = { waiting: "waits", delivered: "waits for its answer", dead: "given up" };

/** The state of something that is to be delivered, in words and a colour. */
function Delivery({ state }) {
  const kind = { dead: "down", delivered: "up" }[state] ?? "";
  return html`<span class=${`health ${kind}`}>${STATES[state] ?? state}</span>`;
}

/** How often it was tried, and when it is again. */
const attemptsOf = ({ attempts, next_at }) =>
  `${amount(attempts)} attempt${attempts === 1 ? "" : "s"}${next_at ? ` · again ${dateOf(next_at)}` : ""}`;

/** Return what one reads, tries again and discards at a path, in pages. */
function useDeliveries(api, path) {
  const [after, setAfter] = useState(0);
  const [found, error, refresh, setError] = useRead(() => api.get(path, { after }), [api, after]);
  return {
    found, error, refresh, setError,
    retry: (number) => async () => {
      await api.send("POST", `${path}/${number}/retry`, undefined, api.once(uniqueId()));
      await refresh();
    },
    discard: async ({ id }) => {
      await api.open(`${path}/${id}`, { method: "DELETE" });
      await refresh();
    },
    pages: html`
      <p class="more">
        ${after > 0 && html`<button onClick=${() => setAfter(0)}>First page</button>`}
        ${found?.next_after && html`<button onClick=${() => setAfter(found.next_after)}>Next page</button>`}
      </p>`,
  };
}

const linkOf = (one) => html`<a href=${linkTo(one.task_id, one.owner.slice(0, one.owner.lastIndexOf("@")))}><${Say} text=${one.task_id} most=${60} /></a>`;

export function Outbox({ api }) {
  const [dialog, setDialog] = useState(null);
  const { found, error, setError, retry, discard, pages } = useDeliveries(api, "outbox");
  return html`
    <${Page} title="Outbox" error=${error} found=${found}>
      <h2>Other swarms</h2>
      <p class="hint">Mail for other swarms that is not done with, oldest first.</p>
      ${found?.mail.length === 0 && html`<p class="empty">Nothing waits.</p>`}
      <ul class="cards">${found?.mail.map((one) => html`<li key=${one.id} class=${one.state}>
        <strong>${amount(one.id)} · <${Say} text=${one.kind} most=${40} /> to <${Say} text=${one.peer} most=${120} /></strong>
        <${Delivery} state=${one.state} />
        <span class="hint">from <${Say} text=${one.sender ?? "the server"} most=${80} /> in${" "}
          ${linkOf(one)} of <${Say} text=${one.owner} most=${80} /> · ${attemptsOf(one)}</span>
        ${one.last_error && html`<span class="problem-text"><${Say} text=${one.last_error} most=${600} /></span>`}
        <span class="actions">
          ${one.state !== "delivered" && html`<${Work} kind="small" run=${retry(one.id)} onError=${setError}>Try now<//>`}
          ${one.state === "dead" && html`<button class="small danger" onClick=${() => setDialog(one)}>Discard</button>`}
        </span>
      </li>`)}</ul>
      ${pages}
      <${Webhook} api=${api} />
    <//>
    ${dialog && html`<${Ask} title="Discard this mail?" doing="Discard" text=${`Mail ${dialog.id} is never delivered then.`}
      run=${() => discard(dialog)} onClose=${() => setDialog(null)} />`}
  `;
}

/** The program that is told when somebody is needed, and what it has not taken. */
function Webhook({ api }) {
  const [dialog, setDialog] = useState(null);
  const { found, error, setError, retry, discard, pages } = useDeliveries(api, "webhook");
  return html`
    <section class="webhook" aria-label="Webhook">
      <h2>Webhook</h2>
      <${Problem} error=${error} />
      ${found && (found.url
        ? html`<p class="hint"><${Say} text=${found.url} most=${300} /> is told of ${found.events.join(", ")}. What it has not
            taken, oldest first:</p>`
        : html`<p class="hint">None is set up: no program is told when somebody is needed.</p>`)}
      ${found?.url && found.messages.length === 0 && html`<p class="empty">It has taken everything.</p>`}
      <ul class="cards">${found?.messages.map((one) => html`<li key=${one.id} class=${one.state}>
        <strong>${amount(one.id)} · <${Say} text=${one.event} most=${40} /></strong>
        <${Delivery} state=${one.state} />
        <span class="hint">${linkOf(one)} of <${Say} text=${one.owner} most=${80} /> ·${" "}
          <span title=${dateOf(one.created_at)}>${age(one.created_at)}</span> · ${attemptsOf(one)}</span>
        ${one.last_error && html`<span class="problem-text"><${Say} text=${one.last_error} most=${600} /></span>`}
        <span class="actions">
          <${Work} kind="small" run=${retry(one.id)} onError=${setError}>Send now<//>
          <button class="small danger" onClick=${() => setDialog(one)}>Discard</button>
        </span>
      </li>`)}</ul>
      ${pages}
    </section>
    ${dialog && html`<${Ask} title="Discard this message?" doing="Discard" text=${`The webhook is not told of message ${dialog.id} then.`}
      run=${() => discard(dialog)} onClose=${() => setDialog(null)} />`}
  `;
}
