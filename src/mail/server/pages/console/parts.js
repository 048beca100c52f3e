// What all views use: text of strangers, figures, times, dialogs.

import { h } from "./preact.mjs";
import { useEffect, useLayoutEffect, useRef, useState } from "./hooks.mjs";
import htm from "./htm.mjs";

export { h };
export const html = htm.bind(h);

const LONG = 20_000;
// The commands have the same rule, in `mail/cli/common.py`: controls but line ends and tabs, formats,
// separators, fillers, what nobody has given a shape.
const UNSEEN = String.raw`\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160` +
  String.raw`\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufdd0-\ufdef` +
  String.raw`\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{16fe4}` +
  String.raw`\u{1bca0}-\u{1bca3}\u{1d159}\u{1d173}-\u{1d17a}\u{e0000}-\u{10ffff}`;
const EMOJI = String.raw`\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935` +
  String.raw`\u2b05-\u2b55\u3030\u303d\u3297\u3299\u{1f000}-\u{1faff}`;
const HIDDEN = new RegExp( // one selector after an emoji, and a joiner between two, are seen
  String.raw`[${UNSEEN}](?<![${EMOJI}]\ufe0f|[0-9#*]\ufe0f(?=\u20e3)|[${EMOJI}\ufe0f]\u200d(?=[${EMOJI}]))`, "gu");

/** Return text with characters that cannot be seen as escapes: nobody hides behind them. */
export const visible = (text) => String(text).replace(HIDDEN, (sign) =>
  sign.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`));

/** Text of a stranger in a line; its direction stays inside. */
export function Say({ text, most = 400 }) {
  const all = String(text);
  const shown = all.length > most ? all.slice(0, most).replace(/[\ud800-\udbff]?$/, "…") : all;
  return html`<bdi>${visible(shown)}</bdi>`;
}

/** Text of a stranger as a block. A long one is cut until one asks for all of it. */
export function Passage({ text, label, prose = false }) {
  const [all, setAll] = useState(false);
  const shown = all ? text : text.slice(0, LONG);
  // To find the direction of each line takes a browser 15 seconds for 1 MB: a long text has one.
  return html`
    <pre class=${prose ? "passage prose" : "passage"} dir=${all ? undefined : "auto"} tabindex=${text.length > 600 ? 0 : undefined}
      role=${text.length > 600 ? "region" : undefined} aria-label=${label}>${visible(shown)}</pre>
    ${shown.length < text.length &&
    html`<button class="small" onClick=${() => setAll(true)}>
      Show all ${amount(text.length)} characters
    </button>`}
  `;
}

/** Text with the signs of Markdown, as elements made here: no addresses, no images, no HTML of its own. */
export function Markdown({ text }) {
  const shown = visible(text.slice(0, LONG));
  const blocks = shown.split(/^(```[^\n]*\n[\s\S]*?^```[ \t]*$)/m).flatMap((part) =>
    part.startsWith("```") ? [part] : part.split(/\n{2,}/).filter((block) => block.trim()),
  );
  return html`<div class="markdown" dir="auto">${blocks.map(block)}${text.length > LONG && html`<p>…</p>`}</div>`;
}

function block(text) {
  if (text.startsWith("```")) {
    return html`<pre class="passage" tabindex="0" role="region" aria-label="Code">${text.replace(/^```[^\n]*\n/, "").replace(/\n?```[ \t]*$/, "")}</pre>`;
  }
  const lines = text.split("\n");
  if (lines.every((line) => line.startsWith(">"))) {
    return html`<blockquote>${inline(lines.map((line) => line.replace(/^> ?/, "")).join("\n"))}</blockquote>`;
  }
  if (lines.every((line) => /^\s*[-*] /.test(line))) {
    return html`<ul>${lines.map((line) => html`<li>${inline(line.replace(/^\s*[-*] /, ""))}</li>`)}</ul>`;
  }
  if (/^#{1,6} /.test(text)) return html`<p><strong>${text.replace(/^#+ /, "")}</strong></p>`;
  return html`<p>${inline(text)}</p>`;
}

const inline = (text) =>
  text.split(/(\*\*[^*\n]+\*\*|`[^`\n]+`)/).map((part) =>
    part.startsWith("**") && part.length > 4 ? html`<strong>${part.slice(2, -2)}</strong>`
    : part.startsWith("`") && part.length > 2 ? html`<code>${part.slice(1, -1)}</code>`
    : part,
  );

const number = new Intl.NumberFormat("en");

export const amount = (value) => number.format(value);

export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  for (; bytes >= 1024 && step < units.length - 1; step++) bytes /= 1024;
  return `${step ? bytes.toFixed(1) : amount(bytes)} ${units[step]}`;
}

export function duration(milliseconds) {
  if (milliseconds < 1) return "<1 ms";
  if (milliseconds < 1_000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1_000).toFixed(1)} s`;
  const seconds = Math.round(milliseconds / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}

export const money = (dollars) =>
  dollars === 0 ? "$0" : dollars < 0.01 ? `$${dollars.toPrecision(2)}` : `$${dollars.toFixed(2)}`;

export function age(timestamp, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(timestamp)) / 1_000);
  if (seconds < 60) return "just now";
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const dateOf = (timestamp) => calendar.format(new Date(timestamp));

export function State({ status }) {
  return html`<span class=${`state ${status}`}>${status}</span>`;
}

/** Run a function again and again while the page is seen, and once when it is seen again. */
export function useRepeated(run, milliseconds) {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const tick = () => document.visibilityState === "visible" && latest.current();
    const timer = setInterval(tick, milliseconds);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, [milliseconds]);
}

/** Read something again and again; return it, what went wrong, and how to read it now. */
export function useRead(read, again, milliseconds = 5_000) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const latest = useRef();
  const now = async () => {
    const mine = (latest.current = {});
    try {
      const fresh = await read();
      if (latest.current !== mine) return; // a later answer is under way
      setFound(fresh);
      setError(null);
    } catch (refused) {
      if (latest.current === mine) setError(refused);
    }
  };
  useEffect(() => void now(), again);
  useRepeated(now, milliseconds);
  return [found, error, now, setError];
}

/** Call `keys[name]` when its key is pressed outside of fields and dialogs. */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => { // as soon as the view can be seen
    const pressed = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return;
      const typing = event.target.closest("input, textarea, select");
      if (typing && event.key !== "Escape") return;
      const act = latest.current[event.key];
      if (!act) return;
      event.preventDefault();
      act(event);
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

/** A dialog of the browser's own: it keeps the focus, and Escape closes it. */
export function Dialog({ title, onClose, children }) {
  const element = useRef();
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`
    <dialog ref=${element} onClose=${onClose} aria-label=${title}>
      <header>
        <h2>${title}</h2>
        <button class="plain" aria-label="Close" onClick=${onClose}>✕</button>
      </header>
      ${children}
    </dialog>
  `;
}

/** A dialog with a form: `send` gets its fields. */
export function FormDialog({ title, doing, send, onClose, children }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await send(event.target.elements);
      onClose();
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form onSubmit=${submit}>
        ${children}
        <${Problem} error=${error} />
        <footer><button class="main" disabled=${busy}>${doing}</button></footer>
      </form>
    <//>
  `;
}

/** A button whose work takes a moment; it cannot be pressed again meanwhile. */
export function Work({ run, kind = "", onError, disabled = false, children }) {
  const [busy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    try {
      await run();
    } catch (error) {
      onError(error);
    }
    setBusy(false);
  };
  return html`<button class=${kind} disabled=${busy || disabled} onClick=${press}>${children}</button>`;
}

export function Problem({ error }) {
  return error && html`<p class="problem" role="alert"><${Say} text=${error.message} most=${2000} /></p>`;
}

/** Send a form with Ctrl+Enter (or ⌘ Enter) from its text area. */
export const sendKey = (send) => (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  send();
};
