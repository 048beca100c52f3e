// The swarm: what it is, how it is, what you store in it, and the public swarms that it knows.

import { useEffect, useState } from "./hooks.mjs";
import { age, amount, duration, html, Problem, Say, State, useRepeated } from "./parts.js";

const EVERY = 5_000;
const KIB = 1024;

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  for (; bytes >= KIB && step < units.length - 1; step++) bytes /= KIB;
  return `${step ? bytes.toFixed(1) : amount(bytes)} ${units[step]}`;
}

const of = (value, most, show) => (most === null ? show(value) : `${show(value)} of ${show(most)}`);

export function Swarm({ api }) {
  const [facts, setFacts] = useState(null);
  const [error, setError] = useState(null);
  const read = async () => {
    try {
      const [root, status, known] = await Promise.all([api.root(), api.status(), api.swarms()]);
      setFacts({ root, status, known: known.swarms });
      setError(null);
    } catch (refused) {
      setError(refused);
    }
  };
  useEffect(() => void read(), [api]);
  useRepeated(read, EVERY);
  if (!facts) {
    return html`<main class="page swarm">
      <h1>Swarm</h1>
      ${error ? html`<${Problem} error=${error} />` : html`<p class="empty">Loading …</p>`}
    </main>`;
  }
  const { root, status, known } = facts;
  const { swarm } = root;
  const { storage } = status;
  const others = known.filter((one) => one.swarm_name !== swarm.name);
  return html`
    <main class="page swarm">
      <div class="title"><h1><${Say} text=${swarm.name} /></h1><${State} status=${root.status} /></div>
      <${Problem} error=${error} />
      ${swarm.description && html`<p><${Say} text=${swarm.description} most=${2000} /></p>`}
      <dl class="facts-list">
        <dt>Entrypoint</dt><dd><${Say} text=${swarm.entrypoint} /></dd>
        <dt>Version</dt><dd><${Say} text=${swarm.version} /></dd>
        ${swarm.keywords.length > 0 && html`<dt>Keywords</dt><dd><${Say} text=${swarm.keywords.join(", ")} /></dd>`}
        <dt>Server</dt><dd>${root.version}, MAIL ${root.protocol_version}, up for ${duration(root.uptime * 1000)}</dd>
        <dt>Callers at work</dt><dd>${amount(status.active_users)}</dd>
      </dl>
      <h2>Yours</h2>
      <dl class="facts-list">
        <dt>Tasks</dt><dd>${amount(storage.tasks)}</dd>
        <dt>Open tasks</dt><dd>${of(storage.open_tasks, storage.max_open_tasks, amount)}</dd>
        <dt>Stored</dt><dd>${of(storage.bytes, storage.max_bytes, size)}</dd>
        <dt>New messages</dt><dd>${status.user_mail_ready ? "are processed now" : "are not processed now"}</dd>
      </dl>
      ${others.length > 0 &&
      html`<h2>Other public swarms</h2>
        <table>
          <thead><tr><th>Swarm</th><th>Health</th><th>Latency</th><th>Last seen</th></tr></thead>
          <tbody>${others.map((one) => html`<tr key=${one.swarm_name}>
            <td title=${one.swarm_description ?? ""}><${Say} text=${one.swarm_name} most=${120} /></td>
            <td>${one.is_active ? "answers" : "does not answer"}</td>
            <td>${typeof one.latency === "number" ? duration(one.latency * 1000) : ""}</td>
            <td>${one.last_seen ? age(one.last_seen) : "never"}</td>
          </tr>`)}</tbody>
        </table>`}
    </main>
  `;
}
