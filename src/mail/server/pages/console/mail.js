// The mail desk, as the participant who has logged in: letters, threads, receipts and files.

import { useEffect, useRef, useState } from "./hooks.mjs";
import { uniqueId } from "./api.js";
import {
  age, amount, dateOf, Dialog, FormDialog, html, Passage, Problem, Say, sendKey, size, useKeys, useRead, visible, Work,
} from "./parts.js";

const EVERY = 4_000;
const TYPING = 300;
const PAGE = 50;
const LARGEST = 200 * 1024 * 1024; // a download is held by the browser until it is whole

const at = (...parts) => `#/mail/${parts.map(encodeURIComponent).join("/")}`;
const senderOf = (letter) => letter.sender_id ?? "the desk";

export function Mail({ api, caller, id: part, owner: which }) {
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const field = useRef();
  useKeys({
    c: () => setDialog("letter"),
    "/": () => field.current?.focus(),
    Escape: () => {
      if (document.activeElement?.matches("textarea, input")) document.activeElement.blur();
      else location.hash = "#/mail";
    },
  });
  return html`
    <main class=${`mail ${part ? "reading" : ""}`}>
      <div class="list-side">
        <div class="title">
          <h1>Mail</h1><span class="spring"></span>
          <button class="main" onClick=${() => setDialog("letter")}>Write</button>
        </div>
        <nav class="chips" aria-label="Mail">
          <a class="chip" href="#/mail" aria-current=${!part || part === "letter" ? "page" : undefined}>Inbox</a>
          <a class="chip" href=${at("threads")} aria-current=${part?.startsWith("thread") ? "page" : undefined}>Threads</a>
          <a class="chip" href=${at("files")} aria-current=${part === "files" ? "page" : undefined}>Files</a>
        </nav>
        ${part?.startsWith("thread")
          ? html`<${Threads} api=${api} chosen=${which} onNew=${() => setDialog("thread")} />`
          : part === "files"
          ? html`<p class="hint">Files that you have uploaded go with a message: press <kbd>c</kbd>.</p>`
          : html`<${Inbox} api=${api} chosen=${which} field=${field} />`}
      </div>
      <div class="page-side">
        ${part === "letter" && html`<${Letter} key=${which} api=${api} caller=${caller} id=${which} />`}
        ${part === "thread" && html`<${Thread} key=${which} api=${api} caller=${caller} id=${which} />`}
        ${part === "files" && html`<${Files} api=${api} />`}
        ${(!part || part === "threads") && html`<p class="empty">Choose ${part ? "a thread" : "a message"} to read it.</p>`}
      </div>
    </main>
    ${dialog === "letter" && html`<${Compose} api=${api} caller=${caller} onClose=${close} />`}
    ${dialog === "thread" && html`<${NewThread} api=${api} caller=${caller} onClose=${close} />`}
  `;
}

function Inbox({ api, chosen, field }) {
  const [search, setSearch] = useState("");
  const [words, setWords] = useState("");
  const [older, setOlder] = useState({ letters: [], next: undefined });
  useEffect(() => {
    const timer = setTimeout(() => setWords(search.trim()), TYPING);
    return () => clearTimeout(timer);
  }, [search]);
  useEffect(() => setOlder({ letters: [], next: undefined }), [words]);
  const page = (before) =>
    words
      ? api.get("messages/search", { q: words, limit: PAGE, before })
      : api.get("messages", { mark_read: false, limit: PAGE, before });
  const [found, error, , setError] = useRead(() => page(), [api, words], EVERY);
  const next = older.next === undefined ? found?.messages.length === PAGE && found.next_before : older.next;
  const more = async () => {
    const fresh = await page(next);
    setOlder({
      letters: [...older.letters, ...fresh.messages],
      next: fresh.messages.length === PAGE ? fresh.next_before : null,
    });
  };
  const letters = [...new Map([...(found?.messages ?? []), ...older.letters].map((one) => [one.id, one])).values()];
  return html`
    <input ref=${field} type="search" aria-label="Search in your mail" placeholder="Search all mail" value=${search}
      onInput=${(event) => setSearch(event.target.value)} />
    <${Problem} error=${error} />
    ${found && letters.length === 0 && html`<p class="empty">${words ? "No message has these words." : "No messages yet."}</p>`}
    <ul class="letters">
      ${letters.map((letter) => html`<li key=${letter.id}>
        <a href=${at("letter", letter.id)} class=${letter.read ? "" : "unread"} aria-current=${letter.id === chosen ? "true" : undefined}>
          <span class="line"><b><${Say} text=${senderOf(letter)} most=${60} /></b>
            ${letter.urgent && html`<small class="urgent">urgent</small>`}
            ${!letter.read && html`<small class="new">new</small>`}
            <time title=${dateOf(letter.created_at)}>${age(letter.created_at)}</time></span>
          <span class="text"><${Say} text=${[letter.subject, letter.snippet ?? letter.content].filter(Boolean).join(" · ")} most=${160} /></span>
        </a>
      </li>`)}
    </ul>
    ${next && html`<p class="more"><${Work} run=${more} onError=${setError}>Load older messages<//></p>`}
  `;
}

function Threads({ api, chosen, onNew }) {
  const [found, error] = useRead(() => api.get("threads", { limit: 1000 }), [api], EVERY);
  return html`
    <p><button onClick=${onNew}>New thread</button></p>
    <${Problem} error=${error} />
    ${found?.threads.length === 0 && html`<p class="empty">You are in no thread.</p>`}
    <ul class="letters threads">
      ${found?.threads.map((thread) => html`<li key=${thread.id}>
        <a href=${at("thread", thread.id)} aria-current=${thread.id === chosen ? "true" : undefined}>
          <span class="line"><b><${Say} text=${thread.title} most=${200} /></b></span>
          <span class="text">by <${Say} text=${thread.creator_id} most=${60} />, ${age(thread.created_at)}</span>
        </a>
      </li>`)}
    </ul>
  `;
}

const Back = ({ to = "#/mail" }) => html`<a href=${to} class="back only-phone" aria-label="Back to the list">←</a>`;

function Letter({ api, caller, id }) {
  const path = `messages/${encodeURIComponent(id)}`;
  const [found, error, refresh, setError] = useRead(() => api.get(path), [api, id], EVERY);
  const [dialog, setDialog] = useState(false);
  const [note, setNote] = useState("");
  const [done, setDone] = useState(false);
  useKeys({ r: () => found && setDialog(true) });
  if (!found) return html`<${Back} />${error ? html`<${Problem} error=${error} />` : html`<p class="empty">Loading …</p>`}`;
  const { message: letter, receipts } = found;
  const mine = letter.sender_id === caller.id;
  const acknowledge = async () => {
    await api.send("POST", `${path}/ack`, { note }, api.once(uniqueId()));
    setDone(true);
    await refresh();
  };
  return html`
    <article class="letter">
      <header class="title"><${Back} /><h2><${Say} text=${letter.subject || "No subject"} most=${1024} /></h2></header>
      <dl class="facts-list">
        <dt>From</dt><dd><${Say} text=${senderOf(letter)} most=${256} /></dd>
        <dt>To</dt><dd><${Say} text=${letter.recipient_ids.join(", ")} most=${4000} /></dd>
        <dt>Sent</dt><dd>${dateOf(letter.created_at)}${letter.urgent && html` · <b class="urgent">urgent</b>`}</dd>
        ${letter.thread_id && html`<dt>Thread</dt><dd><a href=${at("thread", letter.thread_id)}>all of its messages</a></dd>`}
        ${letter.reply_to && html`<dt>Answers</dt><dd><a href=${at("letter", letter.reply_to)}>an earlier message</a></dd>`}
        ${letter.file_id && html`<dt>File</dt><dd><${Attached} api=${api} id=${letter.file_id} /></dd>`}
      </dl>
      <${Passage} text=${letter.content} label="Message" prose />
      <${Problem} error=${error} />
      ${!mine && letter.sender_id && html`<p class="actions">
        <button class="main" onClick=${() => setDialog(true)}>Reply</button>
        ${letter.wants_ack && !done && html`
          <input aria-label="A word to the sender" placeholder="a word to the sender" maxlength="2000" value=${note} onInput=${(event) => setNote(event.target.value)} />
          <${Work} run=${acknowledge} onError=${setError}>Acknowledge<//>`}
        ${done && html`<span class="health up" role="status">acknowledged</span>`}
      </p>`}
      ${receipts && html`<h2>Receipts</h2><${Receipts} receipts=${receipts} />`}
    </article>
    ${dialog && html`<${Compose} api=${api} caller=${caller} answers=${letter} onClose=${() => setDialog(false)} />`}
  `;
}

const STATES = { stored: "not read yet", shown: "read", acknowledged: "acknowledged", answered: "answered" };

function Receipts({ receipts }) {
  return html`
    <div class="scroll-x" tabindex="0" role="region" aria-label="Receipts"><table class="left">
      <thead><tr><th>Recipient</th><th>State</th><th>Read</th><th>Acknowledged</th><th>Note</th></tr></thead>
      <tbody>${receipts.map((one) => html`<tr key=${one.recipient_id}>
        <td><${Say} text=${one.recipient_id} most=${80} /></td>
        <td>${STATES[one.state] ?? one.state}${one.answer_id && html` (<a href=${at("letter", one.answer_id)}>read</a>)`}</td>
        <td>${one.shown_at ? `${dateOf(one.shown_at)}${one.turn ? `, turn ${one.turn}` : ""}` : ""}</td>
        <td>${one.acknowledged_at ? dateOf(one.acknowledged_at) : ""}</td>
        <td><${Say} text=${one.note} most=${400} /></td>
      </tr>`)}</tbody>
    </table></div>
  `;
}

/** Save a file of the server's on the disk. Its name is no path, and it is never opened here. */
async function download(api, file) {
  if (file.size > LARGEST) throw new Error(`it has more than ${size(LARGEST)}: get it with another program`);
  const answer = await api.open(`files/${encodeURIComponent(file.id)}`, { headers: { Accept: "*/*" } });
  const address = URL.createObjectURL(new Blob([await answer.blob()], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = file.filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

function Attached({ api, id }) {
  const [file, error, , setError] = useRead(() => api.get(`files/${encodeURIComponent(id)}/meta`), [api, id], 60_000);
  if (!file) return error ? html`<${Problem} error=${error} />` : "…";
  return html`
    <${Say} text=${file.filename} most=${255} /> · ${size(file.size)} · <${Say} text=${file.media_type} most=${80} />
    ${" "}<${Work} kind="small" run=${() => download(api, file)} onError=${setError}>Download<//>
    <${Problem} error=${error} />
  `;
}

function Files({ api }) {
  const [found, error, refresh, setError] = useRead(() => api.get("files", { limit: 1000 }), [api], EVERY);
  const remove = (file) => async () => {
    await api.send("DELETE", `files/${encodeURIComponent(file.id)}`);
    await refresh();
  };
  return html`
    <header class="title"><${Back} /><h2>Your files</h2></header>
    <${Problem} error=${error} />
    ${found?.files.length === 0 && html`<p class="empty">You have uploaded no files.</p>`}
    <ul class="cards">${found?.files.map((file) => html`<li key=${file.id}>
      <strong><${Say} text=${file.filename} most=${255} /></strong>
      <span>${size(file.size)}</span>
      <span class="hint"><${Say} text=${file.media_type} most=${120} /> · ${age(file.created_at)} · kept until ${dateOf(file.expires_at)}</span>
      <span class="actions">
        <${Work} kind="small" run=${() => download(api, file)} onError=${setError}>Download<//>
        <${Work} kind="small danger" run=${remove(file)} onError=${setError}>Delete<//>
      </span>
    </li>`)}</ul>
  `;
}

function Thread({ api, caller, id }) {
  const path = `threads/${encodeURIComponent(id)}`;
  const [older, setOlder] = useState({ letters: [], next: undefined });
  const [body, setBody] = useState("");
  const [adding, setAdding] = useState(false);
  const key = useRef(uniqueId());
  const page = (before) => api.get("messages", { thread_id: id, limit: PAGE, before });
  const read = async () => ({ thread: await api.get(path), ...(await page()) });
  const [found, error, refresh, setError] = useRead(read, [api, id], EVERY);
  if (!found) return html`<${Back} to=${at("threads")} />${error ? html`<${Problem} error=${error} />` : html`<p class="empty">Loading …</p>`}`;
  const { thread } = found;
  const next = older.next === undefined ? found.messages.length === PAGE && found.next_before : older.next;
  const more = async () => {
    const fresh = await page(next);
    setOlder({
      letters: [...older.letters, ...fresh.messages],
      next: fresh.messages.length === PAGE ? fresh.next_before : null,
    });
  };
  const letters = [...new Map([...found.messages, ...older.letters].map((one) => [one.id, one])).values()].reverse();
  const send = async () => {
    await api.send("POST", "messages", { content: body, thread_id: id }, api.once(key.current));
    key.current = uniqueId();
    setBody("");
    await refresh();
  };
  const able = body.trim();
  const add = async ({ name }) => {
    await api.send("POST", `${path}/participants`, { agent_id_to_add: name.value }, api.once(uniqueId()));
    await refresh();
  };
  return html`
    <article class="thread">
      <header class="title"><${Back} to=${at("threads")} /><h2><${Say} text=${thread.title} most=${200} /></h2><span class="spring"></span>
        <button class="small" onClick=${() => setAdding(true)}>Add somebody</button></header>
      <p class="hint"><${Say} text=${thread.participants.join(", ")} most=${4000} /></p>
      ${next && html`<p class="more"><${Work} run=${more} onError=${setError}>Load older messages<//></p>`}
      <ol class="posts">${letters.map((letter) => html`<li key=${letter.id} class=${letter.sender_id === caller.id ? "mine" : letter.sender_id ? "" : "notice"}>
        <span class="line"><b><${Say} text=${senderOf(letter)} most=${60} /></b>
          <a href=${at("letter", letter.id)} title=${dateOf(letter.created_at)}>${age(letter.created_at)}</a></span>
        <${Passage} text=${letter.content} label=${`Message of ${senderOf(letter)}`} prose />
      </li>`)}</ol>
      <${Problem} error=${error} />
      <form class="post" onSubmit=${(event) => event.preventDefault()}>
        <textarea rows="3" aria-label="Message to the thread" placeholder="Write to the thread" value=${body}
          onInput=${(event) => { key.current = uniqueId(); setBody(event.target.value); }} onKeyDown=${sendKey(() => able && send().catch(setError))} />
        <${Work} kind="main" run=${send} onError=${setError} disabled=${!able}>Send<//>
      </form>
    </article>
    ${adding && html`<${FormDialog} title="Add somebody to the thread" doing="Add" send=${add} onClose=${() => setAdding(false)}>
      <label>Name<${Names} api=${api} name="name" without=${thread.participants} /></label>
    <//>`}
  `;
}

/** A choice among those who have a mailbox. */
function Names({ api, name, without = [], multiple = false }) {
  const [found, error] = useRead(() => api.get("participants"), [api], 60_000);
  const names = (found?.participants ?? []).filter((one) => !without.includes(one.name));
  return html`
    <select name=${name} required autofocus multiple=${multiple} size=${multiple ? Math.min(8, Math.max(2, names.length)) : undefined}>
      ${names.map((one) => html`<option key=${one.name} value=${one.name}>${visible(one.kind === "agent" ? `${one.name} (agent)` : one.name)}</option>`)}
    </select>
    <${Problem} error=${error} />
  `;
}

function Compose({ api, caller, answers, onClose }) {
  const key = useRef(uniqueId()); // the same for each attempt: a message is sent once
  const subject = answers?.subject && (/^re:/i.test(answers.subject) ? answers.subject : `Re: ${answers.subject}`);
  const send = async ({ to, subject: about, content, urgent, ack, file }) => {
    const names = answers ? [answers.sender_id] : [...to.selectedOptions].map((one) => one.value);
    const message = { content: content.value, urgent: urgent.checked, wants_ack: ack.checked };
    if (about.value.trim()) message.subject = about.value;
    if (answers) message.reply_to = answers.id;
    if (names.length === 1) [message.recipient_id] = names;
    else message.recipient_ids = names;
    if (file.files[0]) message.file_id = (await upload(api, file.files[0], `${key.current}-file`)).id;
    await api.send("POST", "messages", message, api.once(key.current));
  };
  return html`
    <${FormDialog} title=${answers ? "Reply" : "New message"} doing="Send" send=${send} onClose=${onClose}>
      ${answers
        ? html`<p>To <${Say} text=${answers.sender_id} most=${256} /></p>`
        : html`<label>To<${Names} api=${api} name="to" without=${[caller.id]} multiple /></label>`}
      <label>Subject<input name="subject" maxlength="1024" value=${subject ?? ""} autocomplete="off" /></label>
      <label>Message<textarea name="content" rows="6" required autofocus=${Boolean(answers)} onInput=${() => (key.current = uniqueId())}
        onKeyDown=${sendKey(() => document.querySelector("dialog form").requestSubmit())} /></label>
      <label>File<input name="file" type="file" /></label>
      <label class="check"><input name="urgent" type="checkbox" /> urgent</label>
      <label class="check"><input name="ack" type="checkbox" /> ask for an acknowledgement</label>
    <//>
  `;
}

const upload = async (api, file, key) =>
  (await api.open(`files?${new URLSearchParams({ filename: file.name })}`, {
    method: "POST", raw: file, headers: { "Content-Type": "application/octet-stream", ...api.once(key) },
  })).json();

function NewThread({ api, caller, onClose }) {
  const send = async ({ title, names, content }) => {
    const body = { title: title.value, participants: [...names.selectedOptions].map((one) => one.value) };
    if (content.value.trim()) body.initial_message = content.value;
    const made = await api.send("POST", "threads", body, api.once(uniqueId()));
    location.hash = at("thread", made.thread.id);
  };
  return html`
    <${FormDialog} title="New thread" doing="Create" send=${send} onClose=${onClose}>
      <label>Title<input name="title" required maxlength="200" autofocus autocomplete="off" /></label>
      <label>Who is in it<${Names} api=${api} name="names" without=${[caller.id]} multiple /></label>
      <label>First message<textarea name="content" rows="4" /></label>
    <//>
  `;
}
