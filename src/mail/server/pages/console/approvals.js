// Calls that wait for a person: an inbox of them, and the card with which one is answered.

import { useEffect, useRef, useState } from "./hooks.mjs";
import { uniqueId } from "./api.js";
import { briefCall } from "./events.js";
import { age, amount, dateOf, html, Markdown, Passage, Problem, Say, sendKey, useKeys, useRead, visible, Work } from "./parts.js";
import { linkTo } from "./tasks.js";

const PAGE = 50;
const EVERY = 60_000; // while the server tells of changes
const EVERY_UNTOLD = 3_000;
const TOGETHER = 150; // changes at about the same time are read at once
const MOST_LINES = 2_000;
const CONTEXT = 3; // lines before and after a change
const MOST_COMPARED = 4_000_000; // pairs of lines; beyond that all lines count as changed

/** What one may do with a call: its name, its key, what to call it, and what it does. */
const ANSWERS = [
  ["accept", "a", "Accept", "The call is run as it is."],
  ["edit", "e", "Edit", "The call is run with your arguments; the agent sees that you changed them."],
  ["response", "r", "Respond", "The call is not run. The agent gets your text as its result, and goes on."],
  ["ignore", "i", "Ignore", "The call is not run, and the task ends."],
];
const ALLOWS = { accept: "allow_accept", edit: "allow_edit", response: "allow_respond", ignore: "allow_ignore" };

/** Return the lines of two texts as [mark, line]: "-" gone, "+" new, " " in both. */
export function compare(before, after) {
  const [one, two] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < one.length && start < two.length && one[start] === two[start]) start++;
  let end = 0;
  while (end < one.length - start && end < two.length - start && one.at(-1 - end) === two.at(-1 - end)) end++;
  const [gone, made] = [one.slice(start, one.length - end), two.slice(start, two.length - end)];
  const middle = gone.length * made.length > MOST_COMPARED
    ? [...gone.map((line) => ["-", line]), ...made.map((line) => ["+", line])]
    : longestCommon(gone, made);
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(one.slice(0, start)), ...middle, ...same(one.slice(one.length - end))];
}

function longestCommon(one, two) {
  const table = Array.from({ length: one.length + 1 }, () => new Uint32Array(two.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = two.length - 1; j >= 0; j--) {
      table[i][j] = one[i] === two[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < two.length) {
    if (i < one.length && j < two.length && one[i] === two[j]) {
      found.push([" ", one[i]]);
      i++;
      j++;
    } else if (i < one.length && (j === two.length || table[i + 1][j] >= table[i][j + 1])) found.push(["-", one[i++]]);
    else found.push(["+", two[j++]]);
  }
  return found;
}

const WORDS = { "-": "removed: ", "+": "added: ", " ": "" };

/** Leave out the lines far from any change. */
function near(lines) {
  const close = new Uint8Array(lines.length);
  lines.forEach(([mark], place) => mark !== " " && close.fill(1, Math.max(0, place - CONTEXT), place + CONTEXT + 1));
  return lines.flatMap((line, place) => (close[place] ? [line] : close[place - 1] || (place === 0 && lines.length) ? [["…", ""]] : []));
}

function Changes({ name, before, after }) {
  const lines = near(compare(before, after));
  if (lines.every(([mark]) => mark !== "-" && mark !== "+")) return null;
  return html`
    <div class="diff" role="group" aria-label=${`Changes of ${visible(name)}`}>
      <b><${Say} text=${name} most=${120} /></b>
      <pre tabindex="0">${lines.slice(0, MOST_LINES).map(([mark, line]) => html`<span class=${{ "-": "gone", "+": "made" }[mark] ?? ""}><span
        class="unseen">${WORDS[mark] ?? ""}</span>${mark} ${visible(line.slice(0, 5_000))}${"\n"}</span>`)}</pre>
      ${lines.length > MOST_LINES && html`<p class="problem">${amount(lines.length - MOST_LINES)} more lines are not shown.</p>`}
    </div>
  `;
}

/** Tell of approvals that are opened and closed while the page is seen: a count that grows, and whether it does. */
export function useApprovalChanges(api) {
  const [changes, setChanges] = useState(0);
  const [told, setTold] = useState(false);
  useEffect(() => {
    let [control, last, timer] = [null, undefined, undefined];
    const tell = () => (timer ??= setTimeout(() => {
      timer = undefined;
      setChanges((count) => count + 1);
    }, TOGETHER));
    const leave = () => {
      control?.abort();
      control = null;
      setTold(false);
    };
    const look = async () => {
      if (document.visibilityState !== "visible") return leave(); // browsers open few connections for all tabs
      if (control) return;
      const mine = (control = new AbortController());
      const onEvent = (event) => {
        last = event.id;
        tell();
      };
      const onState = (link) => mine === control && setTold(link === "live");
      try {
        await api.followApprovals({ after: last, signal: mine.signal, onEvent, onState });
      } catch {
        // it is refused for good: what reads them goes on to ask
      }
      if (mine === control) setTold(false);
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(timer);
      leave();
    };
  }, [api]);
  return { changes, told };
}

const argsOf = (request) => {
  const { args } = request ?? {};
  return args && typeof args === "object" && !Array.isArray(args) ? args : { arguments: args ?? "" };
};
const asText = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? ""));

const rowsFor = (text) => Math.min(12, Math.max(text.split("\n").length, Math.ceil(text.length / 80)));

/** All changes between two sets of arguments. */
function AllChanges({ before, after }) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const shown = names.map((name) => html`
    <${Changes} key=${name} name=${name} before=${name in before ? asText(before[name]) : ""} after=${name in after ? asText(after[name]) : ""} />
  `);
  const changed = names.some((name) => asText(before[name]) !== asText(after[name]));
  return changed ? shown : html`<p class="hint">Nothing is changed yet.</p>`;
}

/** Tell whether all whole numbers in a value are those that the server has sent. */
function isExact(value) {
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  return typeof value !== "object" || value === null || Object.values(value).every(isExact);
}

/** The end of a description that only repeats the call, whose arguments are shown anyway. */
const REPEATED = /\n*\*\*[^\n]*\*\*\n\n```json\n[\s\S]*\n```\s*$/;

const othersOf = ({ approvers }) =>
  visible(approvers.map((one) => ({ owner: "the task's owner", admin: "an administrator" })[one] ?? one).join(" or ").slice(0, 200));

/** One call: what is asked, and as many ways to answer it as its configuration allows. */
export function ApprovalCard({ api, approval, onDone, keys = false, titled = true }) {
  const { config, action_request: request, kind } = approval;
  const mine = api.mayAnswer(approval);
  const allowed = mine ? ANSWERS.filter(([type]) => config[ALLOWS[type]]) : [];
  const open = approval.status === "open";
  const [mode, setMode] = useState(allowed.length === 1 ? allowed[0][0] : "");
  const [error, setError] = useState(null);
  const card = useRef();
  const key = useRef(uniqueId());
  const original = argsOf(request);
  const exact = isExact(original);
  const [text, setText] = useState("");
  const [edited, setEdited] = useState(() => Object.fromEntries(Object.entries(original).map(([name, value]) => [name, asText(value)])));
  const first = useRef(true);
  useEffect(() => {
    if (!first.current || keys) card.current?.querySelector(".answer-form textarea, .answer-form .main")?.focus();
    first.current = false;
  }, [mode]);
  const begin = (type) => () => open && allowed.some(([name]) => name === type) && setMode(type);
  useKeys(keys ? { ...Object.fromEntries(ANSWERS.map(([type, letter]) => [letter, begin(type)])) } : {});
  const changed = () => {
    if (!exact) throw new Error("a number in the arguments is too large for a browser: edit them with another program");
    const read = ([name, value]) => {
      if (value === asText(original[name])) return [name, original[name]];
      if (typeof original[name] === "string") return [name, value];
      try {
        return [name, JSON.parse(value)];
      } catch {
        throw new Error(`${visible(name)} is not JSON: a text stands in quotation marks`);
      }
    };
    return Object.fromEntries(Object.entries(edited).map(read)); // also a name like __proto__
  };
  const send = async () => {
    const args = mode === "edit" ? { action: request.action, args: changed() } : mode === "response" ? text : null;
    const path = `approvals/${encodeURIComponent(approval.approval_id)}`;
    await api.send("POST", path, { type: mode, args }, api.once(key.current));
    setError(null);
    await onDone?.();
  };
  const ready = mode && (mode !== "response" || text);
  const sendNow = () => ready && send().catch(setError);
  const about = kind === "breakpoint" ? "" : approval.description.replace(REPEATED, "");
  let now = original;
  try {
    now = changed();
  } catch {
    // the error is told when it is sent
  }
  const change = (set) => (event) => {
    key.current = uniqueId();
    set(event.target.value);
  };
  return html`
    <div class="approval open-call" ref=${card}>
      <h2><${Say} text=${request.action} most=${120} />${open ? ` waits for ${mine ? "you" : othersOf(approval)}` : ""}</h2>
      ${titled && html`<p class="hint">
        <${Say} text=${approval.agent} most=${80} /> in
        ${" "}<a href=${linkTo(approval.task_id, api.ownerFor?.(approval))}><${Say} text=${approval.task_id} most=${60} /></a>
        ${" · "}<span title=${dateOf(approval.created_at)}>${age(approval.created_at)}</span>
        ${open && approval.expires_at && ` · until ${dateOf(approval.expires_at)}`}
      </p>`}
      ${about && html`<${Markdown} text=${about} />`}
      ${mode !== "edit" && html`<dl class="details">
        ${Object.entries(original).map(([name, value]) => html`<div key=${name}>
          <dt><${Say} text=${name} most=${120} /></dt><dd><${Passage} text=${asText(value)} label=${`Argument ${visible(name)}`} /></dd>
        </div>`)}
      </dl>`}
      ${!exact && html`<p class="problem">A number here has more digits than a browser keeps: the call has other last digits.</p>`}
      ${open && allowed.length > 1 && html`<p class="actions" role="group" aria-label="Answers">
        ${allowed.map(([type, letter, name]) => html`
          <button aria-pressed=${mode === type} onClick=${() => setMode(mode === type ? "" : type)}>${name}${keys && html` <kbd>${letter}</kbd>`}</button>
        `)}
      </p>`}
      ${open && mode && html`<form class="answer-form" onSubmit=${(event) => event.preventDefault()} onKeyDown=${sendKey(sendNow)}>
        ${kind !== "breakpoint" && html`<p class="hint">${ANSWERS.find(([type]) => type === mode)[3]}</p>`}
        ${mode === "response" && html`<label>${kind === "breakpoint" ? "Result for the agent" : "Your text for the agent"}
          <textarea rows="3" value=${text} onInput=${change(setText)} /></label>`}
        ${mode === "edit" && html`
          ${Object.keys(edited).map((name) => html`<label key=${name}><${Say} text=${name} most=${120} />
            <textarea rows=${rowsFor(edited[name])} value=${edited[name]}
              onInput=${change((value) => setEdited({ ...edited, [name]: value }))} /></label>
            ${visible(edited[name]) !== edited[name] && html`<p class="hint">The field does not show all of it:</p>
              <${Passage} text=${edited[name]} label=${`All of ${visible(name)}`} />`}`)}
          <h3>Changes</h3>
          <${AllChanges} before=${original} after=${now} />
        `}
        <${Problem} error=${error} />
        <footer>
          ${allowed.length > 1 && html`<button type="button" onClick=${() => setMode("")}>Back</button>`}
          <${Work} kind=${mode === "ignore" ? "danger main" : "main"} run=${send} onError=${setError} disabled=${!ready}>${
            { accept: "Accept and run", edit: "Run the edited call", ignore: "Ignore and end", response: kind === "breakpoint" ? "Send result" : "Send response" }[mode]
          }<//>
        </footer>
      </form>`}
      ${!open && html`<${Answered} approval=${approval} />`}
    </div>
  `;
}

/** What became of a call. */
function Answered({ approval }) {
  const { answer } = approval;
  return html`
    <p><b>${approval.status}</b>${approval.answered_by && html` by <${Say} text=${approval.answered_by} most=${120} />`}${
      approval.answered_at && `, ${dateOf(approval.answered_at)}`}</p>
    ${answer?.type === "edit" && html`<h3>Changes</h3><${AllChanges} before=${argsOf(approval.action_request)} after=${argsOf(answer.args)} />`}
    ${answer?.type === "response" && html`<${Passage} text=${asText(answer.args)} label="Response" prose />`}
  `;
}

/** The open calls of one task, as often as its record changes. */
export function OpenCalls({ api, watched }) {
  const { record, id } = watched;
  const state = `${record.status} ${(record.breakpoints ?? []).map((call) => call.call_id).join(" ")}`;
  const open = ["running", "paused"].includes(record.status);
  const read = async () => (open ? (await api.get("approvals", { task_id: id, limit: 200 })).approvals : []);
  const [found, error, refresh] = useRead(read, [api, id, state]);
  const done = async () => {
    await refresh();
    await watched.refresh();
  };
  return html`
    <${Problem} error=${error} />
    ${(found ?? []).filter((one) => one.task_id === id && api.ownerFor(one) === watched.owner).map((one) => html`
      <${ApprovalCard} key=${one.approval_id} api=${api} approval=${one} onDone=${done} titled=${false} />
    `)}
  `;
}

export function Approvals({ api, id, news }) {
  const [status, setStatus] = useState("open");
  const [older, setOlder] = useState({ rows: [], next: undefined });
  const [told, setTold] = useState("");
  const page = (cursor) => api.get("approvals", { status, limit: PAGE, cursor });
  const [found, error, refresh, setError] = useRead(() => page(), [api, status, news.changes], news.told ? EVERY : EVERY_UNTOLD);
  useEffect(() => setOlder({ rows: [], next: undefined }), [status]);
  const next = older.next === undefined ? found?.next_cursor : older.next;
  const rows = [...new Map([...(found?.approvals ?? []), ...older.rows].map((one) => [one.approval_id, one])).values()];
  const chosen = rows.find((one) => one.approval_id === id) ?? rows[0];
  const go = (step) => {
    const place = rows.indexOf(chosen) + step;
    if (rows[place]) location.hash = `#/approvals/${encodeURIComponent(rows[place].approval_id)}`;
  };
  useKeys({
    j: () => go(1),
    k: () => go(-1),
    Escape: () => (document.activeElement?.matches("textarea, input") ? document.activeElement.blur() : (location.hash = "#/approvals")),
  });
  const more = async () => {
    const fresh = await page(next);
    setOlder({ rows: [...older.rows, ...fresh.approvals], next: fresh.next_cursor });
  };
  const done = async () => {
    setTold(`${visible(chosen.action_request.action).slice(0, 80)} is answered.`);
    await refresh();
  };
  return html`
    <main class=${`mail approvals ${id ? "reading" : ""}`}>
      <div class="list-side">
        <div class="title"><h1>Approvals</h1></div>
        <div class="chips" role="group" aria-label="Which">
          ${["open", "all"].map((name) => html`<button class="chip" aria-pressed=${status === name} onClick=${() => setStatus(name)}>${name}</button>`)}
        </div>
        <${Problem} error=${error} />
        ${found && rows.length === 0 && html`<p class="empty">${status === "open" ? "Nothing waits for you. Calls that need a person's approval come here." : "There were none yet."}</p>`}
        <ul class="letters">
          ${rows.map((one) => html`<li key=${one.approval_id}>
            <a href=${`#/approvals/${encodeURIComponent(one.approval_id)}`} class=${one.status === "open" ? "unread" : ""} aria-current=${one === chosen ? "true" : undefined}>
              <span class="line"><b><${Say} text=${one.action_request.action} most=${80} /></b>
                ${one.status !== "open" && html`<small>${one.status}</small>`}
                <time title=${dateOf(one.created_at)}>${age(one.created_at)}</time></span>
              <span class="text"><${Say} text=${`${one.agent} · ${briefCall(argsOf(one.action_request))}`} most=${160} /></span>
            </a>
          </li>`)}
        </ul>
        ${next && html`<p class="more"><${Work} run=${more} onError=${setError}>Load older<//><span>${amount(rows.length)} loaded</span></p>`}
      </div>
      <div class="page-side">
        <p class="hint" role="status">${told}</p>
        <a href="#/approvals" class="back only-phone" aria-label="Back to the list">←</a>
        ${chosen && html`<${ApprovalCard} key=${`${chosen.approval_id} ${chosen.status}`} api=${api} approval=${chosen} onDone=${done} keys />`}
      </div>
    </main>
  `;
}
