// The log of a task in three ways: as a timeline, as a sequence diagram of the agents, as a
// waterfall of durations. Only the rows in sight are in the page, whatever their number.

import { useEffect, useLayoutEffect, useRef, useState } from "./hooks.mjs";
import { describe, partsOf, spanOf } from "./events.js";
import { dateOf, duration, html, Say, visible } from "./parts.js";

const OVERSCAN = 12;
const NARROW = 800; // pixels; a phone's window is narrower
const GUTTER = 66; // for the times at its left
const LETTER = 6.6; // what a letter of a label takes, about

export const MODES = {
  Timeline: { row: 56, View: Timeline },
  Sequence: { row: 38, View: Sequence },
  Waterfall: { row: 32, View: Waterfall },
};

/** Return how far apart the agents of a diagram stand, in pixels. */
const columnFor = (count) => (innerWidth < NARROW ? 116 : count > 4 ? 144 : 176);

const since = (milliseconds) => (milliseconds < 1 ? "0 s" : `+${duration(milliseconds)}`);
const sinceStart = (event, start) => Math.max(0, Date.parse(event.data.timestamp) - Date.parse(start));

/** Show the rows that are in sight of a scroller, each of one height, and ask the log for them. */
function Windowed({ log, kind, row, at, chosen, onChoose, stick, onStick, head, width, shown, behind }) {
  const scroller = useRef();
  const header = useRef();
  const [view, setView] = useState({ top: 0, height: 800 });
  const above = () => header.current?.offsetHeight ?? 0;
  const measure = () => {
    const { scrollTop, clientHeight } = scroller.current;
    setView((old) =>
      old.top === scrollTop && old.height === clientHeight
        ? old
        : { top: scrollTop, height: clientHeight },
    );
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(scroller.current);
    if (!stick) scroller.current.scrollTop = (at.current - 1) * row; // where another view was
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (stick) scroller.current.scrollTop = log.total * row + above();
  }, [stick, log.total]);
  useLayoutEffect(() => {
    if (!chosen) return;
    const { scrollTop, clientHeight } = scroller.current;
    const top = (chosen - 1) * row;
    const high = clientHeight - above();
    if (top < scrollTop) scroller.current.scrollTop = top;
    else if (top + row > scrollTop + high) scroller.current.scrollTop = top + row - high;
  }, [chosen]);
  const first = Math.max(1, Math.floor(view.top / row) + 1 - OVERSCAN);
  const last = Math.min(log.total, Math.ceil((view.top + view.height) / row) + OVERSCAN);
  const seen = [Math.floor(view.top / row) + 1, Math.min(log.total, Math.ceil((view.top + view.height) / row))];
  at.current = seen[0];
  useEffect(() => {
    const timer = setTimeout(() => log.look(first, last), 30); // not for each step of a scroll
    return () => clearTimeout(timer);
  }, [log, first, last]);
  const atEnd = view.top + view.height >= log.total * row - row;
  const scrolled = () => {
    measure();
    const { scrollTop, clientHeight, scrollHeight } = scroller.current;
    onStick(scrollTop + clientHeight >= scrollHeight - row);
  };
  const pressed = (event) => {
    const pageful = Math.max(1, Math.floor(view.height / row) - 1);
    const now = chosen || log.total;
    const next = {
      ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + pageful, PageUp: now - pageful,
      Home: 1, End: log.total,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    onChoose(Math.max(1, Math.min(log.total, next)), { open: false });
  };
  const numbers = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  const range = { first, last, seen, numbers };
  return html`
    <section class=${`timeline ${kind}`} aria-label=${kind}>
      <div class="scroller" ref=${scroller} onScroll=${scrolled} onKeyDown=${pressed} role="listbox"
        tabindex="0" aria-label="Events" aria-activedescendant=${chosen ? `event-${chosen}` : undefined}>
        ${head && html`<div class="head-row" ref=${header} role="presentation" style=${{ minWidth: width }}>${head(range)}</div>`}
        <div class="rows" role="presentation" style=${{ height: `${log.total * row}px`, minWidth: width }}>
          ${behind?.(range)}
          ${numbers.map((number) => {
            const event = log.get(number);
            const { tone, inside } = event ? shown(event, range) : { tone: "quiet", inside: html`<span class="line did">…</span>` };
            return html`
              <div key=${number} class=${`row ${tone}`} id=${`event-${number}`} role="option" aria-selected=${number === chosen}
                aria-posinset=${number} aria-setsize=${log.total}
                style=${{ top: `${(number - 1) * row}px`, height: `${row}px` }} onClick=${() => onChoose(number)}>
                ${inside}
              </div>
            `;
          })}
        </div>
      </div>
      ${!stick && !atEnd && html`<button class="newest" onClick=${() => onStick(true)}>↓ Newest</button>`}
    </section>
  `;
}

function Timeline({ start, ...rest }) {
  const shown = (event) => {
    const said = describe(event);
    const inside = html`
      <span class="line">
        ${said.actor && html`<b><${Say} text=${said.actor} most=${80} /></b>${" "}`}
        <span class="did"><${Say} text=${said.did} most=${120} /></span>
        ${said.facts.map((fact) => html`<small class="fact">${fact}</small>`)}
        <time title=${dateOf(event.data.timestamp)}>${since(sinceStart(event, start))}</time>
      </span>
      <span class="text"><${Say} text=${said.text} /></span>
    `;
    return { tone: said.tone, inside };
  };
  return html`<${Windowed} ...${rest} kind="Timeline" row=${MODES.Timeline.row} shown=${shown} />`;
}

/** Return what a row says, in one line: for those who do not see the drawing. */
function inWords(said) {
  return visible([said.actor, said.did, ...said.facts, said.text].filter(Boolean).join(" ")).slice(0, 300);
}

const cut = (text, pixels) => {
  const most = Math.max(3, Math.floor(pixels / LETTER));
  const line = visible(String(text)).replaceAll("\n", " ");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
};

function Sequence({ log, actors, start, ...rest }) {
  const { row } = MODES.Sequence;
  const names = actors.list();
  const column = columnFor(names.length);
  const place = new Map(names.map((name, index) => [name, GUTTER + column * (index + 0.5)]));
  const width = GUTTER + column * Math.max(1, names.length);
  const shown = (event) => {
    const said = describe(event);
    const time = html`<time title=${dateOf(event.data.timestamp)}>${since(sinceStart(event, start))}</time>`;
    return { tone: said.tone, inside: html`${time}<span class="unseen">${inWords(said)}</span>` };
  };
  const head = () => names.map((name) => html`
    <span class="actor" style=${{ left: `${place.get(name) - column / 2}px`, width: `${column}px` }}><b><${Say} text=${name} most=${60} /></b></span>
  `);
  const behind = ({ first, last, numbers }) => html`
    <svg class="sequence" width=${width} height=${(last - first + 1) * row} style=${{ top: `${(first - 1) * row}px` }} aria-hidden="true">
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${[...place.values()].map((x) => html`<line class="life" x1=${x} x2=${x} y1="0" y2=${(last - first + 1) * row} />`)}
      ${numbers.map((number) => log.get(number) && html`
        <${Drawn} key=${number} event=${log.get(number)} y=${(number - first) * row + row / 2} place=${place} width=${width} column=${column} />
      `)}
    </svg>
  `;
  return html`<${Windowed} ...${rest} log=${log} kind="Sequence" row=${row} width=${`${width}px`} head=${head} shown=${shown} behind=${behind} />`;
}

/** One event of a diagram: an arrow from agent to agent, something at one agent, or an end. */
function Drawn({ event, y, place, width, column }) {
  const said = describe(event);
  const { from, to, at } = partsOf(event);
  if (from !== undefined) {
    const x = place.get(from) ?? GUTTER;
    const goals = (to ?? [...place.keys()]).filter((name) => name !== from).map((name) => place.get(name));
    return html`
      <g class=${`drawn ${said.tone}`}>
        ${goals.filter(Boolean).map((end) => {
          const side = end > x ? 1 : -1;
          return html`
            <line x1=${x} x2=${end - 3 * side} y1=${y + 7} y2=${y + 7} marker-end="url(#head)" />
            <text x=${x + 8 * side} y=${y} text-anchor=${side > 0 ? "start" : "end"}>${cut(said.text || said.did, Math.abs(end - x) - 16)}</text>
          `;
        })}
        ${goals.length === 0 && html`<text x=${x + 8} y=${y + 4}>↺ ${cut(said.text, column)}</text>`}
      </g>
    `;
  }
  if (at === undefined) {
    return html`
      <g class=${`drawn end ${said.tone}`}>
        <line x1=${GUTTER} x2=${width} y1=${y + 9} y2=${y + 9} />
        <text x=${GUTTER + 6} y=${y + 3}>${cut([said.did, said.text].filter(Boolean).join(": "), width - GUTTER)}</text>
      </g>
    `;
  }
  const x = place.get(at) ?? GUTTER + column / 2;
  const did = said.did.replace("model replied", "model").replace(/^calls (.*)$/, "$1()");
  const facts = said.facts.filter((fact) => fact !== "reasoning"); // there is no room for it
  const text = cut([did, ...facts].join(" · "), column - 14);
  const wide = Math.min(column - 6, text.length * LETTER + 14);
  return html`
    <g class=${`drawn box ${said.tone}`}>
      <rect x=${x - wide / 2} y=${y - 12} width=${wide} height="24" rx="6" />
      <text x=${x} y=${y + 4} text-anchor="middle">${text}</text>
    </g>
  `;
}

/** Each event as a bar, as long as it took; the scale is that of the rows in sight. */
function Waterfall({ log, start, ...rest }) {
  const scale = ({ seen: [first, last] }) => {
    const spans = [];
    for (let number = first; number <= last; number++) {
      const event = log.get(number);
      if (event) spans.push(spanOf(event));
    }
    const begin = Math.min(...spans.map(({ begin }) => begin));
    const end = Math.max(...spans.map(({ end }) => end));
    return { begin, length: Math.max(1, end - begin) };
  };
  const head = (range) => {
    const { begin, length } = scale(range);
    if (!Number.isFinite(begin)) return null;
    const from = begin - Date.parse(start);
    return html`
      <span class="label"></span>
      <span class="scale">${[0, 1, 2, 3].map((quarter) => html`<span>${since(Math.max(0, from + (length * quarter) / 4))}</span>`)}</span>
    `;
  };
  const shown = (event, range) => {
    const said = describe(event);
    const { begin, length } = scale(range);
    const span = spanOf(event);
    const left = ((span.begin - begin) / length) * 100;
    const wide = ((span.end - span.begin) / length) * 100;
    const inside = html`
      <span class="label"><b><${Say} text=${said.actor} most=${40} /></b> <${Say} text=${said.did} most=${60} /></span>
      <span class="track">
        <span class=${span.end > span.begin ? "bar-of" : "bar-of dot"} style=${{ left: `${Math.min(99.6, left)}%`, width: `${wide}%` }}></span>
        ${span.end > span.begin && html`<small class=${left + wide > 80 ? "before" : ""}
          style=${left + wide > 80 ? { right: `${100 - left}%` } : { left: `${left + wide}%` }}>${duration(span.end - span.begin)}</small>`}
      </span>
    `;
    return { tone: said.tone, inside };
  };
  return html`<${Windowed} ...${rest} log=${log} kind="Waterfall" row=${MODES.Waterfall.row} head=${head} shown=${shown} />`;
}
