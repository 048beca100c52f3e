// What the swarm has learned about one's preferences: named texts with their versions.

import { useState } from "./hooks.mjs";
import { compare } from "./approvals.js";
import { age, dateOf, html, Passage, Problem, Say, sendKey, useRead, visible, Work } from "./parts.js";

const at = (name) => `#/memories/${encodeURIComponent(name)}`;

export function Memories({ api, id }) {
  const [found, error, refresh] = useRead(() => api.get("memories"), [api]);
  return html`
    <main class=${`mail ${id ? "reading" : ""}`}>
      <div class="list-side">
        <div class="title"><h1>Memories</h1></div>
        <p class="hint">What the agents are told of your preferences. Answers to approvals teach them.
          ${found && !found.learning.enabled && html` Learning is off: <${Say} text=${found.learning.reason ?? "no reason is known"} most=${300} />.`}</p>
        <${Problem} error=${error} />
        ${found?.memories.length === 0 && html`<p class="empty">There are none.</p>`}
        <ul class="letters">
          ${found?.memories.map((one) => html`<li key=${one.name}>
            <a href=${at(one.name)} aria-current=${one.name === id ? "true" : undefined} class="unread">
              <span class="line"><b><${Say} text=${one.name} most=${80} /></b>
                ${one.waiting > 0 && html`<small class="new">${one.waiting} waiting</small>`}
                <time>${one.is_default ? "default" : `version ${one.version}`}</time></span>
              <span class="text"><${Say} text=${one.value} most=${160} /></span>
            </a>
          </li>`)}
        </ul>
      </div>
      <div class="page-side">
        ${id ? html`<${Memory} key=${id} api=${api} name=${id} onChange=${refresh} />` : html`<p class="empty">Choose one to read and edit it.</p>`}
      </div>
    </main>
  `;
}

function Memory({ api, name, onChange }) {
  const path = `memories/${encodeURIComponent(name)}`;
  const [found, error, refresh, setError] = useRead(() => api.get(path), [api, name]);
  const [text, setText] = useState(null); // null: not being edited
  const [told, setTold] = useState("");
  if (!found) return error ? html`<${Problem} error=${error} />` : html`<p class="empty">Loading …</p>`;
  const put = async (body, words) => {
    await api.send("PUT", path, { ...body, expected_version: found.version });
    setText(null);
    setTold(words);
    await refresh();
    onChange();
  };
  const save = () => put({ value: text }, "Saved.");
  const versions = [...found.versions].sort((one, two) => two.version - one.version);
  return html`
    <article class="letter">
      <header class="title"><a href="#/memories" class="back only-phone" aria-label="Back to the list">←</a>
        <h2><${Say} text=${name} most=${80} /></h2></header>
      <p class="hint">${found.is_default ? "The swarm's default." : `Version ${found.version}${found.updated_at ? `, ${age(found.updated_at)}` : ""}.`}</p>
      ${text === null
        ? html`<${Passage} text=${found.value} label="Text" prose />
            <p class="actions"><button class="main" onClick=${() => setText(found.value)}>Edit</button>
              <span class="health up" role="status">${told}</span></p>`
        : html`<label>Text<textarea rows="14" autofocus value=${text} onInput=${(event) => setText(event.target.value)}
              onKeyDown=${sendKey(() => save().catch(setError))} /></label>
            <p class="actions"><${Work} kind="main" run=${save} onError=${setError} disabled=${text === found.value}>Save<//>
              <button onClick=${() => setText(null)}>Back</button></p>`}
      <${Problem} error=${error} />
      ${versions.length > 0 && html`<h2>Versions</h2>`}
      ${versions.map((one, place) => html`<${Version} key=${one.version} one=${one} before=${versions[place + 1]} newest=${place === 0}
        onRestore=${() => put({ restore: one.version }, `As in version ${one.version} again.`)} onError=${setError} />`)}
      ${found.feedback?.length > 0 && html`<h2>Feedback</h2>
        <ul class="cards">${found.feedback.map((one) => html`<li key=${one.approval_id}>
          <strong>${one.type}: <${Say} text=${one.action} most=${80} /></strong><span class="health">${one.status}</span>
          <span class="hint">${age(one.created_at)}${one.reason && html` · <${Say} text=${one.reason} most=${400} />`}</span>
        </li>`)}</ul>`}
    </article>
  `;
}

function Version({ one, before, newest, onRestore, onError }) {
  const lines = before ? compare(before.value, one.value) : [];
  return html`
    <details>
      <summary>Version ${one.version} · <${Say} text=${one.source} most=${40} /> · ${dateOf(one.created_at)}</summary>
      ${before
        ? html`<div class="diff"><pre tabindex="0">${lines.map(([mark, line]) => html`<span class=${{ "-": "gone", "+": "made" }[mark] ?? ""}>${mark} ${visible(line)}${"\n"}</span>`)}</pre></div>`
        : html`<${Passage} text=${one.value} label=${`Version ${one.version}`} prose />`}
      ${!newest && html`<p><${Work} kind="small" run=${onRestore} onError=${onError}>Use this text again<//></p>`}
    </details>
  `;
}
