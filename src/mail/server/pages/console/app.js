// The console: log in, choose a view by the address, log out. The token stays in this tab.

import { render } from "./preact.mjs";
import { useEffect, useMemo, useRef, useState } from "./hooks.mjs";
import { Outbox, Registry, Tokens } from "./admin.js";
import { createApi } from "./api.js";
import { Approvals, useApprovalChanges } from "./approvals.js";
import { Dialog, html, Problem, Say, useKeys, useRead } from "./parts.js";
import { Mail } from "./mail.js";
import { Memories } from "./memories.js";
import { Swarm } from "./swarm.js";
import { Task } from "./task.js";
import { NewTask, TaskList, Tasks } from "./tasks.js";

const TOKEN = "mail-console-token";
const MANY = 10;
const SHORTCUTS = [
  ["?", "show these shortcuts"],
  ["n", "start a task"],
  ["t", "go to the tasks"],
  ["s", "go to the swarm"],
  ["1 2 3 …", "go to the first, second, third view of the list at the top"],
  ["/", "search"],
  ["j k", "next and previous task or event"],
  ["Home End", "first and newest event (in the timeline)"],
  ["v", "see the task as timeline, sequence or waterfall"],
  ["m", "write to the task"],
  ["a", "answer the first open call"],
  ["a e r i", "accept, edit, respond, ignore (in the approvals)"],
  ["c r", "write a message, reply to it (in the mail)"],
  ["Esc", "leave a field, close an event, go back"],
  ["Ctrl Enter", "send what you have written"],
];

/** Return the views of a caller: their names and titles. */
function viewsOf(caller) {
  const answers = [["approvals", "Approvals"], ["memories", "Memories"]];
  if (caller.role === "agent") return [["mail", "Mail"], ["tasks", "Tasks"], ...answers]; // a participant
  const everybody = [["tasks", "Tasks"], ...answers, ["swarm", "Swarm"]];
  const admins = [["registry", "Registry"], ["outbox", "Outbox"], ["tokens", "Tokens"]];
  return caller.role === "admin" ? [...everybody, ...admins] : everybody;
}

const VIEWS = { approvals: Approvals, mail: Mail, memories: Memories, swarm: Swarm, registry: Registry, outbox: Outbox, tokens: Tokens };

/** Return the view that the address names: {view, id, owner}. */
function routeOf(hash, home) {
  const [, view, id, owner] = hash.split("/");
  try {
    return {
      view: view || home,
      id: id && decodeURIComponent(id),
      owner: owner && decodeURIComponent(owner),
    };
  } catch {
    return { view: home }; // an address that was cut
  }
}

function useRoute(home) {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return useMemo(() => routeOf(hash, home), [hash, home]);
}

function Login({ notice, onToken }) {
  const [error, setError] = useState(notice ? new Error(notice) : null);
  const [busy, setBusy] = useState(false);
  const field = useRef();
  const submit = async (event) => {
    event.preventDefault();
    const token = field.current.value.trim();
    if (!/^[\x21-\x7e]+$/.test(token)) {
      setError(new Error("a token is one word of printable ASCII characters"));
      return;
    }
    setBusy(true);
    try {
      const caller = await createApi(token).whoami();
      onToken(token, caller);
    } catch (refused) {
      const unknown = refused.status === 401;
      setError(unknown ? new Error("the server does not know this token, or it has expired") : refused);
      setBusy(false);
      field.current.focus();
    }
  };
  return html`
    <main class="login">
      <form onSubmit=${submit}>
        <img src="console/mark.svg" alt="" width="56" height="56" />
        <h1>MAIL console</h1>
        <label>Token
          <input ref=${field} type="password" name="token" autocomplete="off" spellcheck="false" autofocus
            aria-invalid=${Boolean(error)} />
        </label>
        <${Problem} error=${error} />
        <button class="main" disabled=${busy}>Log in</button>
        <p class="hint">
          The token stays in this tab and is gone when you close it. In the folder where the server
          runs, <code>mail token create --role user --id you</code> makes one.
        </p>
      </form>
    </main>
  `;
}

/** How many calls wait for this caller, at most `MANY`. */
function useWaiting(api, { changes, told }) {
  const read = async () => (await api.get("approvals", { limit: MANY })).approvals.length;
  return useRead(read, [api, changes], told ? 60_000 : 8_000)[0] ?? 0;
}

function Shell({ session, onLogout }) {
  const { api, caller, list } = session;
  const views = viewsOf(caller);
  const route = useRoute(views[0][0]);
  const [dialog, setDialog] = useState(null);
  const [swarm, setSwarm] = useState(null);
  const close = () => setDialog(null);
  const news = useApprovalChanges(api);
  const waiting = useWaiting(api, news);
  useEffect(() => void api.root().then((root) => setSwarm(root.swarm), () => {}), [api]);
  const View = views.some(([name]) => name === route.view) && VIEWS[route.view];
  const startTask = caller.role === "agent" ? undefined : () => setDialog("new"); // they write letters
  const numbered = views.map(([name], place) => [place + 1, () => (location.hash = `#/${name}`)]);
  useKeys({
    ...Object.fromEntries(numbered),
    "?": () => setDialog("help"),
    t: () => (location.hash = "#/tasks"),
    s: () => (location.hash = "#/swarm"),
    n: startTask,
  });
  const open = route.view === "tasks" && route.id;
  const owner = route.owner === `${caller.role}:${caller.id}` ? undefined : route.owner; // one's own may be written to
  const nav = useRef();
  useEffect(() => { // on a phone not all names are in sight
    nav.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [route.view, waiting > 0]);
  return html`
    <header class="bar">
      <a class="brand" href="#/tasks">
        <img src="console/mark.svg" alt="MAIL" width="28" height="28" />
        <${Say} text=${swarm?.name ?? "MAIL"} most=${60} />
      </a>
      <nav ref=${nav} aria-label="Views">
        ${views.map(([name, title]) => html`
          <a href=${`#/${name}`} aria-current=${(View ? route.view : "tasks") === name ? "page" : undefined}>${title}${name === "approvals" && waiting > 0 && html` <b class="count">${waiting < MANY ? waiting : `${MANY - 1}+`}</b>`}</a>
        `)}
      </nav>
      <span class="who"><${Say} text=${caller.id} most=${40} /> <small>${caller.participant ? "participant" : caller.role}</small></span>
      <button class="plain" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${() => setDialog("help")}>?</button>
      <button class="plain" onClick=${() => onLogout("")}>Log out</button>
    </header>
    ${open
      ? html`<${Task} key=${`${owner} ${route.id}`} api=${api} list=${list} caller=${caller} id=${route.id} owner=${owner} />`
      : View
      ? html`<${View} key=${route.view} api=${api} caller=${caller} id=${route.id} owner=${route.owner} news=${news} />`
      : html`<${Tasks} list=${list} caller=${caller} onNew=${startTask} />`}
    ${dialog === "new" && html`<${NewTask} api=${api} onClose=${close} />`}
    ${dialog === "help" &&
    html`<${Dialog} title="Keyboard shortcuts" onClose=${close}>
      <dl class="keys">
        ${SHORTCUTS.map(([keys, what]) => html`
          <div><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd></div>
        `)}
      </dl>
    <//>`}
  `;
}

function App() {
  const [session, setSession] = useState(null);
  const [notice, setNotice] = useState("");
  const [ready, setReady] = useState(false);
  const logout = (why) => {
    sessionStorage.removeItem(TOKEN);
    setNotice(why);
    setSession(null);
  };
  const enter = (token, caller) => {
    sessionStorage.setItem(TOKEN, token);
    const api = createApi(token, () => logout("your token is not valid any more; log in again"));
    api.ownerFor = ({ owner }) =>
      owner && (owner.role !== caller.role || owner.id !== caller.id) ? `${owner.role}:${owner.id}` : undefined;
    const names = [caller.role, `${caller.participant ? "participant" : caller.role}:${caller.id}`];
    api.mayAnswer = (approval) => approval.approvers.some((one) => (one === "owner" ? !api.ownerFor(approval) : names.includes(one)));
    setSession({ api, caller, list: new TaskList(api, caller.role === "admin") });
  };
  useEffect(() => {
    // A reloaded tab has its token; ask who that is, since it may have been revoked meanwhile.
    const token = sessionStorage.getItem(TOKEN);
    if (!token) return setReady(true);
    createApi(token).whoami().then((caller) => enter(token, caller), (error) => {
      if (error.status === 401) return logout("your token is not valid any more; log in again");
      setNotice(`${error.message}; reload the page, or log in again`);
    }).finally(() => setReady(true));
  }, []);
  if (!ready) return html`<main class="login"><p class="hint">Loading …</p></main>`;
  return session
    ? html`<${Shell} session=${session} onLogout=${logout} />`
    : html`<${Login} key=${notice} notice=${notice} onToken=${enter} />`;
}

render(html`<${App} />`, document.getElementById("app"));
