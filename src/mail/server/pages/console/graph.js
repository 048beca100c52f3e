// The agents as a graph: who may write to whom, who works, and where mail waits.
//
// Agents stand in layers by their distance from the entrypoint; a layer that is too wide goes on in
// the next row. All lines are faint but those of the agent that one looks at.

import { useLayoutEffect, useRef, useState } from "./hooks.mjs";
import { amount, html, visible } from "./parts.js";

const HEIGHT = 46;
const NARROW = 480; // pixels; two nodes are side by side below it
const DEEP = 74; // from row to row
const MARGIN = 18;
const MANY_LINES = 60; // from so many on they are fainter still

const sum = (values) => values.reduce((total, value) => total + value, 0);
export const waiting = (agent) => sum(Object.values(agent.queues));

/** Return the nodes and lines of a graph: agents, participants and other swarms by unique keys. */
export function parts(graph) {
  const nodes = graph.agents.map((agent) => ({
    key: `agent ${agent.name}`, name: agent.name, kind: "agent", agent,
  }));
  for (const name of graph.participants) nodes.push({ key: `person ${name}`, name, kind: "person" });
  for (const swarm of graph.swarms) {
    nodes.push({ key: `swarm ${swarm.swarm_name}`, name: swarm.swarm_name, kind: "swarm", swarm });
  }
  const known = new Set(nodes.map((node) => node.key));
  const lines = [];
  for (const agent of graph.agents) {
    const from = `agent ${agent.name}`;
    const reached = new Set();
    for (const target of agent.comm_targets) {
      const swarm = target.includes("@") && target.slice(target.lastIndexOf("@") + 1);
      const to = swarm
        ? `swarm ${swarm}`
        : known.has(`agent ${target}`) ? `agent ${target}` : `person ${target}`;
      if (to !== from && known.has(to)) reached.add(to);
    }
    for (const to of reached) lines.push({ from, to });
  }
  return { nodes, lines };
}

/** Return the nodes row by row: agents by their distance from the entrypoint, the others last. */
function rows(nodes, lines, entrypoint, across) {
  const next = new Map(nodes.map((node) => [node.key, []]));
  for (const { from, to } of lines) next.get(from).push(to);
  const depth = new Map([[`agent ${entrypoint}`, 0]]);
  for (const key of depth.keys()) {
    for (const to of next.get(key) ?? []) if (!depth.has(to)) depth.set(to, depth.get(key) + 1);
  }
  const agents = nodes.filter((node) => node.kind === "agent");
  const deepest = Math.max(0, ...agents.map((node) => depth.get(node.key) ?? 0));
  const layers = [];
  for (const node of agents) (layers[depth.get(node.key) ?? deepest + 1] ??= []).push(node);
  layers.push(nodes.filter((node) => node.kind !== "agent"));
  const found = [];
  for (const layer of layers.filter((one) => one?.length)) {
    const count = Math.ceil(layer.length / across);
    const each = Math.ceil(layer.length / count); // rows of about one length
    for (let at = 0; at < layer.length; at += each) found.push(layer.slice(at, at + each));
  }
  return found;
}

/** Place all nodes within a width; return them by key, and the height. */
function layout({ nodes, lines }, entrypoint, width) {
  const [wide, gap] = width < NARROW ? [138, 16] : [150, 26];
  const across = Math.max(1, Math.floor((width - 2 * MARGIN + gap) / (wide + gap)));
  const places = new Map();
  rows(nodes, lines, entrypoint, across).forEach((row, level) => {
    const step = Math.min(wide + 2 * gap, (width - 2 * MARGIN) / row.length);
    const left = (width - step * row.length) / 2;
    row.forEach((node, index) => {
      const x = left + step * (index + 0.5) - wide / 2;
      places.set(node.key, { x, y: MARGIN + level * (HEIGHT + DEEP), wide, node });
    });
  });
  const lowest = Math.max(0, ...[...places.values()].map(({ y }) => y));
  return { places, height: lowest + HEIGHT + MARGIN };
}

/** Return the path of a line: from row to row a curve, within a row an arc below it. */
function path(from, to) {
  // There and back are two lines, one beside the other.
  const aside = from.y < to.y || (from.y === to.y && from.x < to.x) ? -6 : 6;
  const middle = (place) => place.x + place.wide / 2 + aside;
  const [x, end] = [middle(from), middle(to)];
  if (from.y === to.y) {
    const bottom = from.y + HEIGHT;
    const dip = Math.min(DEEP - 12, 22 + Math.abs(end - x) / 16);
    return `M${x} ${bottom} C${x} ${bottom + dip} ${end} ${bottom + dip} ${end} ${bottom}`;
  }
  const down = to.y > from.y;
  const start = down ? from.y + HEIGHT : from.y;
  const goal = down ? to.y : to.y + HEIGHT;
  const bend = (goal - start) / 2;
  return `M${x} ${start} C${x} ${start + bend} ${end} ${goal - bend} ${end} ${goal}`;
}

/** Say in words what a node shows in colours. */
export function inWords({ kind, name, agent, swarm }) {
  if (kind === "person") return `${name}, a participant`;
  if (kind === "swarm") return `${name}, another swarm, ${swarm.is_active ? "answers" : "does not answer"}`;
  const queue = waiting(agent);
  const work = agent.turns ? `in ${agent.turns} turn${agent.turns > 1 ? "s" : ""}` : "idle";
  return `${name}, ${work}, ${queue} message${queue === 1 ? "" : "s"} waiting`;
}

const shortened = (name, most) => visible(name.length > most ? `${name.slice(0, most - 1)}…` : name);

function Node({ place, chosen, faint, entry, onChoose }) {
  const { node, wide } = place;
  const queue = node.agent ? waiting(node.agent) : 0;
  const kind = ["node", node.kind, node.agent?.turns && "busy", chosen && "chosen", faint && "faint",
    node.swarm && !node.swarm.is_active && "away"].filter(Boolean).join(" ");
  const pressed = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onChoose(node.key);
  };
  const note = { person: "participant", swarm: node.swarm?.is_active ? "swarm" : "no answer" }[node.kind]
    ?? (node.agent.turns ? `${node.agent.turns > 1 ? `${node.agent.turns} turns` : "in a turn"}` : entry ? "entrypoint" : "");
  return html`
    <g class=${kind} transform=${`translate(${place.x} ${place.y})`} role="button" tabindex="0"
      aria-pressed=${chosen} onClick=${() => onChoose(node.key)} onKeyDown=${pressed}>
      <rect width=${wide} height=${HEIGHT} rx=${node.kind === "person" ? HEIGHT / 2 : 10} />
      <text x=${wide / 2} y=${note ? 20 : 28} text-anchor="middle">${shortened(node.name, wide < 150 ? 15 : 18)}</text>
      ${note && html`<text class="note" x=${wide / 2} y="37" text-anchor="middle">${note}</text>`}
      ${queue > 0 && html`
        <circle class="queue" cx=${wide - 4} cy="4" r="13" />
        <text class="queue-text" x=${wide - 4} y="8" text-anchor="middle">${queue > 99 ? "99+" : queue}</text>
      `}
    </g>
  `;
}

export function Graph({ graph, chosen, onChoose }) {
  const frame = useRef();
  const [width, setWidth] = useState(900);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(Math.max(200, frame.current.clientWidth)));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  const all = parts(graph);
  const { places, height } = layout(all, graph.entrypoint, width);
  const near = new Set(all.lines.flatMap(({ from, to }) => (from === chosen || to === chosen ? [from, to] : [])));
  const lit = chosen && places.has(chosen);
  const drawn = all.lines.map(({ from, to }) => {
    const kind = !lit ? "" : from === chosen ? "out" : to === chosen ? "in" : "faint";
    return { key: `${from}\n${to}`, kind, d: path(places.get(from), places.get(to)) };
  });
  drawn.sort((one, two) => (one.kind > two.kind) - (one.kind < two.kind)); // faint ones below
  return html`
    <div class=${all.lines.length > MANY_LINES ? "graph dense" : "graph"} ref=${frame}>
      <svg width=${width} height=${height} role="group" aria-label=${`Graph of ${amount(graph.agents.length)} agents`}>
        <defs>
          ${["", "in", "out", "faint"].map((kind) => html`
            <marker id=${`arrow-${kind}`} class=${`arrow ${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"
              markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>
          `)}
        </defs>
        ${drawn.map(({ key, kind, d }) => html`<path key=${key} class=${`edge ${kind}`} d=${d} marker-end=${`url(#arrow-${kind})`} />`)}
        ${[...places.values()].map((place) => html`
          <${Node} key=${place.node.key} place=${place} chosen=${place.node.key === chosen} onChoose=${onChoose}
            faint=${lit && place.node.key !== chosen && !near.has(place.node.key)} entry=${place.node.name === graph.entrypoint} />
        `)}
      </svg>
    </div>
  `;
}
